// exchange_listener: a TCP socket that accepts connections for an exchange of connect_info.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/detail/link_timer.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>

#include <chrono>

namespace rdmacoro::detail {

/// Hands each accepted descriptor to `came(owner, fd)`, which must close it. While this process or system has no descriptor for
/// one more, connections wait in the kernel's queue, and the listener tries again after a pause.
class exchange_listener : private fd_handler {
public:
    using function = void (*)(void* owner, int fd) noexcept;

    /// How long it waits for a descriptor to be closed.
    static constexpr duration pause = std::chrono::milliseconds(50);

    exchange_listener(scheduler& by, polled_watcher& watching, void* owner, function came) noexcept;
    exchange_listener(const exchange_listener&) = delete;
    exchange_listener& operator=(const exchange_listener&) = delete;
    ~exchange_listener();

    /// Nullptr, or the step that failed: `errno` is the reason.
    [[nodiscard]] const char* listen(const inet_endpoint& at, unsigned queue) noexcept;
    /// Listens no more: connects to it are refused. Not from within `came`.
    void close() noexcept;
    /// With the real port.
    [[nodiscard]] inet_endpoint address() const noexcept { return inet_endpoint::local(socket_); }

private:
    void accept() noexcept;
    void try_again() noexcept;

    polled_watcher& watching_;
    void* owner_;
    function came_;
    int socket_ = -1;
    link_timer again_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/exchange_listener.ipp>
#endif
