// Descriptors that a domain watches beside its network: the sockets that links open with, and descriptors that wake a
// sleeping scheduler.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <sys/epoll.h>

namespace rdmacoro::detail {

/// A function to call when a descriptor is ready. Lives with the descriptor's owner, which unwatches it before it goes.
struct fd_handler {
    using function = void (*)(fd_handler& self, std::uint32_t events) noexcept;
    function ready = nullptr;  // nullptr: it only wakes
    int watched = -1;
};

/// One epoll descriptor.
class watcher {
public:
    /// Throws `errc::no_resources`.
    watcher();
    watcher(const watcher&) = delete;
    watcher& operator=(const watcher&) = delete;
    ~watcher();

    [[nodiscard]] int descriptor() const noexcept { return epoll_; }

    /// Calls `handler.ready` when `fd` has one of `events`; level-triggered. False: `errno` is the reason.
    [[nodiscard]] bool watch(fd_handler& handler, int fd, std::uint32_t events) noexcept;
    void unwatch(fd_handler& handler) noexcept;

    /// Calls the handlers of ready descriptors, once each, for 50 us or one of them, and returns how many there were. `more`: there may
    /// be others; the next look goes on with them.
    [[nodiscard]] unsigned look(bool& more) noexcept;

private:
    void forget(const fd_handler& handler) noexcept;

    int epoll_;
    std::array<epoll_event, 16> batch_{};
    std::size_t ready_ = 0;  // of the batch
    std::size_t next_ = 0;   // the first of these that is not called yet
};

/// A watcher that its domain looks at between polls of the network: after a few of them while an event is awaited, such as
/// the next step of an opening, and seldom else; however long the turns between polls take, at least each millisecond or turn.
class polled_watcher {
public:
    [[nodiscard]] int descriptor() const noexcept { return watcher_.descriptor(); }
    [[nodiscard]] bool watch(fd_handler& handler, int fd, std::uint32_t events) noexcept {
        return watcher_.watch(handler, fd, events);
    }
    void unwatch(fd_handler& handler) noexcept { watcher_.unwatch(handler); }

    /// Counts one poll of the network. True: it is time to `look`. `soon`: the domain itself awaits an event. `now` is
    /// `scheduler::coarse_now()`.
    [[nodiscard]] bool due(bool soon, time_point now) noexcept {
        const unsigned most = soon || awaited_ != 0 ? polls_between_looks_soon : polls_between_looks;
        if (++polls_ < most && now - looked_ < between_looks) return false;
        looked_ = now;
        return true;
    }
    /// True: handlers were called.
    bool look() noexcept;
    /// The next poll is followed by a look.
    void look_next() noexcept { polls_ = polls_between_looks; }

private:
    friend class awaited_event;
    static constexpr unsigned polls_between_looks = 256;
    static constexpr unsigned polls_between_looks_soon = 4;
    static constexpr duration between_looks = std::chrono::milliseconds(1);

    watcher watcher_;
    unsigned awaited_ = 0;
    unsigned polls_ = 0;
    time_point looked_{};
};

/// While it is begun, its `polled_watcher` looks often.
class awaited_event {
public:
    explicit awaited_event(polled_watcher& by) noexcept : by_(by) {}
    awaited_event(const awaited_event&) = delete;
    awaited_event& operator=(const awaited_event&) = delete;
    ~awaited_event() { end(); }

    void begin() noexcept {
        if (!begun_) ++by_.awaited_;
        begun_ = true;
    }
    void end() noexcept {
        if (begun_) --by_.awaited_;
        begun_ = false;
    }

private:
    polled_watcher& by_;
    bool begun_ = false;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/watcher.ipp>
#endif
