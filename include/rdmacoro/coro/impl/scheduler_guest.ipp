// The scheduler as a guest of another event loop.
#pragma once

#include <rdmacoro/coro/impl/scheduler.ipp>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <sys/epoll.h>
#include <unistd.h>

namespace rdmacoro {

RDMACORO_COLD bool scheduler::poll() noexcept {
    constexpr int most_turns = 16;
    constexpr int most_empty_turns = 4;  // beginning a poll costs as much as these
    const run_scope current(*this);
    look();  // the caller may have waited
    turns_to_look_ = 0;
    const time_point began = seen_;
    int turns = 0;
    for (int empty = 0; turns < most_turns && empty < most_empty_turns && seen_ - began < slice;) {
        if (one_turn()) {
            ++turns;
        } else if (turns == 0) {
            ++empty;
        } else {
            break;
        }
    }
    return turns != 0;
}

RDMACORO_COLD int scheduler::descriptor() {
    if (outside_fd_ < 0) {
        epoll_event posts{};
        posts.events = EPOLLIN;
        const int made = make_wake_fd() ? ::epoll_create1(EPOLL_CLOEXEC) : -1;
        if (made < 0 || ::epoll_ctl(made, EPOLL_CTL_ADD, wake_fd_, &posts) != 0) {
            if (made >= 0) ::close(made);
            detail::throw_error(errc::no_resources, "scheduler::descriptor: no eventfd or epoll instance");
        }
        outside_fd_ = made;
        // The first wait may be in the middle of a program's work, which is not to allocate. Where memory is short that wait asks again.
        constexpr std::size_t usual_sources = 8;
        static_cast<void>(watched_.try_reserve(usual_sources));
    }
    return outside_fd_;
}

RDMACORO_COLD duration scheduler::prepare_to_wait() {
    static_cast<void>(descriptor());
    const run_scope current(*this);
    if (!idle_->may_park()) return duration::zero();
    if (!timers_.empty() && time_->advance_to(timers_.earliest())) return duration::zero();
    waits_outside_ = true;
    parked_.store(true, std::memory_order_seq_cst);
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) s->arm();
    // As in `park`: work that came before the arming is found here.
    turns_to_look_ = 0;
    bool may_wait = posted_.load(std::memory_order_seq_cst) == nullptr && !one_turn() && watch_sources();
    duration limit = duration::max();
    if (may_wait && !timers_.empty()) {
        limit = timers_.earliest() - time_->now();
        may_wait = limit > duration::zero();
    }
    if (may_wait) return limit;
    end_wait_outside();
    return duration::zero();
}

/// True when all sources can wake the other event loop.
RDMACORO_COLD bool scheduler::watch_sources() noexcept {
    // Added each time: a descriptor that was closed has left the set, and its number may be another one's by now.
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) {
        const int fd = s->wake_fd();
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        if (fd < 0) return false;
        if (::epoll_ctl(outside_fd_, EPOLL_CTL_ADD, fd, &wanted) == 0) {
            bool known = false;
            for (const int other : watched_) known |= other == fd;
            if (!known && !watched_.try_push_back(fd)) {
                ::epoll_ctl(outside_fd_, EPOLL_CTL_DEL, fd, nullptr);
                return false;
            }
        } else if (errno != EEXIST) {
            return false;
        }
    }
    for (std::size_t at = watched_.size(); at-- > 0;) {
        bool used = false;
        for (progress_source* s = sources_.front(); s != nullptr && !used; s = sources_.next(*s))
            used = s->wake_fd() == watched_[at];
        if (used) continue;
        ::epoll_ctl(outside_fd_, EPOLL_CTL_DEL, watched_[at], nullptr);
        watched_.erase(at);
    }
    return true;
}

RDMACORO_COLD void scheduler::end_wait_outside() noexcept {
    waits_outside_ = false;
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) s->disarm();
    parked_.store(false, std::memory_order_relaxed);
    std::uint64_t drained = 0;
    [[maybe_unused]] const auto taken = ::read(wake_fd_, &drained, sizeof drained);
    if (wait_ended_ != nullptr) wait_ended_(wait_ended_context_);
}

RDMACORO_COLD void scheduler::wake_outside() noexcept {
    if (!waits_outside_) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
}

}  // namespace rdmacoro
