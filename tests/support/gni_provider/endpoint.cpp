// Endpoints: opening, binding, depth of their queues, and the checks that all operations share.

#include "objects.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include <netinet/in.h>
#include <unistd.h>

namespace stand_in {

namespace {

endpoint& endpoint_of(fid* object) { return static_cast<endpoint&>(*reinterpret_cast<fid_ep*>(object)); }

/// tcp of libfabric before 1.18 crashes when it closes an endpoint whose read's data is arriving. The hardware's provider would
/// not: such an endpoint stays open here and is not used again.
bool close_would_crash(const endpoint& closing) {
    return closing.in->asked.over.starts_with("tcp") && fi_version() < FI_VERSION(1, 18) &&
           std::any_of(
               closing.under_way.begin(), closing.under_way.end(),
               [](const operation* each) { return each->reads && !each->receives; });
}

int close_endpoint(fid* object) {
    endpoint& closing = endpoint_of(object);
    domain& in = *closing.in;
    const std::unique_lock lock(in.mutex);
    if (closing.bound_memories != 0)
        return violated("ep_close", FI_EBUSY, "%zu registrations are bound to the endpoint",
                        closing.bound_memories);
    if (!close_would_crash(closing)) {
        if (const int result = fi_close(&closing.lower->fid); result != 0) return result;
    }
    delist(closing);
    in.endpoints.erase(&closing);
    const auto reap = [&in](operation* left) {
        in.live.erase(left);
        in.gone.emplace_back(left);
    };
    for (operation* left : closing.under_way) {
        closing.leaves_peer(*left);
        reap(left);
    }
    if (closing.addresses != nullptr) --closing.addresses->endpoints;
    for (const auto& [context, left] : closing.found) reap(left);
    delete &closing;
    return 0;
}

int bind_endpoint(fid* object, fid* bound, std::uint64_t flags) {
    endpoint& binding = endpoint_of(object);
    if (bound->fclass == FI_CLASS_CNTR) binding.counts = true;
    if (bound->fclass == FI_CLASS_AV) {
        address_vector& to = static_cast<address_vector&>(*reinterpret_cast<fid_av*>(bound));
        if (const int result = fi_ep_bind(binding.lower, &to.lower->fid, flags); result != 0) return result;
        binding.addresses = &to;
        ++to.endpoints;
        return 0;
    }
    if (bound->fclass != FI_CLASS_CQ) return fi_ep_bind(binding.lower, bound, flags);
    queue& to = static_cast<queue&>(*reinterpret_cast<fid_cq*>(bound));
    // Below everything completes; what the application did not ask for is not handed up.
    const std::uint64_t lower_flags = flags & ~FI_SELECTIVE_COMPLETION;
    if (const int result = fi_ep_bind(binding.lower, &to.lower->fid, lower_flags); result != 0) return result;
    const bool selects = (flags & FI_SELECTIVE_COMPLETION) != 0;
    if ((flags & FI_TRANSMIT) != 0) {
        binding.transmits = &to;
        binding.transmits_select = selects;
    }
    if ((flags & FI_RECV) != 0) {
        binding.receives = &to;
        binding.receives_select = selects;
    }
    return 0;
}

/// Where only counters are bound, completions go to a queue that only this provider reads.
int bind_unread(endpoint& to, std::uint64_t flags) {
    domain& in = *to.in;
    if (in.unread == nullptr) {
        fi_cq_attr attributes{};
        attributes.format = FI_CQ_FORMAT_TAGGED;
        auto made = std::make_unique<queue>();
        made->in = &in;
        if (const int result = fi_cq_open(in.lower, &attributes, &made->lower, nullptr); result != 0)
            return result;
        in.unread = std::move(made);
    }
    return fi_ep_bind(to.lower, &in.unread->lower->fid, flags);
}

int control_endpoint(fid* object, int command, void* argument) {
    endpoint& controlled = endpoint_of(object);
    if (command != FI_ENABLE) return fi_control(&controlled.lower->fid, command, argument);
    const std::lock_guard lock(controlled.in->mutex);
    const std::uint64_t unbound =
        (controlled.transmits == nullptr ? FI_TRANSMIT : 0) | (controlled.receives == nullptr ? FI_RECV : 0);
    if (unbound != 0) {
        if (!controlled.counts)
            return violated("ep_enable", FI_ENOCQ, "neither queue nor counter is bound for one direction");
        if (const int result = bind_unread(controlled, unbound); result != 0) return result;
    }
    const int result = fi_enable(controlled.lower);
    if (result == 0) enlist(controlled);
    return result;
}

ssize_t cancel(fid* object, void* context) {
    endpoint& on = endpoint_of(object);
    const std::lock_guard lock(on.in->mutex);
    const auto same = std::find_if(on.under_way.begin(), on.under_way.end(),
                                   [context](const operation* each) { return each->context == context; });
    if (same == on.under_way.end()) return -FI_ENOENT;
    operation* const found = *same;
    const auto held = std::find(on.held_back.begin(), on.held_back.end(), found);
    if (held == on.held_back.end()) return fi_cancel(&on.lower->fid, found);
    on.held_back.erase(held);
    fi_cq_err_entry error{};
    error.op_context = context;
    error.flags = FI_RMA | (found->reads ? FI_READ : FI_WRITE);
    error.err = FI_ECANCELED;
    if (on.transmits != nullptr) on.transmits->errors.push_back(error);
    on.forget(found);
    return 0;
}

int get_option(fid* object, int level, int name, void* value, std::size_t* bytes) {
    return fi_getopt(&endpoint_of(object).lower->fid, level, name, value, bytes);
}
int set_option(fid* object, int level, int name, const void* value, std::size_t bytes) {
    return fi_setopt(&endpoint_of(object).lower->fid, level, name, value, bytes);
}
int set_name(fid* object, void* address, std::size_t bytes) {
    return fi_setname(&endpoint_of(object).lower->fid, address, bytes);
}
int get_name(fid* object, void* address, std::size_t* bytes) {
    return fi_getname(&endpoint_of(object).lower->fid, address, bytes);
}

fi_ops object_operations() {
    fi_ops table{};
    table.size = sizeof table;
    table.close = close_endpoint;
    table.bind = bind_endpoint;
    table.control = control_endpoint;
    table.ops_open = no_ops_open;
    return table;
}

fi_ops_ep endpoint_operations() {
    fi_ops_ep table{};
    table.size = sizeof table;
    table.cancel = cancel;
    table.getopt = get_option;
    table.setopt = set_option;
    table.tx_ctx = [](fid_ep*, int, fi_tx_attr*, fid_ep**, void*) { return -FI_ENOSYS; };
    table.rx_ctx = [](fid_ep*, int, fi_rx_attr*, fid_ep**, void*) { return -FI_ENOSYS; };
    table.rx_size_left = [](fid_ep*) -> ssize_t { return -FI_ENOSYS; };
    table.tx_size_left = [](fid_ep*) -> ssize_t { return -FI_ENOSYS; };
    return table;
}

fi_ops_cm connection_operations() {
    fi_ops_cm table{};
    table.size = sizeof table;
    table.setname = set_name;
    table.getname = get_name;
    table.getpeer = [](fid_ep*, void*, std::size_t*) { return -FI_ENOSYS; };
    table.connect = [](fid_ep*, const void*, const void*, std::size_t) { return -FI_ENOSYS; };
    table.listen = [](fid_pep*) { return -FI_ENOSYS; };
    table.accept = [](fid_ep*, const void*, std::size_t) { return -FI_ENOSYS; };
    table.reject = [](fid_pep*, fid*, const void*, std::size_t) { return -FI_ENOSYS; };
    table.shutdown = [](fid_ep*, std::uint64_t) { return -FI_ENOSYS; };
    table.join = [](fid_ep*, const void*, std::uint64_t, fid_mc**, void*) { return -FI_ENOSYS; };
    return table;
}

}  // namespace

int open_endpoint(fid_domain* object, fi_info* info, fid_ep** opened, void* context) {
    static fi_ops object_table = object_operations();
    static fi_ops_ep table = endpoint_operations();
    static fi_ops_cm connection_table = connection_operations();
    domain& in = static_cast<domain&>(*object);
    if (info->tx_attr->inject_size > enforced.inject_size || info->tx_attr->size > enforced.tx_size ||
        info->rx_attr->size > enforced.rx_size)
        return violated("ep_attr", FI_EINVAL, "an endpoint beyond what fi_getinfo offered");
    const char* const error = std::getenv("RDMACORO_STAND_IN_TAGGED_ERROR");
    if (error != nullptr && (info->caps & FI_MSG) == 0) return -std::atoi(error);
    const owned_info lower = below(in.in->api_version, *info);
    if (lower == nullptr) return -FI_ENODATA;
    auto made = std::make_unique<endpoint>();
    made->in = &in;
    if (const int result = fi_endpoint(in.lower, lower.get(), &made->lower, nullptr); result != 0)
        return result;
    made->lower_pieces = std::min(lower->tx_attr->iov_limit, lower->rx_attr->iov_limit);
    made->lower_inject = lower->tx_attr->inject_size;
    made->transmit_flags = info->tx_attr->op_flags;
    made->receive_flags = info->rx_attr->op_flags;
    made->most_transmits = info->tx_attr->size != 0 ? info->tx_attr->size : enforced.tx_size;
    made->most_receives = info->rx_attr->size != 0 ? info->rx_attr->size : enforced.rx_size;
    made->fid.fclass = FI_CLASS_EP;
    made->fid.context = context;
    made->fid.ops = &object_table;
    made->ops = &table;
    made->cm = &connection_table;
    made->msg = message_operations();
    made->tagged = tagged_operations();
    made->rma = rma_operations();
    made->atomic = atomic_operations();
    const std::lock_guard lock(in.mutex);
    in.endpoints.insert(made.get());
    *opened = made.release();
    return 0;
}

namespace {

/// The endpoints of this process, of all stand-ins of this library, by address.
struct endpoint_list {
    std::mutex mutex;
    std::map<std::string, endpoint*> all;
    pid_t process = ::getpid();
};
endpoint_list& endpoints() {
    static endpoint_list list;
    return list;
}

/// An address without its padding.
std::string name_of(const char* address, std::size_t bytes) {
    sa_family_t family = 0;
    if (bytes >= sizeof family) std::memcpy(&family, address, sizeof family);
    return {address, family == AF_INET && bytes > 8 ? 8 : bytes};
}

/// With the list's lock. Nullptr: it is in another process.
endpoint* find(const endpoint& from, fi_addr_t to) {
    if (from.addresses == nullptr || endpoints().process != ::getpid()) return nullptr;
    char address[256];
    std::size_t bytes = sizeof address;
    if (fi_av_lookup(from.addresses->lower, to, address, &bytes) != 0 || bytes > sizeof address)
        return nullptr;
    const auto found = endpoints().all.find(name_of(address, bytes));
    return found != endpoints().all.end() ? found->second : nullptr;
}

}  // namespace

void enlist(endpoint& enabled) {
    char address[256];
    std::size_t bytes = sizeof address;
    if (fi_getname(&enabled.lower->fid, address, &bytes) != 0) return;
    enabled.name = name_of(address, bytes);
    const std::lock_guard lock(endpoints().mutex);
    // A child process has the list of its parent, without the parent's endpoints.
    if (std::exchange(endpoints().process, ::getpid()) != ::getpid()) endpoints().all.clear();
    endpoints().all[enabled.name] = &enabled;
}

void delist(endpoint& closing) {
    const std::lock_guard lock(endpoints().mutex);
    const auto found = endpoints().all.find(closing.name);
    if (found != endpoints().all.end() && found->second == &closing) endpoints().all.erase(found);
}

int count_message(endpoint& from, fi_addr_t to) {
    const std::lock_guard lock(endpoints().mutex);
    endpoint* const there = find(from, to);
    if (there == nullptr) return 0;
    const long before = there->under_way_to++;
    if (before < static_cast<long>(there->most_receives)) return 0;
    --there->under_way_to;
    return violated("rx_size", FI_EIO, "%ld messages are under way to an endpoint that takes %zu receives",
                    before + 1, there->most_receives);
}

void uncount_message(endpoint& from, fi_addr_t to) {
    const std::lock_guard lock(endpoints().mutex);
    if (endpoint* const there = find(from, to)) --there->under_way_to;
}

void endpoint::forget(operation* done) {
    under_way.erase(done->place);
    --(done->receives ? receiving : transmitting);
    leaves_peer(*done);
    in->give_back(done);
}

void endpoint::leaves_peer(const operation& done) {
    if (done.receives || addresses == nullptr) return;
    if (const auto there = addresses->peers.find(done.peer); there != addresses->peers.end())
        --there->second.under_way;
}

int begin(endpoint& on, const start_request& what, operation** begun) {
    address_vector::peer* to = nullptr;
    if (!what.receives && on.addresses != nullptr) {
        const auto found = on.addresses->peers.find(what.peer);
        if (found == on.addresses->peers.end())
            return violated("fi_addr", FI_EINVAL, "address %llu was not inserted, or was removed",
                            static_cast<unsigned long long>(what.peer));
        to = &found->second;
    }
    if (on.in->unread != nullptr) on.in->unread->fetch();
    if (what.receives ? on.receiving >= on.most_receives : on.transmitting >= on.most_transmits)
        return -FI_EAGAIN;
    if (what.fenced && on.transmitting != 0) return -FI_EAGAIN;
    operation& made = *on.in->take();
    made.owner = &on;
    made.context = what.context;
    made.peer = what.peer;
    made.receives = what.receives;
    made.wanted = what.wanted && (what.receives ? on.receives : on.transmits) != nullptr;
    made.multiple = false;
    made.claims = false;
    made.tagged = false;
    made.reads = false;
    made.scattered_count = 0;
    made.place = on.under_way.insert(on.under_way.end(), &made);
    ++(what.receives ? on.receiving : on.transmitting);
    if (to != nullptr) ++to->under_way;
    *begun = &made;
    return 0;
}

std::size_t length_of(const iovec* pieces, std::size_t count) {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i != count; ++i) bytes += pieces[i].iov_len;
    return bytes;
}

int check_message(std::size_t pieces, std::size_t most_pieces, std::size_t bytes) {
    if (pieces > most_pieces)
        return violated("iov_limit", FI_EINVAL, "%zu pieces; there may be %zu", pieces, most_pieces);
    if (bytes > enforced.max_msg_size)
        return violated("max_msg_size", FI_EMSGSIZE, "%zu bytes; there may be %zu", bytes,
                        enforced.max_msg_size);
    return 0;
}

int check_inject(std::size_t bytes) {
    if (bytes <= enforced.inject_size) return 0;
    return violated("inject_size", enforced.refused_inject, "%zu bytes; there may be %zu", bytes,
                    enforced.inject_size);
}

int check_data(std::uint64_t data) {
    if (enforced.cq_data_size >= sizeof data || data >> (8 * enforced.cq_data_size) == 0) return 0;
    return violated("cq_data_size", FI_EINVAL, "remote data %#llx does not fit %zu bytes",
                    static_cast<unsigned long long>(data), enforced.cq_data_size);
}

}  // namespace stand_in
