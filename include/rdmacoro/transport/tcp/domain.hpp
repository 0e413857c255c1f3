// tcp_domain: the tcp transport opened on one scheduler.
#pragma once

#include <rdmacoro/transport/tcp/listener.hpp>

#include <string>
#include <string_view>

namespace rdmacoro {

/// One io_uring, polled by one scheduler, and the regions that its peers may reach. Links, listeners, connections and
/// regions must be gone before it. Make as many as you like; one for each scheduler is what is fast.
class tcp_domain final : private progress_source {
public:
    /// Throws `errc::unsupported`, `errc::permission_denied` or `errc::no_resources` when the kernel gives no io_uring.
    explicit tcp_domain(scheduler& owner, const tcp_options& options = {}) : engine_(owner, options) {
        owner.add_source(*this);
    }
    ~tcp_domain() override { engine_.owner().remove_source(*this); }

    /// Completes when the peer has greeted. `address` is "host:port" or "[v6]:port", with or without "tcp://"; all addresses
    /// of a host are tried in turn. Ends with `errc::address_invalid`, `errc::connection_refused`, `errc::timed_out`,
    /// `errc::version_mismatch`, `errc::protocol_violation` (something else listens there), or `errc::canceled`.
    [[nodiscard]] task<tcp_connection> connect(std::string_view address) {
        return detail::connect_tcp(engine_, detail::parse_tcp_address(address));
    }

    /// Completes when the socket listens. Port 0 takes any free one; no host, or `*`, means all of this host's addresses.
    /// Ends with `errc::address_in_use`, `errc::address_invalid`, `errc::permission_denied`, or `errc::canceled`.
    [[nodiscard]] task<tcp_listener> listen(std::string_view address) {
        return detail::listen_tcp(engine_, detail::parse_tcp_address(address));
    }

    /// Opens `memory` to peers that know the region's key. Throws `errc::no_resources` when 65,536 regions exist.
    [[nodiscard]] region register_memory(std::span<std::byte> memory, access_rights rights) {
        return region(engine_, memory, engine_.regions().add(memory, rights));
    }

    [[nodiscard]] scheduler& owner() noexcept { return engine_.owner(); }

    /// For people: which features of the kernel are in use.
    [[nodiscard]] std::string describe() const { return engine_.describe(); }

    /// Sockets that are open, those included that the kernel has not let go of yet.
    [[nodiscard]] std::size_t sockets() const noexcept { return engine_.sockets(); }
    /// Regions that peers can reach now.
    [[nodiscard]] std::size_t registered() noexcept { return engine_.regions().registered(); }
    /// Blocks of memory in use by links and by readers of kept messages, 64 KiB each.
    [[nodiscard]] std::size_t chunks() noexcept { return engine_.chunks().in_use(); }

private:
    bool poll() noexcept override { return engine_.poll(); }
    int wake_fd() noexcept override { return engine_.wake_fd(); }
    void arm() noexcept override { engine_.arm(); }
    void disarm() noexcept override { engine_.disarm(); }

    detail::tcp_engine engine_;
};

}  // namespace rdmacoro
