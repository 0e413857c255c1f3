// Signals by signalfd.
#pragma once

#include <rdmacoro/coro/signals.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include <sys/signalfd.h>
#include <unistd.h>

namespace rdmacoro {

RDMACORO_COLD signals::signals(scheduler& on, std::initializer_list<int> numbers) : on_(on) {
    sigset_t wanted;
    ::sigemptyset(&wanted);
    if (numbers.size() == 0) detail::throw_error(errc::invalid_argument, "signals: none is named");
    for (const int number : numbers) {
        bool possible = number <= most && ::sigaddset(&wanted, number) == 0;
        for (const int fixed : {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
            possible &= number != fixed;
        if (!possible)
            throw error(errc::invalid_argument,
                        "signals: number " + std::to_string(number) + " cannot be received so");
    }
    fd_ = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw error(errc::no_resources, std::string("signalfd: ") + std::strerror(errno));
    ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    ::sigemptyset(&blocked_);
    for (const int number : numbers) {
        if (::sigismember(&before_, number) == 0) ::sigaddset(&blocked_, number);
    }
    on_.add_source(*this);
}

RDMACORO_COLD signals::signals(std::initializer_list<int> numbers)
    : signals(detail::running_scheduler(), numbers) {}

RDMACORO_COLD signals::~signals() {
    if (!waiting_.empty()) detail::fatal("signals were destroyed while a coroutine waits for one");
    unlink();
    // A second Ctrl-C does not end a process that answered the first.
    constexpr int most_looks = 1024;  // others may send as fast as they are read
    for (int n = 0; stop_.stop_requested() && n < most_looks && look(); ++n) {}
    ::close(fd_);
    ::pthread_sigmask(SIG_UNBLOCK, &blocked_, nullptr);
}

RDMACORO_DECL bool signals::poll() noexcept {
    if (++polls_ < polls_between_looks && !look_now_ && on_.coarse_now() - looked_ < most_between_looks)
        return false;
    polls_ = 0;
    looked_ = on_.coarse_now();
    return look();
}

RDMACORO_DECL bool signals::look() noexcept {
    // Real-time signals queue, and others may send them as fast as they are read.
    signalfd_siginfo batch[most_read];
    const ssize_t bytes = ::read(fd_, batch, sizeof batch);
    const std::size_t came = bytes > 0 ? static_cast<std::size_t>(bytes) / sizeof *batch : 0;
    look_now_ = look_always_ || came == most_read;
    if (came == 0) return false;
    for (const signalfd_siginfo& one : std::span(batch, came)) {
        if (one.ssi_signo <= most) ++came_[one.ssi_signo];
    }
    if (waiting_.empty() && !stop_.stop_requested()) stopper_ = batch[0].ssi_signo;
    hand_out();
    stop_.request_stop();
    return true;
}

RDMACORO_DECL void signals::hand_out() noexcept {
    if (stopper_ != 0 && token_asked_for_.load(std::memory_order_acquire))
        --came_[std::exchange(stopper_, 0)];
    for (int number = 1; number <= most && !waiting_.empty();) {
        std::uint32_t& left = came_[static_cast<std::size_t>(number)];
        if (left == 0) {
            ++number;
            continue;
        }
        --left;
        if (static_cast<std::uint32_t>(number) == stopper_) stopper_ = 0;
        next_operation* const first = waiting_.pop_front();
        first->number_ = number;
        first->complete();
    }
}

RDMACORO_DECL int signals::wake_fd() noexcept { return fd_; }

RDMACORO_DECL void signals::arm() noexcept { look_always_ = look_now_ = true; }

RDMACORO_DECL void signals::disarm() noexcept {
    look_always_ = false;
    look_now_ = true;
}

RDMACORO_DECL void signals::next_operation::start() noexcept {
    signals_->look_now_ = true;
    signals_->waiting_.push_back(*this);
    signals_->hand_out();
    static constexpr detail::wait_facts facts{"signals next", "no signal has come", next_actor::outside};
    if (!done()) park(*this, facts);
}

RDMACORO_DECL void signals::next_operation::cancel() noexcept {
    unlink();
    complete();
}

RDMACORO_DECL result<int> signals::next_operation::outcome() noexcept {
    if (number_ == 0) return errc::canceled;
    return number_;
}

}  // namespace rdmacoro
