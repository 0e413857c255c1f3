// address_watch: learns from the kernel that addresses of this host's network interfaces come and go.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>

namespace rdmacoro::detail::verbs {

/// Calls `changed(owner)` after changes, once for all that the kernel has reported by then. The connection manager reports none of
/// them.
class address_watch : private fd_handler {
public:
    using function = void (*)(void* owner) noexcept;

    address_watch(polled_watcher& watching, void* owner, function changed) noexcept;
    address_watch(const address_watch&) = delete;
    address_watch& operator=(const address_watch&) = delete;
    ~address_watch();

    /// False: the kernel does not report to this process; `errno` is the reason.
    bool open() noexcept;

private:
    void read() noexcept;

    polled_watcher& watching_;
    void* owner_;
    function changed_;
    int socket_ = -1;
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/address_watch.ipp>
#endif
