// device: finding and opening an RDMA device, and its capabilities.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/verbs_rc/address.hpp>
#include <rdmacoro/transport/verbs_rc/error.hpp>
#include <rdmacoro/transport/verbs_rc/options.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ifaddrs.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>

namespace rdmacoro::detail::verbs {

/// Frees an object of the libraries by one of their functions.
template <auto Free>
struct freed_by {
    template <class T>
    void operator()(T* object) const noexcept {
        static_cast<void>(Free(object));
    }
};
inline void free_channel(rdma_event_channel* c) noexcept { ::rdma_destroy_event_channel(c); }
inline void free_device_list(ibv_device** l) noexcept { ::ibv_free_device_list(l); }
using unique_context = std::unique_ptr<ibv_context, freed_by<&ibv_close_device>>;
using unique_domain = std::unique_ptr<ibv_pd, freed_by<&ibv_dealloc_pd>>;
using unique_queue = std::unique_ptr<ibv_cq, freed_by<&ibv_destroy_cq>>;
using unique_completion_channel = std::unique_ptr<ibv_comp_channel, freed_by<&ibv_destroy_comp_channel>>;
using unique_receive_queue = std::unique_ptr<ibv_srq, freed_by<&ibv_destroy_srq>>;
using unique_queue_pair = std::unique_ptr<ibv_qp, freed_by<&ibv_destroy_qp>>;
using unique_registration = std::unique_ptr<ibv_mr, freed_by<&ibv_dereg_mr>>;
using unique_event_channel = std::unique_ptr<rdma_event_channel, freed_by<&free_channel>>;
using unique_device_list = std::unique_ptr<ibv_device*, freed_by<&free_device_list>>;

/// An IP address of this host that belongs to an RDMA device.
struct device_address {
    std::string device;
    unsigned port = 0;
    inet_endpoint address;
};

/// All such addresses that the connection manager knows.
[[nodiscard]] std::vector<device_address> device_addresses();

/// The devices of this host, for people: "rxe0 (10.99.0.1), siw0 (10.99.1.1)".
[[nodiscard]] std::string devices_text(const std::vector<device_address>& addresses);

/// The properties of a device's port that a connection needs: all of it may change while the device is open.
struct port_state {
    ibv_port_attr attributes{};
    ibv_gid gid{};
    std::uint8_t gid_index = 0;
    std::uint16_t partition_index = 0;
};

/// The other end of a connection, by which its packets find it.
struct path_end {
    std::uint16_t lid = 0;
    ibv_gid gid{};
};

/// How packets get from a port to `to`. They carry a global header over Ethernet, where it is the address, and over InfiniBand
/// where the port asks for one or `to` is in another subnet.
[[nodiscard]] RDMACORO_DECL ibv_ah_attr path_between(const port_state& from, std::uint8_t port,
                                                     const path_end& to,
                                                     const verbs_options& options) noexcept;

/// The exponent of the time after which an unacknowledged packet is sent again: as asked for, 0 if it was not; never less than
/// what the connection manager `derived` for the path.
[[nodiscard]] constexpr std::uint8_t acknowledge_timeout(unsigned asked, bool sends_for_ever,
                                                         std::uint8_t derived) noexcept {
    constexpr unsigned outage = 18;  // 1 s, seven times
    constexpr unsigned quick = 14;   // 67 ms
    const unsigned wanted = asked != 0 ? asked : sends_for_ever ? quick : outage;
    return static_cast<std::uint8_t>(std::min(31u, std::max<unsigned>(wanted, derived)));
}

/// Over RoCE a GID is an IP address.
[[nodiscard]] bool is_gid_of(const ibv_gid& gid, const inet_endpoint& at) noexcept;
/// That address, with port 0. No bytes: it names a hardware address (link-local), or nothing.
[[nodiscard]] inet_endpoint address_of_gid(const ibv_gid& gid) noexcept;

/// A device opened for one domain: its own context, so that its events are this domain's alone.
class device {
public:
    /// Throws `errc::unsupported` when there is no device, `errc::address_invalid` when there is no such device.
    explicit device(const verbs_options& options);

    [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
    [[nodiscard]] ibv_pd* domain() const noexcept { return domain_.get(); }
    [[nodiscard]] std::string name() const { return ::ibv_get_device_name(context_->device); }
    [[nodiscard]] const ibv_device_attr& attributes() const noexcept { return attributes_; }
    [[nodiscard]] const ibv_port_attr& port_attributes() const noexcept { return port_attributes_; }
    [[nodiscard]] std::uint8_t port() const noexcept { return port_; }
    [[nodiscard]] bool iwarp() const noexcept {
        return context_->device->transport_type == IBV_TRANSPORT_IWARP;
    }
    [[nodiscard]] bool atomics() const noexcept {
        return !iwarp() && attributes_.atomic_cap != IBV_ATOMIC_NONE;
    }
    /// Linux's RoCE device in software.
    [[nodiscard]] bool rxe() const noexcept {
        return attributes_.vendor_id == 0xffffff && attributes_.vendor_part_id == 0;
    }
    /// Whether it retries for ever when nothing is acknowledged.
    [[nodiscard]] bool retries_for_ever() const noexcept { return rxe(); }
    /// Or for minutes, as TCP does, which carries iWARP.
    [[nodiscard]] bool retries_for_long() const noexcept { return retries_for_ever() || iwarp(); }
    /// Whether an identifier of the connection manager is bound to this device.
    [[nodiscard]] bool has(const rdma_cm_id& id) const noexcept {
        return id.verbs != nullptr && std::strcmp(::ibv_get_device_name(context_->device),
                                                  ::ibv_get_device_name(id.verbs->device)) == 0;
    }
    /// False: it was taken away. Of one that is not in /sys, where this process sees another one, that is not known, and true.
    [[nodiscard]] bool listed() const noexcept;
    /// Whether it reports the end of a queue pair's last receive. Linux's devices in software, rxe and siw, do not; they need
    /// not, for they take nothing from the receive queue in advance.
    [[nodiscard]] bool tells_last_receive() const noexcept {
        const bool siw = attributes_.vendor_id == 0x626d74 && iwarp();
        return !rxe() && !siw;
    }
    /// By which a peer reaches it; no bytes: none.
    [[nodiscard]] const inet_endpoint& address() const noexcept { return address_; }
    /// The domain was opened with its address.
    [[nodiscard]] bool has_chosen_address() const noexcept { return !options_.address.empty(); }
    /// Looks for its address again: the interface may have another one by now, of `family` if there is one.
    void look_for_address(int family);
    /// Asks for the port's state and GID table. Of its GIDs the one of the domain's own address is taken, else that of `local`, by
    /// which the peer's host is reached, else of the device's first address, else any; always of the kind of `peer`, if that is not
    /// null. 0, or the number of an error.
    [[nodiscard]] int look_at_port(const inet_endpoint& local, const ibv_gid* peer,
                                   port_state& into) const noexcept;
    /// Whether links can share a receive queue. Over iWARP a message that finds the queue empty ends its connection: a peer that sends
    /// more than it has credit for would end those of others.
    [[nodiscard]] bool shares_receives() const noexcept {
        return options_.share_receives && !iwarp() && attributes_.max_srq > 0 && attributes_.max_srq_wr > 0;
    }
    /// Bytes that a work request can carry in itself.
    [[nodiscard]] std::uint32_t inline_limit() const noexcept { return inline_limit_; }
    /// Longest get or put of one work request; short enough to be waited for, and where only its end shows that the peer is alive.
    [[nodiscard]] std::uint32_t most_at_once() const noexcept;
    /// Gets and atomics that one link may have under way at the device, each way.
    [[nodiscard]] std::uint8_t read_depth() const noexcept;
    [[nodiscard]] int access_flags(access_rights rights) const noexcept;

private:
    [[nodiscard]] static std::string choose(const verbs_options& options,
                                            const std::vector<device_address>& addresses);

    [[nodiscard]] static unique_context open_by_name(const std::string& name);

    /// Port 0: any of its ports.
    [[nodiscard]] static bool active(const std::string& name, unsigned port);

    void open(const std::string& name, const std::vector<device_address>& addresses);
    [[nodiscard]] bool in_sys() const noexcept;

    [[nodiscard]] bool port_is_active(unsigned port) const noexcept;
    void choose_port(const verbs_options& options, const std::vector<device_address>& addresses);

    void choose_gid(const inet_endpoint& local, const ibv_gid* peer, port_state& into) const noexcept;
    [[nodiscard]] int choose_partition(port_state& into) const noexcept;

    /// Finds the longest inline message by trial: devices refuse longer ones, and some report another limit than they have.
    void probe_inline(const verbs_options& options);

    unique_context context_;
    unique_domain domain_;
    ibv_device_attr attributes_{};
    ibv_port_attr port_attributes_{};
    bool was_listed_ = false;  // when it was opened
    std::uint8_t port_ = 0;
    inet_endpoint address_;
    std::uint32_t inline_limit_ = 0;
    verbs_options options_;
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/device.ipp>
#endif
