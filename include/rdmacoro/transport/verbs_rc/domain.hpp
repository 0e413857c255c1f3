// verbs_domain: the verbs transport opened on one scheduler.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/bytes.hpp>
#include <rdmacoro/transport/verbs_rc/listener.hpp>

#include <string>
#include <string_view>

namespace rdmacoro {

/// One device, opened for one scheduler. Links, listeners, connections, regions and lent messages must be destroyed before it.
class verbs_domain final : private progress_source {
public:
    /// Throws `errc::unsupported` when this host has no device, `errc::address_invalid` when it has none of that name
    /// or address, `errc::permission_denied` when the process has no permission to open it, `errc::no_resources`, or
    /// `errc::invalid_argument`. The texts name the devices that exist.
    explicit verbs_domain(scheduler& owner, const verbs_options& options = verbs_options::from_environment())
        : engine_(owner, options) {
        owner.add_source(*this);
    }
    ~verbs_domain() override { engine_.owner().remove_source(*this); }

    /// Awaitable.
    /// Completes: when the two queue pairs are connected. `address` is "host:port" or "[v6]:port", with or without
    ///     "verbs://"; all addresses of a host are tried in turn.
    /// Buffers: none; the address is copied.
    /// Concurrency: any number at a time.
    /// Errors: `errc::address_invalid`, `errc::connection_refused`, `errc::timed_out`, `errc::version_mismatch`,
    ///     `errc::protocol_violation` (something else listens there), `errc::no_resources`, `errc::unsupported` (the device was
    ///     taken away, and this domain has no use any more).
    /// Cancellation: at any time.
    /// Example:
    ///     rdmacoro::verbs_connection made = co_await domain.connect("10.0.0.2:7471");
    [[nodiscard]] task<verbs_connection> connect(std::string_view address) {
        return detail::verbs::connect(engine_, detail::verbs::parse_address(address));
    }

    /// Awaitable.
    /// Completes: when the device listens. Port 0 takes any free one; no host, or `*`, means the device's own address by
    ///     the connection manager, and by TCP all of this host's addresses of one family: `address()` is then of no use to other hosts.
    /// Buffers: none; the address is copied.
    /// Concurrency: any number at a time.
    /// Errors: `errc::address_in_use`, `errc::address_invalid`, `errc::permission_denied`, `errc::unsupported` as for `connect`.
    /// Cancellation: while a name is looked up.
    /// Example:
    ///     rdmacoro::verbs_listener listening = co_await domain.listen("*:7471");
    [[nodiscard]] task<verbs_listener> listen(std::string_view address) {
        return detail::verbs::listen(engine_, detail::verbs::parse_address(address));
    }

    /// Opens `memory` to peers that know the region's key. Throws `errc::no_resources`, where a limit is the reason with its
    /// figure and how to raise it, or `errc::invalid_argument` when the memory is not mapped.
    [[nodiscard]] region register_memory(std::span<std::byte> memory, access_rights rights) {
        detail::require_thread_of(&engine_.owner(), "memory for", "was registered");
        return region(engine_, memory, engine_.regions().add(memory, rights));
    }

    /// The same for the elements of a vector, array or span of another trivially copyable type.
    template <detail::other_range_to_write Range>
    [[nodiscard]] region register_memory(Range&& elements, access_rights rights) {
        return register_memory(detail::range_bytes(elements), rights);
    }

    [[nodiscard]] scheduler& owner() noexcept { return engine_.owner(); }

    /// For people: "rxe0 port 1, rdma_cm at 10.0.0.1, MTU 4096, 768 KiB locked for each link, at most 1024 links, inline 256".
    [[nodiscard]] std::string describe();
    /// Its device was taken away: nothing can be opened by this domain any more.
    [[nodiscard]] bool broken() const noexcept { return engine_.broken(); }
    /// The device's port that it uses.
    [[nodiscard]] unsigned port() noexcept { return engine_.device().port(); }
    /// The device's name, such as mlx5_0.
    [[nodiscard]] std::string device_name() { return engine_.device().name(); }

    /// Counts of all links so far.
    [[nodiscard]] verbs_counts counts() noexcept { return engine_.counts(); }
    /// Connections in any state, closed ones that the device has not released yet included.
    [[nodiscard]] std::size_t connections() const noexcept { return engine_.connections(); }
    /// Regions that peers can reach now.
    [[nodiscard]] std::size_t registered() noexcept { return engine_.regions().registered(); }
    /// The counts of its registration cache.
    [[nodiscard]] registration_cache_statistics cache_statistics() noexcept {
        return engine_.cache().statistics();
    }

private:
    bool poll() noexcept override { return engine_.poll(); }
    int wake_fd() noexcept override { return engine_.wake_fd(); }
    void arm() noexcept override { engine_.arm(); }
    void disarm() noexcept override { engine_.disarm(); }

    detail::verbs::engine engine_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/domain.ipp>
#endif
