// Bodies of device.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/device.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD std::vector<device_address> device_addresses() {
    std::vector<device_address> found;
    const unique_event_channel channel(::rdma_create_event_channel());
    ifaddrs* all = nullptr;
    if (channel == nullptr || ::getifaddrs(&all) != 0) return found;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        const inet_endpoint address = endpoint_of(one->ifa_addr);
        if (address.bytes == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
        rdma_cm_id* id = nullptr;
        if (::rdma_create_id(channel.get(), &id, nullptr, RDMA_PS_TCP) != 0) break;
        inet_endpoint bound = address;
        if (::rdma_bind_addr(id, bound.get()) == 0 && id->verbs != nullptr)
            found.push_back({::ibv_get_device_name(id->verbs->device), id->port_num, address});
        ::rdma_destroy_id(id);
    }
    ::freeifaddrs(all);
    return found;
}

RDMACORO_COLD std::string devices_text(const std::vector<device_address>& addresses) {
    int count = 0;
    const unique_device_list list(::ibv_get_device_list(&count));
    std::string text;
    for (int i = 0; list != nullptr && i < count; ++i) {
        const std::string name = ::ibv_get_device_name(list.get()[i]);
        if (!text.empty()) text += ", ";
        text += name + " (";
        bool any = false;
        for (const device_address& a : addresses) {
            if (a.device != name) continue;
            std::string host = a.address.text();
            host.resize(host.rfind(':'));
            text += (any ? ", " : "") + host;
            any = true;
        }
        text += any ? ")" : "no IP address)";
    }
    return text.empty() ? "none" : text;
}

RDMACORO_COLD device::device(const verbs_options& options) : options_(options) {
    const std::vector<device_address> addresses = device_addresses();
    const std::string name = choose(options, addresses);
    open(name, addresses);
    choose_port(options, addresses);
    if (options.gid_index >= port_attributes_.gid_tbl_len)
        throw error(errc::address_invalid, "verbs: port " + std::to_string(port_) + " of " + name +
                                               " has no GID of index " + std::to_string(options.gid_index));
    port_state now;
    if (look_at_port(address_, nullptr, now) == ENOKEY)
        throw error(errc::address_invalid, "verbs: port " + std::to_string(port_) + " of " + name +
                                               " is not in the partition " +
                                               std::to_string(options.partition_key));
    domain_.reset(::ibv_alloc_pd(context_.get()));
    if (domain_ == nullptr) throw_system("verbs: protection domain of " + name, errno);
    probe_inline(options);
}

RDMACORO_COLD std::uint32_t device::most_at_once() const noexcept {
    if (retries_for_ever()) return 1u << 16;
    const std::uint32_t most = iwarp() ? 1u << 18 : 1u << 20;
    return port_attributes_.max_msg_sz != 0 ? std::min(port_attributes_.max_msg_sz, most) : most;
}

RDMACORO_COLD bool device::listed() const noexcept { return !was_listed_ || in_sys(); }

RDMACORO_COLD bool device::in_sys() const noexcept {
    return ::access(context_->device->dev_path, F_OK) == 0 || errno != ENOENT;
}

RDMACORO_COLD std::uint8_t device::read_depth() const noexcept {
    const int least = std::min(attributes_.max_qp_rd_atom, attributes_.max_qp_init_rd_atom);
    return static_cast<std::uint8_t>(std::clamp(least, 1, 16));
}

RDMACORO_COLD int device::access_flags(access_rights rights) const noexcept {
    int flags = IBV_ACCESS_LOCAL_WRITE;
    if (allows(rights, access_rights::remote_read)) flags |= IBV_ACCESS_REMOTE_READ;
    if (allows(rights, access_rights::remote_write)) flags |= IBV_ACCESS_REMOTE_WRITE;
    if (atomics() && allows(rights, access_rights::all)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
    return flags;
}

RDMACORO_COLD std::string device::choose(const verbs_options& options,
                                         const std::vector<device_address>& addresses) {
    if (!options.address.empty()) {
        inet_address wanted;
        wanted.host = options.address;
        wanted.port = "0";
        const inet_resolved resolved = inet_resolved::ask(wanted, AI_NUMERICHOST);
        for (const device_address& a : addresses) {
            if (!resolved.endpoints.empty() && same_address(a.address, resolved.endpoints.front()) &&
                (options.device.empty() || a.device == options.device))
                return a.device;
        }
        throw error(errc::address_invalid, "verbs: no RDMA device has the address " + options.address +
                                               "; devices of this host: " + devices_text(addresses));
    }
    if (!options.device.empty()) return options.device;
    for (const device_address& a : addresses) {
        if (active(a.device, a.port)) return a.device;
    }
    int count = 0;
    const unique_device_list list(::ibv_get_device_list(&count));
    for (int i = 0; list != nullptr && i < count; ++i) {
        if (active(::ibv_get_device_name(list.get()[i]), 0)) return ::ibv_get_device_name(list.get()[i]);
    }
    throw error(
        errc::unsupported,
        "verbs: no RDMA device with an active port (devices of this host: " + devices_text(addresses) +
            "); load its driver, or `rdma link add rxe0 type rxe netdev eth0` for one in software");
}

RDMACORO_COLD unique_context device::open_by_name(const std::string& name) {
    int count = 0;
    const unique_device_list list(::ibv_get_device_list(&count));
    for (int i = 0; list != nullptr && i < count; ++i) {
        if (name == ::ibv_get_device_name(list.get()[i]))
            return unique_context(::ibv_open_device(list.get()[i]));
    }
    errno = 0;
    return nullptr;
}

RDMACORO_COLD bool device::active(const std::string& name, unsigned port) {
    const unique_context opened = open_by_name(name);
    ibv_device_attr attributes{};
    if (opened == nullptr || ::ibv_query_device(opened.get(), &attributes) != 0) return false;
    for (unsigned at = 1; at <= attributes.phys_port_cnt; ++at) {
        ibv_port_attr state{};
        if ((port == 0 || port == at) &&
            ::ibv_query_port(opened.get(), static_cast<std::uint8_t>(at), &state) == 0 &&
            state.state == IBV_PORT_ACTIVE)
            return true;
    }
    return false;
}

RDMACORO_COLD void device::open(const std::string& name, const std::vector<device_address>& addresses) {
    context_ = open_by_name(name);
    if (context_ == nullptr && errno == 0)
        throw error(errc::address_invalid, "verbs: no RDMA device \"" + name +
                                               "\"; devices of this host: " + devices_text(addresses));
    if (context_ == nullptr && (errno == EACCES || errno == EPERM))
        throw error(errc::permission_denied,
                    "verbs: open " + name + ": /dev/infiniband/uverbs* must be readable and writable");
    if (context_ == nullptr) throw_system("verbs: open " + name, errno);
    was_listed_ = in_sys();
    if (::ibv_query_device(context_.get(), &attributes_) != 0) throw_system("verbs: query " + name, errno);
}

/// From how far peers reach an address: an IPv4 one from any network, a link-local one from its own alone, by the interface's name.
[[nodiscard]] inline int reach_of(const inet_endpoint& at) noexcept {
    if (at.address.ss_family == AF_INET) return 2;
    return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(at.address).sin6_addr) ? 0 : 1;
}

RDMACORO_COLD bool device::port_is_active(unsigned port) const noexcept {
    ibv_port_attr state{};
    return ::ibv_query_port(context_.get(), static_cast<std::uint8_t>(port), &state) == 0 &&
           state.state == IBV_PORT_ACTIVE;
}

RDMACORO_COLD void device::choose_port(const verbs_options& options,
                                       const std::vector<device_address>& addresses) {
    const std::string own = name();
    if (options.port > attributes_.phys_port_cnt)
        throw error(errc::address_invalid, "verbs: " + own + " has " +
                                               std::to_string(attributes_.phys_port_cnt) +
                                               " ports, no port " + std::to_string(options.port));
    port_ = static_cast<std::uint8_t>(options.port);
    inet_address wanted;
    wanted.host = options.address;
    wanted.port = "0";
    const inet_resolved resolved =
        options.address.empty() ? inet_resolved{} : inet_resolved::ask(wanted, AI_NUMERICHOST);
    const device_address* found = nullptr;
    for (const device_address& a : addresses) {
        if (a.device != own || (port_ != 0 && a.port != port_)) continue;
        if (!resolved.endpoints.empty()) {
            if (same_address(a.address, resolved.endpoints.front())) found = &a;
            continue;
        }
        if (port_ == 0 && !port_is_active(a.port)) continue;
        if (found == nullptr || reach_of(a.address) > reach_of(found->address)) found = &a;
    }
    if (found != nullptr) {
        address_ = found->address;
        port_ = static_cast<std::uint8_t>(found->port);
    }
    for (std::uint8_t at = 1; port_ == 0 && at <= attributes_.phys_port_cnt; ++at) {
        if (port_is_active(at)) port_ = at;
    }
    if (port_ == 0) port_ = 1;
    if (::ibv_query_port(context_.get(), port_, &port_attributes_) != 0)
        throw_system("verbs: query port " + std::to_string(port_) + " of " + own, errno);
    if (port_attributes_.state != IBV_PORT_ACTIVE)
        throw error(errc::unsupported, "verbs: port " + std::to_string(port_) + " of " + own + " is " +
                                           ::ibv_port_state_str(port_attributes_.state) +
                                           "; bring its network interface up (ip link set DEV up)");
}

RDMACORO_COLD void device::look_for_address(int family) {
    inet_endpoint found;
    int most = -1;
    for (const device_address& one : device_addresses()) {
        if (one.device != name() || one.port != port_) continue;
        const bool fits = one.address.address.ss_family == family;
        const bool current = same_address(one.address, address_);
        if (fits && current && has_chosen_address()) return;  // still there
        const int reach = reach_of(one.address);
        const int worth = (fits ? 16 : 0) + (reach != 0 ? 8 : 0) + (current ? 4 : 0) + reach;
        if (worth <= most) continue;
        most = worth;
        found = one.address;
    }
    if (found.bytes != 0) address_ = found;
}

inline constexpr std::uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

[[nodiscard]] inline bool is_mapped(const ibv_gid& gid) noexcept {
    return std::memcmp(gid.raw, mapped_prefix, sizeof mapped_prefix) == 0;
}

[[nodiscard]] inline bool is_link_local(const ibv_gid& gid) noexcept {
    return gid.raw[0] == 0xfe && gid.raw[1] == 0x80;
}

RDMACORO_COLD bool is_gid_of(const ibv_gid& gid, const inet_endpoint& at) noexcept {
    if (at.bytes == 0) return false;
    if (at.address.ss_family == AF_INET6)
        return std::memcmp(gid.raw, &reinterpret_cast<const sockaddr_in6&>(at.address).sin6_addr,
                           sizeof gid.raw) == 0;
    return is_mapped(gid) &&
           std::memcmp(gid.raw + sizeof mapped_prefix,
                       &reinterpret_cast<const sockaddr_in&>(at.address).sin_addr, sizeof(in_addr)) == 0;
}

RDMACORO_COLD inet_endpoint address_of_gid(const ibv_gid& gid) noexcept {
    static constexpr ibv_gid none{};
    inet_endpoint made;
    if (is_mapped(gid)) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        std::memcpy(&at.sin_addr, gid.raw + sizeof mapped_prefix, sizeof at.sin_addr);
        std::memcpy(&made.address, &at, sizeof at);
        made.bytes = sizeof at;
    } else if (!is_link_local(gid) && std::memcmp(gid.raw, none.raw, sizeof none.raw) != 0) {
        sockaddr_in6 at{};
        at.sin6_family = AF_INET6;
        std::memcpy(&at.sin6_addr, gid.raw, sizeof at.sin6_addr);
        std::memcpy(&made.address, &at, sizeof at);
        made.bytes = sizeof at;
    }
    return made;
}

RDMACORO_COLD int device::look_at_port(const inet_endpoint& local, const ibv_gid* peer,
                                       port_state& into) const noexcept {
    if (::ibv_query_port(context_.get(), port_, &into.attributes) != 0) return errno != 0 ? errno : EIO;
    choose_gid(local, peer, into);
    return choose_partition(into);
}

RDMACORO_COLD void device::choose_gid(const inet_endpoint& local, const ibv_gid* peer,
                                      port_state& into) const noexcept {
    const bool ethernet = into.attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
    if (options_.gid_index >= 0 || !ethernet) {
        into.gid_index = static_cast<std::uint8_t>(std::max(options_.gid_index, 0));
        static_cast<void>(::ibv_query_gid(context_.get(), port_, into.gid_index, &into.gid));
        return;
    }
    int best = -1;
    for (int i = 0; i < into.attributes.gid_tbl_len && i < 256; ++i) {
        ibv_gid_entry entry{};
        if (::ibv_query_gid_ex(context_.get(), port_, static_cast<std::uint32_t>(i), &entry, 0) != 0)
            continue;
        const bool chosen = has_chosen_address() && is_gid_of(entry.gid, address_);
        const bool mapped = is_mapped(entry.gid);
        const bool fits = peer == nullptr || mapped == is_mapped(*peer);
        // RoCE v2 is routable, and an IPv4 address works between any two hosts.
        const int worth = (fits ? 64 : 0) + (chosen ? 32 : 0) + (is_gid_of(entry.gid, local) ? 16 : 0) +
                          (is_gid_of(entry.gid, address_) ? 8 : 0) +
                          (entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0) + (mapped ? 2 : 0) +
                          (is_link_local(entry.gid) ? 0 : 1);
        if (worth <= best) continue;
        best = worth;
        into.gid = entry.gid;
        into.gid_index = static_cast<std::uint8_t>(i);
    }
}

/// As a full member, where the table has the partition twice: limited members do not reach each other. 0, or the number of an error:
/// the port is not in the partition.
RDMACORO_COLD int device::choose_partition(port_state& into) const noexcept {
    into.partition_index = 0;
    if (options_.partition_key == 0) return 0;
    bool found = false;
    for (int i = 0; i < into.attributes.pkey_tbl_len; ++i) {
        __be16 key = 0;
        if (::ibv_query_pkey(context_.get(), port_, i, &key) != 0) continue;
        constexpr unsigned number = 0x7fff;  // the highest bit tells full members from limited ones
        if ((ntohs(key) & number) != (options_.partition_key & number)) continue;
        const bool full = (ntohs(key) & ~number) != 0;
        if (!found || full) into.partition_index = static_cast<std::uint16_t>(i);
        found = true;
        if (full) break;
    }
    return found ? 0 : ENOKEY;
}

RDMACORO_COLD ibv_ah_attr path_between(const port_state& from, std::uint8_t port, const path_end& to,
                                       const verbs_options& options) noexcept {
    ibv_ah_attr made{};
    made.port_num = port;
    made.dlid = to.lid;
    if (options.service_level >= 0) made.sl = static_cast<std::uint8_t>(options.service_level);
    constexpr std::size_t prefix = 8;  // bytes of a GID that name the subnet
    static constexpr ibv_gid none{};
    const bool far = std::memcmp(to.gid.raw, none.raw, sizeof none.raw) != 0 &&
                     std::memcmp(to.gid.raw, from.gid.raw, prefix) != 0;
    const bool asked = (from.attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
    if (from.attributes.link_layer != IBV_LINK_LAYER_ETHERNET && to.lid != 0 && !asked && !far) return made;
    made.is_global = 1;
    made.grh.dgid = to.gid;
    made.grh.sgid_index = from.gid_index;
    made.grh.hop_limit = 64;
    if (options.traffic_class >= 0) made.grh.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
    return made;
}

RDMACORO_COLD void device::probe_inline(const verbs_options& options) {
    const unique_queue queue(::ibv_create_cq(context_.get(), 1, nullptr, nullptr, 0));
    if (queue == nullptr) throw_system("verbs: completion queue of " + name(), errno);
    int failed = 0;
    const auto takes = [&](std::uint32_t bytes) {
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = queue.get();
        wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 1;
        wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
        wanted.cap.max_inline_data = bytes;
        wanted.qp_type = IBV_QPT_RC;
        const unique_queue_pair made(::ibv_create_qp(domain_.get(), &wanted));
        failed = made == nullptr ? errno : 0;
        return made != nullptr && wanted.cap.max_inline_data >= bytes;
    };
    constexpr std::uint32_t step = 16;
    // No frame is longer than a slot.
    const auto most = static_cast<std::uint32_t>(std::min(options.inline_bytes, options.slot_bytes));
    std::uint32_t good = 0;
    std::uint32_t refused = most / step * step + step;
    while (refused - good > step) {
        // The wanted size first: most devices take it.
        const std::uint32_t tried = good == 0 && refused == most / step * step + step
                                        ? refused - step
                                        : good + std::max(step, (refused - good) / 2 / step * step);
        (takes(tried) ? good : refused) = tried;
    }
    if (good == 0 && limited_by_memlock(failed)) throw_system("verbs: queue pair of " + name(), failed);
    inline_limit_ = good;
}

}  // namespace rdmacoro::detail::verbs
