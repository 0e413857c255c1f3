// Descriptors that a domain watches beside its network: the sockets that links begin with, and what wakes a scheduler that
// sleeps.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <sys/epoll.h>
#include <unistd.h>

namespace rdmacoro::detail {

/// Something to call when a descriptor is ready. Lives with the descriptor's owner; unwatched before it goes.
struct fd_handler {
    using function = void (*)(fd_handler& self, std::uint32_t events) noexcept;
    function ready = nullptr;  // nullptr: it only wakes
    int watched = -1;
};

/// One epoll descriptor.
class watcher {
public:
    /// Throws `errc::no_resources`.
    watcher() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
        if (epoll_ < 0) throw error(errc::no_resources, std::string("epoll: ") + std::strerror(errno));
    }
    watcher(const watcher&) = delete;
    watcher& operator=(const watcher&) = delete;
    ~watcher() { ::close(epoll_); }

    [[nodiscard]] int descriptor() const noexcept { return epoll_; }

    /// Calls `handler.ready` when `fd` has one of `events`; level-triggered. False: `errno` says why not.
    [[nodiscard]] bool watch(fd_handler& handler, int fd, std::uint32_t events) noexcept {
        epoll_event wanted{};
        wanted.events = events;
        wanted.data.ptr = &handler;
        const int how = handler.watched == fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        if (::epoll_ctl(epoll_, how, fd, &wanted) != 0) return false;
        handler.watched = fd;
        return true;
    }
    void unwatch(fd_handler& handler) noexcept {
        if (handler.watched < 0) return;
        ::epoll_ctl(epoll_, EPOLL_CTL_DEL, handler.watched, nullptr);
        handler.watched = -1;
        for (epoll_event& event : batch_) {
            if (event.data.ptr == &handler)
                event.data.ptr = nullptr;  // it may be in the batch that is being called
        }
    }

    /// Calls who is ready, and answers how many were. `more`: there may be others.
    [[nodiscard]] unsigned look(bool& more) noexcept {
        const int ready = ::epoll_wait(epoll_, batch_.data(), static_cast<int>(batch_.size()), 0);
        unsigned called = 0;
        for (int i = 0; i < ready; ++i) {
            const epoll_event event = batch_[static_cast<std::size_t>(i)];
            auto* handler = static_cast<fd_handler*>(event.data.ptr);
            if (handler == nullptr || handler->ready == nullptr) continue;
            handler->ready(*handler, event.events);
            ++called;
        }
        for (epoll_event& event : batch_) event.data.ptr = nullptr;
        more = ready == static_cast<int>(batch_.size());
        return called;
    }

private:
    int epoll_;
    std::array<epoll_event, 16> batch_{};
};

}  // namespace rdmacoro::detail
