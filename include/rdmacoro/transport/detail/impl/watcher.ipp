// Bodies of watcher.hpp.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_DECL watcher::watcher() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (epoll_ < 0) throw error(errc::no_resources, std::string("epoll: ") + std::strerror(errno));
}
RDMACORO_DECL watcher::~watcher() { ::close(epoll_); }

RDMACORO_DECL bool watcher::watch(fd_handler& handler, int fd, std::uint32_t events) noexcept {
    epoll_event wanted{};
    wanted.events = events;
    wanted.data.ptr = &handler;
    const int how = handler.watched == fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (::epoll_ctl(epoll_, how, fd, &wanted) != 0) return false;
    handler.watched = fd;
    forget(handler);  // the next look finds what it waits for now
    return true;
}

RDMACORO_DECL void watcher::unwatch(fd_handler& handler) noexcept {
    if (handler.watched < 0) return;
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, handler.watched, nullptr);
    handler.watched = -1;
    forget(handler);
}

/// It may be in the batch that is being called.
RDMACORO_DECL void watcher::forget(const fd_handler& handler) noexcept {
    for (std::size_t n = next_; n < ready_; ++n) {
        if (batch_[n].data.ptr == &handler) batch_[n].data.ptr = nullptr;
    }
}

RDMACORO_DECL unsigned watcher::look(bool& more) noexcept {
    constexpr auto most_time = std::chrono::microseconds(50);
    if (next_ == ready_) {
        const int ready = ::epoll_wait(epoll_, batch_.data(), static_cast<int>(batch_.size()), 0);
        ready_ = ready > 0 ? static_cast<std::size_t>(ready) : 0;
        next_ = 0;
    }
    more = false;
    if (ready_ == 0) return 0;
    const bool full = ready_ == batch_.size();
    const auto limit = std::chrono::steady_clock::now() + most_time;
    unsigned called = 0;
    while (next_ < ready_) {
        const epoll_event event = batch_[next_++];
        auto* handler = static_cast<fd_handler*>(event.data.ptr);
        if (handler == nullptr || handler->ready == nullptr) continue;
        handler->ready(*handler, event.events);
        ++called;
        if (std::chrono::steady_clock::now() > limit) break;
    }
    more = full || next_ < ready_;
    return called;
}

RDMACORO_DECL bool polled_watcher::look() noexcept {
    polls_ = 0;
    bool more = false;
    const bool any = watcher_.look(more) != 0;
    if (more) look_next();
    return any;
}

}  // namespace rdmacoro::detail
