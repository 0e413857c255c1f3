// librdmacm's functions over the device of device.hpp, those that the verbs transport calls. Every address of this host is the device's.

#include "support/verbs_stand_in/device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rdmacoro::test::verbs_stand_in {

namespace {

struct kept_event : rdma_cm_event {
    std::vector<std::byte> bytes;
};
struct channel : rdma_event_channel {
    std::deque<std::unique_ptr<kept_event>> events;
};
struct identifier : rdma_cm_id {
    identifier* other = nullptr;  // of the connection
    std::uint32_t number = 0;     // of the other end's queue pair
    bool established = false;
};

bool loses_ready_to_use = false;
std::map<std::uint16_t, identifier*> listeners;

identifier& of(rdma_cm_id* one) { return *static_cast<identifier*>(one); }

std::uint16_t& port_of(sockaddr& at) {
    return at.sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                                    : reinterpret_cast<sockaddr_in&>(at).sin_port;
}
void copy_address(void* to, const sockaddr& from) {
    std::memcpy(to, &from, from.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

kept_event& tell(rdma_cm_id& about, rdma_cm_event_type type, const rdma_conn_param* with = nullptr) {
    auto& to = *static_cast<channel*>(about.channel);
    kept_event& made = *to.events.emplace_back(std::make_unique<kept_event>());
    made.id = &about;
    made.event = type;
    if (with != nullptr) {
        made.param.conn = *with;
        const auto* const begin = static_cast<const std::byte*>(with->private_data);
        made.bytes.assign(begin, begin + with->private_data_len);
        made.param.conn.private_data = made.bytes.data();
    }
    const std::uint64_t one = 1;
    static_cast<void>(!::write(to.fd, &one, sizeof one));
    return made;
}

void bind_to_device(rdma_cm_id& which) {
    static ibv_context context = [] {
        ibv_context made{};
        made.device = &the_device();
        return made;
    }();
    which.verbs = &context;
    which.port_num = 1;
}

/// The accepting side has heard of the connection.
void establish(identifier& at) {
    if (!std::exchange(at.established, true)) tell(at, RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace

without_ready_to_use::without_ready_to_use() { loses_ready_to_use = true; }
without_ready_to_use::~without_ready_to_use() { loses_ready_to_use = false; }

}  // namespace rdmacoro::test::verbs_stand_in

using namespace rdmacoro::test::verbs_stand_in;

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
    auto* const made = new channel{};
    made->fd = ::eventfd(0, EFD_NONBLOCK);
    return made;
}
void rdma_destroy_event_channel(rdma_event_channel* which) {
    ::close(which->fd);
    delete static_cast<channel*>(which);
}
int rdma_get_cm_event(rdma_event_channel* from, rdma_cm_event** into) {
    auto& events = static_cast<channel*>(from)->events;
    if (events.empty()) {
        std::uint64_t count = 0;
        static_cast<void>(!::read(from->fd, &count, sizeof count));
        errno = EAGAIN;
        return -1;
    }
    *into = events.front().release();
    events.pop_front();
    return 0;
}
int rdma_ack_cm_event(rdma_cm_event* which) {
    delete static_cast<kept_event*>(which);
    return 0;
}

int rdma_create_id(rdma_event_channel* where, rdma_cm_id** into, void* own, rdma_port_space ps) {
    auto* const made = new identifier{};
    made->channel = where;
    made->context = own;
    made->ps = ps;
    *into = made;
    return 0;
}
int rdma_destroy_id(rdma_cm_id* which) {
    identifier& it = of(which);
    std::erase_if(static_cast<channel*>(it.channel)->events,
                  [&](const auto& one) { return one->id == which || one->listen_id == which; });
    std::erase_if(listeners, [&](const auto& one) { return one.second == &it; });
    if (it.other != nullptr) it.other->other = nullptr;
    delete &it;
    return 0;
}
int rdma_set_option(rdma_cm_id*, int, int, void*, std::size_t) { return 0; }
int rdma_bind_addr(rdma_cm_id* which, sockaddr* at) {
    copy_address(&which->route.addr.src_storage, *at);
    bind_to_device(*which);
    return 0;
}
__be16 rdma_get_src_port(rdma_cm_id* which) { return port_of(which->route.addr.src_addr); }
int rdma_listen(rdma_cm_id* which, int) {
    static std::uint16_t next = 1;
    std::uint16_t& port = port_of(which->route.addr.src_addr);
    if (port == 0) port = htons(next++);
    listeners[port] = &of(which);
    return 0;
}
int rdma_resolve_addr(rdma_cm_id* which, sockaddr* from, sockaddr* to, int) {
    copy_address(&which->route.addr.src_storage, from != nullptr ? *from : *to);
    copy_address(&which->route.addr.dst_storage, *to);
    bind_to_device(*which);
    tell(*which, RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
}
int rdma_resolve_route(rdma_cm_id* which, int) {
    tell(*which, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
}
int rdma_connect(rdma_cm_id* which, rdma_conn_param* with) {
    identifier& client = of(which);
    const auto found = listeners.find(port_of(client.route.addr.dst_addr));
    if (found == listeners.end()) {
        tell(client, RDMA_CM_EVENT_REJECTED);
        return 0;
    }
    rdma_cm_id* made = nullptr;
    rdma_create_id(found->second->channel, &made, nullptr, client.ps);
    identifier& server = of(made);
    copy_address(&server.route.addr.src_storage, client.route.addr.dst_addr);
    copy_address(&server.route.addr.dst_storage, client.route.addr.src_addr);
    bind_to_device(server);
    server.other = &client;
    client.other = &server;
    server.number = with->qp_num;
    tell(server, RDMA_CM_EVENT_CONNECT_REQUEST, with).listen_id = found->second;
    return 0;
}
int rdma_accept(rdma_cm_id* which, rdma_conn_param* with) {
    identifier* const client = of(which).other;
    if (client == nullptr) return 0;
    client->number = with->qp_num;
    tell(*client, RDMA_CM_EVENT_CONNECT_RESPONSE, with);
    return 0;
}
int rdma_reject(rdma_cm_id* which, const void* data, std::uint8_t bytes) {
    rdma_conn_param with{};
    with.private_data = data;
    with.private_data_len = bytes;
    if (of(which).other != nullptr) tell(*of(which).other, RDMA_CM_EVENT_REJECTED, &with);
    return 0;
}
int rdma_establish(rdma_cm_id* which) {
    if (of(which).other != nullptr && !loses_ready_to_use) establish(*of(which).other);
    return 0;
}
int rdma_notify(rdma_cm_id* which, ibv_event_type event) {
    if (event == IBV_EVENT_COMM_EST) establish(of(which));
    return 0;
}
int rdma_disconnect(rdma_cm_id* which) {
    tell(*which, RDMA_CM_EVENT_DISCONNECTED);
    if (of(which).other != nullptr) tell(*of(which).other, RDMA_CM_EVENT_DISCONNECTED);
    return 0;
}
int rdma_init_qp_attr(rdma_cm_id* which, ibv_qp_attr* wanted, int* mask) {
    *mask = IBV_QP_STATE;
    if (wanted->qp_state != IBV_QPS_RTR) return 0;
    *mask |= IBV_QP_DEST_QPN;
    wanted->dest_qp_num = of(which).number;
    return 0;
}

}  // extern "C"
