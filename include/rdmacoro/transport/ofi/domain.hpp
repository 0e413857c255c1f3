// ofi_domain: the libfabric transport opened on one scheduler.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/bytes.hpp>
#include <rdmacoro/transport/ofi/listener.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace rdmacoro {

/// The common part of domains of all profiles. Links, listeners, connections, regions and lent messages must be destroyed
/// before it.
class ofi_domain_base : private progress_source {
public:
    /// Awaitable.
    /// Completes: when the two endpoints know each other. `address` is "host:port" or "[v6]:port", with or without the
    ///     profile's scheme; all addresses of a host are tried in turn.
    /// Buffers: none; the address is copied.
    /// Concurrency: any number at a time.
    /// Errors: `errc::address_invalid`, `errc::connection_refused`, `errc::timed_out`, `errc::version_mismatch`,
    ///     `errc::protocol_violation` (something else listens there), `errc::no_resources` (also where the domain is broken, or the
    ///     provider takes too few receives for one more link: the text says which).
    /// Cancellation: at any time.
    /// Example:
    ///     rdmacoro::ofi_connection made = co_await domain.connect("10.0.0.2:7471");
    [[nodiscard]] task<ofi_connection> connect(std::string_view address) {
        return detail::fabric::connect(engine_, detail::fabric::parse_address(engine_.scheme(), address));
    }

    /// Awaitable.
    /// Completes: when the domain listens. Port 0 takes any free one; no host, or `*`, means all of this host's addresses
    ///     of one family alone, the first that the system names, which is IPv4 as a rule.
    /// Buffers: none; the address is copied.
    /// Concurrency: any number at a time.
    /// Errors: `errc::address_in_use`, `errc::address_invalid`, `errc::permission_denied`.
    /// Cancellation: while a name is looked up.
    /// Example:
    ///     rdmacoro::ofi_listener listening = co_await domain.listen("*:7471");
    [[nodiscard]] task<ofi_listener> listen(std::string_view address) {
        return detail::fabric::listen(engine_, detail::fabric::parse_address(engine_.scheme(), address));
    }

    /// Opens `memory` to peers that know the region's key. Where the provider counts by offsets, the region's address is one.
    /// Throws `errc::no_resources`, where a limit is the reason with how to raise it, or `errc::invalid_argument`.
    [[nodiscard]] region register_memory(std::span<std::byte> memory, access_rights rights) {
        detail::require_thread_of(&engine_.owner(), "memory for", "was registered");
        return engine_.regions().add(engine_, memory, rights);
    }

    /// The same for the elements of a vector, array or span of another trivially copyable type.
    template <detail::other_range_to_write Range>
    [[nodiscard]] region register_memory(Range&& elements, access_rights rights) {
        return register_memory(detail::range_bytes(elements), rights);
    }

    /// Throws `errc::unsupported`, with the reason, where messages of `provider_matched` are not left to this provider, or this version of
    /// libfabric. `connect` and `listen` of such endpoints call it.
    void require_matching();

    [[nodiscard]] scheduler& owner() noexcept { return engine_.owner(); }

    /// For people: "tcp;ofi_rxm on eth0 at fi_sockaddr_in://10.0.0.1:4711, inject 64".
    [[nodiscard]] std::string describe();
    /// The last failure that the provider reported for this domain, in its words: of an operation, or what broke the domain. Empty:
    /// none. A link that ended with `errc::peer_lost` may have ended for it.
    [[nodiscard]] std::string last_failure() const { return engine_.last_failure(); }
    /// The profile that the domain was opened with: for `provider::any`, the chosen one.
    [[nodiscard]] const ofi_profile& profile() noexcept { return engine_.device().profile(); }

    /// Counts of all links so far.
    [[nodiscard]] ofi_counts counts() noexcept { return engine_.counts(); }
    /// Counts of the provider itself, if `ofi_options::counters` asked for them; nothing otherwise. The provider makes progress
    /// meanwhile: not to be called for each message.
    [[nodiscard]] std::optional<ofi_provider_counts> provider_counts() noexcept;
    /// Connections in any state, closing ones included.
    [[nodiscard]] std::size_t connections() const noexcept { return engine_.connections(); }
    /// Regions that peers can reach now.
    [[nodiscard]] std::size_t registered() noexcept { return engine_.regions().registered(); }
    /// The counts of its registration cache.
    [[nodiscard]] registration_cache_statistics cache_statistics() noexcept {
        return engine_.cache().statistics();
    }

protected:
    /// Opens the provider; throws `rdmacoro::error`.
    ofi_domain_base(scheduler& owner, const ofi_profile& profile, const ofi_options& options)
        : engine_(owner, profile, options) {
        owner.add_source(*this);
    }
    ~ofi_domain_base() override { engine_.owner().remove_source(*this); }

private:
    bool poll() noexcept override { return engine_.poll(); }
    int wake_fd() noexcept override { return engine_.wake_fd(); }
    void arm() noexcept override { engine_.arm(); }
    void disarm() noexcept override { engine_.disarm(); }

    detail::fabric::engine engine_;
};

/// One provider, opened for one scheduler.
template <const ofi_profile& Profile>
class ofi_domain final : public ofi_domain_base {
public:
    /// Throws `errc::unsupported` when libfabric has no such provider here (the text lists the providers it has), or
    /// when the provider differs from its profile, with the field; `errc::no_resources`, or `errc::invalid_argument`; over shm
    /// `std::errc::device_or_resource_busy` when a killed process with this one's number has left its memory behind.
    explicit ofi_domain(scheduler& owner, const ofi_options& options = {})
        : ofi_domain_base(owner, Profile, options) {}
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/domain.ipp>
#endif
