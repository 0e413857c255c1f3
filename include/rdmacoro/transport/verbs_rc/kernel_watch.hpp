// kernel_watch: learns from the kernel that addresses of this host's network interfaces, or devices, come and go.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>

#include <cstdint>

namespace rdmacoro::detail::verbs {

enum class kernel_report : std::uint8_t { addresses, devices };

/// Calls `changed(owner)` after reports, once for all that there are by then. They are not looked into, and some may be lost: the owner
/// looks at what there is. The connection manager reports no address that comes or goes; and of a device that the administrator takes
/// away its own descriptors report nothing where its driver waits for its users, as those of Linux's devices in software do.
class kernel_watch : private fd_handler {
public:
    using function = void (*)(void* owner) noexcept;

    kernel_watch(polled_watcher& watching, void* owner, function changed) noexcept;
    kernel_watch(const kernel_watch&) = delete;
    kernel_watch& operator=(const kernel_watch&) = delete;
    ~kernel_watch();

    /// Once. False: the kernel does not report to this process; `errno` is the reason.
    bool open(kernel_report what) noexcept;

private:
    void read() noexcept;

    polled_watcher& watching_;
    void* owner_;
    function changed_;
    int socket_ = -1;
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/kernel_watch.ipp>
#endif
