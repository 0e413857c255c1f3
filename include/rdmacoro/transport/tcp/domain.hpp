// tcp_domain: the tcp transport opened on one scheduler.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/memory/bytes.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/transport/tcp/listener.hpp>
#include <rdmacoro/transport/tcp/options.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace rdmacoro {

/// One io_uring, polled by one scheduler, and the regions that its peers may reach. Links, listeners, connections and
/// regions must be destroyed before it. Any number may exist; one for each scheduler is fastest.
class tcp_domain final : private progress_source {
public:
    /// Throws `errc::unsupported`, `errc::permission_denied` or `errc::no_resources` when the kernel gives no io_uring.
    explicit tcp_domain(scheduler& owner, const tcp_options& options = {});
    tcp_domain(const tcp_domain&) = delete;
    tcp_domain& operator=(const tcp_domain&) = delete;
    RDMACORO_DECL ~tcp_domain() override;

    /// Completes when the peer has greeted. `address` is "host:port" or "[v6]:port", with or without "tcp://"; all addresses
    /// of a host are tried in turn. Ends with `errc::address_invalid`, `errc::connection_refused`, `errc::timed_out`,
    /// `errc::version_mismatch`, `errc::protocol_violation` (something else listens there), or `errc::canceled`.
    [[nodiscard]] task<tcp_connection> connect(std::string_view address);

    /// Completes when the socket listens. Port 0 takes any free one; no host, or `*`, means all of this host's addresses, of
    /// both families. A port that is taken is tried again for 200 ms, as that of a process that was killed comes free some
    /// milliseconds after its end.
    /// Ends with `errc::address_in_use`, `errc::address_invalid`, `errc::permission_denied`, `errc::no_resources`, or `errc::canceled` at any time.
    [[nodiscard]] task<tcp_listener> listen(std::string_view address);

    /// Opens `memory` to peers that know the region's key. Throws `errc::no_resources` when 65,536 regions exist.
    [[nodiscard]] region register_memory(std::span<std::byte> memory, access_rights rights);

    /// The same for the elements of a vector, array or span of another trivially copyable type.
    template <detail::other_range_to_write Range>
    [[nodiscard]] region register_memory(Range&& elements, access_rights rights) {
        return register_memory(detail::range_bytes(elements), rights);
    }

    [[nodiscard]] scheduler& owner() noexcept;

    /// For people: which features of the kernel are in use.
    [[nodiscard]] std::string describe() const;

    /// Sockets in use, including closed ones that the kernel still holds.
    [[nodiscard]] std::size_t sockets() const noexcept;
    /// Regions that peers can reach now.
    [[nodiscard]] std::size_t registered() noexcept;
    /// Blocks of memory in use by links and by readers of lent messages, 64 KiB each.
    [[nodiscard]] std::size_t chunks() noexcept;

    /// System calls for sending and receiving so far. None is made for links that are idle.
    [[nodiscard]] std::uint64_t system_calls() const noexcept;

private:
    RDMACORO_DECL bool poll() noexcept override;
    RDMACORO_DECL int wake_fd() noexcept override;
    RDMACORO_DECL void arm() noexcept override;
    RDMACORO_DECL void disarm() noexcept override;

    detail::tcp_engine* engine_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/domain.ipp>
#endif
