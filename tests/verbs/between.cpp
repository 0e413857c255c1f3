#include "verbs/between.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <netinet/in.h>

// In place of the libraries' own, which they call in turn.

namespace test_verbs_between {

namespace {

using rdmacoro::test::between;

template <class Function>
Function* library_function(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

/// What `verbs_context::query_port` is in libibverbs, and its place there: an inline function of the header calls it.
decltype(verbs_context::query_port) real_query_port = nullptr;

int query_port(ibv_context* context, std::uint8_t number, ibv_port_attr* into, std::size_t bytes) {
    const int outcome = real_query_port(context, number, into, bytes);
    if (outcome == 0 && between::port != nullptr) between::port(*into);
    return outcome;
}

// Events that a test has changed, as the device reported them.
struct changed_event {
    ibv_async_event reported;
    ibv_async_event delivered;
};
std::deque<changed_event> changed_events;

bool same(const ibv_async_event& a, const ibv_async_event& b) {
    return a.event_type == b.event_type && a.element.qp == b.element.qp;
}

}  // namespace

extern "C" {

ibv_context* ibv_open_device(ibv_device* which) {
    static auto* const real = library_function<ibv_context*(ibv_device*)>("ibv_open_device");
    ibv_context* const opened = real(which);
    if (opened == nullptr || between::port == nullptr) return opened;
    verbs_context* const extended = verbs_get_ctx(opened);
    if (extended != nullptr && extended->query_port != &query_port) {
        real_query_port = extended->query_port;
        extended->query_port = &query_port;
    }
    return opened;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* into) {
    static auto* const real = library_function<int(ibv_context*, ibv_device_attr*)>("ibv_query_device");
    const int outcome = real(context, into);
    if (outcome == 0 && between::device != nullptr) between::device(*into);
    return outcome;
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* key) {
    static auto* const real =
        library_function<int(ibv_context*, std::uint8_t, int, __be16*)>("ibv_query_pkey");
    if (between::partition == nullptr) return real(context, port, index, key);
    between::partition(index, *key);
    return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    static auto* const real = library_function<ibv_comp_channel*(ibv_context*)>("ibv_create_comp_channel");
    ibv_comp_channel* const made = real(context);
    if (made != nullptr && between::channel != nullptr) between::channel(*made);
    return made;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* owner, ibv_comp_channel* channel, int vector) {
    static auto* const real =
        library_function<ibv_cq*(ibv_context*, int, void*, ibv_comp_channel*, int)>("ibv_create_cq");
    if (between::creating_queue != nullptr) {
        errno = between::creating_queue(*context);
        if (errno != 0) return nullptr;
    }
    return real(context, entries, owner, channel, vector);
}

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* wanted) {
    static auto* const real = library_function<ibv_srq*(ibv_pd*, ibv_srq_init_attr*)>("ibv_create_srq");
    if (between::creating_shared != nullptr) {
        errno = between::creating_shared(*domain);
        if (errno != 0) return nullptr;
    }
    return real(domain, wanted);
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
    static auto* const real = library_function<ibv_qp*(ibv_pd*, ibv_qp_init_attr*)>("ibv_create_qp");
    if (between::creating != nullptr) {
        errno = between::creating(*domain, *wanted);
        if (errno != 0) return nullptr;
    }
    ibv_qp* const made = real(domain, wanted);
    if (made != nullptr && between::created != nullptr) between::created(*made);
    return made;
}

int ibv_modify_qp(ibv_qp* which, ibv_qp_attr* wanted, int mask) {
    static auto* const real = library_function<int(ibv_qp*, ibv_qp_attr*, int)>("ibv_modify_qp");
    if (between::modifying != nullptr) {
        const int refused = between::modifying(*which, *wanted, mask);
        if (refused != 0) {
            errno = refused;
            return refused;
        }
    }
    return real(which, wanted, mask);
}

int ibv_destroy_qp(ibv_qp* which) {
    static auto* const real = library_function<int(ibv_qp*)>("ibv_destroy_qp");
    if (between::destroying != nullptr) between::destroying(*which);
    return real(which);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    static auto* const real = library_function<int(ibv_context*, ibv_async_event*)>("ibv_get_async_event");
    const int outcome = real(context, event);
    if (outcome != 0 || between::event == nullptr) return outcome;
    const ibv_async_event reported = *event;
    between::event(*event);
    if (!same(reported, *event)) changed_events.push_back({reported, *event});
    return outcome;
}

void ibv_ack_async_event(ibv_async_event* event) {
    static auto* const real = library_function<void(ibv_async_event*)>("ibv_ack_async_event");
    if (!changed_events.empty() && same(changed_events.front().delivered, *event)) {
        real(&changed_events.front().reported);
        changed_events.pop_front();
        return;
    }
    real(event);
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
    static auto* const real =
        library_function<int(rdma_event_channel*, rdma_cm_event**)>("rdma_get_cm_event");
    const int outcome = real(channel, event);
    if (outcome == 0 && between::cm_event != nullptr) between::cm_event(**event);
    return outcome;
}

int rdma_connect(rdma_cm_id* id, rdma_conn_param* with) {
    static auto* const real = library_function<int(rdma_cm_id*, rdma_conn_param*)>("rdma_connect");
    const int outcome = real(id, with);
    if (outcome == 0 && between::asked != nullptr) between::asked(*id);
    return outcome;
}

int rdma_destroy_id(rdma_cm_id* id) {
    static auto* const real = library_function<int(rdma_cm_id*)>("rdma_destroy_id");
    if (between::destroying_id != nullptr) between::destroying_id(*id);
    return real(id);
}

int getifaddrs(ifaddrs** all) {
    static auto* const real = library_function<int(ifaddrs**)>("getifaddrs");
    const int outcome = real(all);
    in_addr hidden{};
    if (outcome != 0 || between::hidden_address == nullptr ||
        ::inet_pton(AF_INET, between::hidden_address, &hidden) != 1)
        return outcome;
    for (ifaddrs* one = *all; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
        sockaddr_in at{};
        std::memcpy(&at, one->ifa_addr, sizeof at);
        if (at.sin_addr.s_addr == hidden.s_addr) one->ifa_addr = nullptr;
    }
    return outcome;
}

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* memory, size_t bytes, int access) {
    static auto* const real = library_function<ibv_mr*(ibv_pd*, void*, size_t, int)>("ibv_reg_mr");
    if (between::may_not_lock == nullptr || !between::may_not_lock(*domain))
        return real(domain, memory, bytes, access);
    errno = ENOMEM;
    return nullptr;
}

}  // extern "C"

}  // namespace test_verbs_between
