// The provider's entry point; fabrics and domains.

#include "objects.hpp"

#include <rdma/providers/fi_prov.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace stand_in {

namespace {

fabric& fabric_of(fid* object) { return static_cast<fabric&>(*reinterpret_cast<fid_fabric*>(object)); }
domain& domain_of(fid* object) { return static_cast<domain&>(*reinterpret_cast<fid_domain*>(object)); }

int close_fabric(fid* object) {
    fabric& closing = fabric_of(object);
    if (const int result = fi_close(&closing.lower->fid); result != 0) return result;
    delete &closing;
    return 0;
}

int open_event_queue(fid_fabric* in, fi_eq_attr* attributes, fid_eq** opened, void* context) {
    if (attributes != nullptr)
        if (const int refused = check_wait(attributes->wait_obj, "an event queue"); refused != 0)
            return refused;
    return fi_eq_open(fabric_of(&in->fid).lower, attributes, opened, context);
}

int open_wait_set(fid_fabric* in, fi_wait_attr* attributes, fid_wait** opened) {
    if (const int refused = check_wait(attributes->wait_obj, "a wait set"); refused != 0) return refused;
    fid_fabric* const lower = fabric_of(&in->fid).lower;
    return lower->ops->wait_open(lower, attributes, opened);  // fi_wait_open is deprecated in libfabric 2
}

int try_wait(fid_fabric* in, fid** objects, int count) {
    if (!enforced.trywait)
        return violated("trywait", FI_ENOSYS,
                        "fi_trywait: what waits in the kernel can't wait for this provider");
    std::vector<fid*> lower(objects, objects + count);
    for (fid*& each : lower) {
        if (each->fclass != FI_CLASS_CQ) continue;
        queue& asked = static_cast<queue&>(*reinterpret_cast<fid_cq*>(each));
        const std::lock_guard lock(asked.in->mutex);
        for (endpoint* one : asked.in->endpoints) one->let_go();
        if (asked.has_any()) return -FI_EAGAIN;
        each = &asked.lower->fid;
    }
    return fi_trywait(fabric_of(&in->fid).lower, lower.data(), count);
}

int close_domain(fid* object) {
    domain& closing = domain_of(object);
    if (!closing.memories.empty() || !closing.endpoints.empty()) return -FI_EBUSY;
    closing.unread.reset();
    if (const int result = fi_close(&closing.lower->fid); result != 0) return result;
    delete &closing;
    return 0;
}

int bind_domain(fid* object, fid* bound, std::uint64_t flags) {
    return fi_domain_bind(domain_of(object).lower, bound, flags);
}

int open_counter(fid_domain* in, fi_cntr_attr* attributes, fid_cntr** opened, void* context) {
    if (attributes != nullptr)
        if (const int refused = check_wait(attributes->wait_obj, "a counter"); refused != 0) return refused;
    return fi_cntr_open(domain_of(&in->fid).lower, attributes, opened, context);
}

fi_ops domain_object_operations() {
    fi_ops table{};
    table.size = sizeof table;
    table.close = close_domain;
    table.bind = bind_domain;
    table.control = no_control;
    table.ops_open = no_ops_open;
    return table;
}

fi_ops_domain domain_operations() {
    fi_ops_domain table{};
    table.size = sizeof table;
    table.av_open = open_addresses;
    table.cq_open = open_queue;
    table.endpoint = open_endpoint;
    table.scalable_ep = [](fid_domain*, fi_info*, fid_ep**, void*) { return -FI_ENOSYS; };
    table.cntr_open = open_counter;
    table.poll_open = [](fid_domain*, fi_poll_attr*, fid_poll**) { return -FI_ENOSYS; };
    table.stx_ctx = [](fid_domain*, fi_tx_attr*, fid_stx**, void*) { return -FI_ENOSYS; };
    table.srx_ctx = [](fid_domain*, fi_rx_attr*, fid_ep**, void*) { return -FI_ENOSYS; };
    table.query_atomic = query_atomic;
    return table;
}

fi_ops fabric_object_operations() {
    fi_ops table{};
    table.size = sizeof table;
    table.close = close_fabric;
    table.bind = no_bind;
    table.control = no_control;
    table.ops_open = no_ops_open;
    return table;
}

fi_ops_fabric fabric_operations() {
    fi_ops_fabric table{};
    table.size = sizeof table;
    table.domain = open_domain;
    table.passive_ep = [](fid_fabric*, fi_info*, fid_pep**, void*) { return -FI_ENOSYS; };
    table.eq_open = open_event_queue;
    table.wait_open = open_wait_set;
    table.trywait = try_wait;
    return table;
}

}  // namespace

operation* domain::take() {
    std::unique_ptr<operation> one;
    if (spare.empty()) {
        one = std::make_unique<operation>();
    } else {
        one = std::move(spare.back());
        spare.pop_back();
    }
    live.insert(one.get());
    return one.release();
}

void domain::give_back(operation* done) {
    live.erase(done);
    done->copy.clear();
    spare.emplace_back(done);
}

int open_fabric(fi_fabric_attr* attributes, fid_fabric** opened, void* context) {
    static fi_ops object_table = fabric_object_operations();
    static fi_ops_fabric table = fabric_operations();
    const settings asked = read_settings();
    fi_fabric_attr lower = *attributes;
    std::string over = asked.over;
    lower.prov_name = over.data();
    auto made = std::make_unique<fabric>();
    if (const int result = fi_fabric(&lower, &made->lower, nullptr); result != 0) return result;
    made->fid.fclass = FI_CLASS_FABRIC;
    made->fid.context = context;
    made->fid.ops = &object_table;
    made->ops = &table;
    made->api_version = attributes->api_version;
    *opened = made.release();
    return 0;
}

int open_domain(fid_fabric* in, fi_info* info, fid_domain** opened, void* context) {
    static fi_ops object_table = domain_object_operations();
    static fi_ops_domain table = domain_operations();
    const owned_info lower = below(in->api_version, *info);
    if (lower == nullptr) return -FI_ENODATA;
    auto made = std::make_unique<domain>();
    made->in = &fabric_of(&in->fid);
    if (const int result = fi_domain(made->in->lower, lower.get(), &made->lower, nullptr); result != 0)
        return result;
    made->asked = read_settings();
    made->lots.seed(made->asked.seed);
    made->mr_mode = info->domain_attr->mr_mode;
    made->fid.fclass = FI_CLASS_DOMAIN;
    made->fid.context = context;
    made->fid.ops = &object_table;
    made->ops = &table;
    made->mr = memory_operations();
    *opened = made.release();
    return 0;
}

}  // namespace stand_in

extern "C" [[gnu::visibility("default")]] fi_provider* fi_prov_ini() {
    static fi_provider provider = [] {
        fi_provider described{};
        described.version = FI_VERSION(1, 0);
        described.fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
        described.name = stand_in::enforced.name;
        described.getinfo = stand_in::answer_getinfo;
        described.fabric = stand_in::open_fabric;
        return described;
    }();
    return &provider;
}
