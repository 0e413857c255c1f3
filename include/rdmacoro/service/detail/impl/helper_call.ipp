// The thread of a helper_call, and how it meets the operation.
#pragma once

#include <rdmacoro/coro/detail/signals_blocked.hpp>
#include <rdmacoro/service/detail/helper_call.hpp>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include <sys/eventfd.h>
#include <unistd.h>

namespace rdmacoro::detail {

/// Of the operation and its thread; whichever is last destroys it.
struct helper_call::shared : posted_node {
    shared() : stop_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (stop_fd < 0) throw std::system_error(errno, std::system_category(), "eventfd");
    }
    shared(const shared&) = delete;
    shared& operator=(const shared&) = delete;
    ~shared() { ::close(stop_fd); }

    int stop_fd;
    time_point until{};
    std::function<void(const patience&)> work;
    std::exception_ptr failure;
    std::mutex lock;
    scheduler* owner = nullptr;
    helper_call* of = nullptr;  // under the lock; nullptr: it has gone
    bool posted = false;        // under the lock
};

RDMACORO_COLD void helper_call::start() noexcept {
    try {
        shared_ = std::make_shared<shared>();
        shared_->work = std::move(work_);
        shared_->until = until_;
        shared_->owner = &owner();
        shared_->of = this;
        shared_->call = &arrived;
        const signals_blocked for_thread;
        thread_ = std::thread([with = shared_] { run(with); });
    } catch (...) {
        failure_ = std::current_exception();
        shared_.reset();
        complete();
        return;
    }
    park(*this, helper_call_facts);
}

RDMACORO_COLD void helper_call::run(const std::shared_ptr<shared>& with) noexcept {
    try {
        with->work(patience(with->until, with->stop_fd));
    } catch (...) {
        with->failure = std::current_exception();
    }
    with->work = nullptr;  // what it owns ends here, before the operation
    const std::lock_guard held(with->lock);
    if (with->of == nullptr) return;
    with->posted = true;
    with->owner->post(*with);
}

RDMACORO_COLD void helper_call::arrived(posted_node& at) noexcept {
    helper_call& self = *static_cast<shared&>(at).of;
    self.thread_.join();  // it needs the scheduler no more
    self.failure_ = std::move(self.shared_->failure);
    self.shared_.reset();
    self.unlink();
    self.complete();
}

RDMACORO_COLD void helper_call::cancel() noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(::write(shared_->stop_fd, &one, sizeof one));
    if (!may_hang_) return;
    {
        const std::lock_guard held(shared_->lock);
        if (shared_->posted) return;  // its end is on its way
        shared_->of = nullptr;
    }
    thread_.detach();
    shared_.reset();
    canceled_ = true;
    unlink();
    complete();
}

RDMACORO_COLD result<void> helper_call::outcome() noexcept {
    if (canceled_ || failure_) return errc::canceled;
    return {};
}

RDMACORO_COLD void helper_call::throw_failure() const {
    if (failure_) std::rethrow_exception(failure_);
    throw_error(errc::canceled);
}

}  // namespace rdmacoro::detail
