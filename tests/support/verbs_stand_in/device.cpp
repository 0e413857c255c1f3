// libibverbs' functions over the device of device.hpp, those that the verbs transport calls.

#include "support/verbs_stand_in/device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

namespace rdmacoro::test::verbs_stand_in {

namespace {

void ring(int fd) {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(fd, &one, sizeof one));
}
/// The descriptor of a list that is empty is not readable any more.
int nothing_left(int fd) {
    std::uint64_t count = 0;
    static_cast<void>(!::read(fd, &count, sizeof count));
    errno = EAGAIN;
    return -1;
}

struct context : ibv_context {
    std::deque<ibv_async_event> events;
};
struct channel : ibv_comp_channel {
    std::deque<ibv_cq*> events;
};
struct completion_queue : ibv_cq {
    std::deque<ibv_wc> waiting;
    bool armed = false;
};
struct posted_receive {
    std::uint64_t id;
    ibv_sge into;
};
struct receive_queue : ibv_srq {
    std::deque<posted_receive> posted;
};
/// A work request, with what it carries in itself.
struct posted_send {
    explicit posted_send(const ibv_send_wr& from) : request(from) {
        if (from.num_sge != 0) piece = from.sg_list[0];
        if (from.num_sge == 0 || (from.send_flags & IBV_SEND_INLINE) == 0) return;
        const auto* const begin = reinterpret_cast<const std::byte*>(piece.addr);
        carried.assign(begin, begin + piece.length);
    }
    [[nodiscard]] std::byte* memory() {
        return carried.empty() ? reinterpret_cast<std::byte*>(piece.addr) : carried.data();
    }

    ibv_send_wr request;
    ibv_sge piece{};
    std::vector<std::byte> carried;
};
struct queue_pair : ibv_qp {
    ibv_qp_state now = IBV_QPS_RESET;
    std::uint32_t peer = 0;
    std::deque<posted_send> waiting;
    bool stalls = false;
    bool flushes = true;
    bool received_any = false;
    bool gave_last = false;
};

std::list<context*> contexts;
std::map<std::uint32_t, queue_pair*> queue_pairs;
bool gone = false;
std::size_t not_ready = 0;
std::size_t most = 0;

context& of(ibv_context& one) { return static_cast<context&>(one); }

void raise_event(ibv_context& where, ibv_event_type what, ibv_qp* about = nullptr) {
    ibv_async_event event{};
    event.event_type = what;
    event.element.qp = about;
    of(where).events.push_back(event);
    ring(where.async_fd);
}

void complete(ibv_cq* in, const ibv_wc& how) {
    if (gone) return;
    auto& queue = *static_cast<completion_queue*>(in);
    queue.waiting.push_back(how);
    most = std::max(most, queue.waiting.size());
    if (!std::exchange(queue.armed, false)) return;
    static_cast<channel*>(queue.channel)->events.push_back(in);
    ring(queue.channel->fd);
}

void over(queue_pair& qp, const posted_send& which, ibv_wc_status how) {
    if (how == IBV_WC_SUCCESS && (which.request.send_flags & IBV_SEND_SIGNALED) == 0) return;
    ibv_wc wc{};
    wc.wr_id = which.request.wr_id;
    wc.status = how;
    wc.qp_num = qp.qp_num;
    complete(qp.send_cq, wc);
}

void to_error(queue_pair& qp) {
    qp.now = IBV_QPS_ERR;
    if (gone) return;
    for (; qp.flushes && !qp.waiting.empty(); qp.waiting.pop_front())
        over(qp, qp.waiting.front(), IBV_WC_WR_FLUSH_ERR);
    if (!std::exchange(qp.gave_last, true)) raise_event(*qp.context, IBV_EVENT_QP_LAST_WQE_REACHED, &qp);
}

/// False: it waits for a receive.
bool arrives(queue_pair& at, posted_send& message) {
    auto& receives = *static_cast<receive_queue*>(at.srq);
    if (receives.posted.empty()) {
        ++not_ready;
        return false;
    }
    const posted_receive taken = receives.posted.front();
    receives.posted.pop_front();
    if (message.piece.length != 0)
        std::memcpy(reinterpret_cast<void*>(taken.into.addr), message.memory(), message.piece.length);
    if (!std::exchange(at.received_any, true)) raise_event(*at.context, IBV_EVENT_COMM_EST, &at);
    ibv_wc wc{};
    wc.wr_id = taken.id;
    wc.status = IBV_WC_SUCCESS;
    wc.opcode = IBV_WC_RECV;
    wc.byte_len = message.piece.length;
    wc.qp_num = at.qp_num;
    complete(at.recv_cq, wc);
    return true;
}

/// Carries out what is posted, as far as that goes.
void go_on(queue_pair& qp) {
    if (gone) return;
    if (qp.now == IBV_QPS_ERR) return to_error(qp);
    for (; !qp.stalls && !qp.waiting.empty(); qp.waiting.pop_front()) {
        posted_send& next = qp.waiting.front();
        const auto found = queue_pairs.find(qp.peer);
        if (found == queue_pairs.end() || found->second->now < IBV_QPS_RTR ||
            found->second->now > IBV_QPS_RTS) {
            over(qp, next, IBV_WC_RETRY_EXC_ERR);
            qp.waiting.pop_front();
            return to_error(qp);
        }
        auto* const there = reinterpret_cast<void*>(next.request.wr.rdma.remote_addr);
        const std::size_t bytes = next.piece.length;
        switch (next.request.opcode) {
            case IBV_WR_SEND:
                if (!arrives(*found->second, next)) return;
                break;
            case IBV_WR_RDMA_READ:
                if (bytes != 0) std::memcpy(next.memory(), there, bytes);
                break;
            case IBV_WR_RDMA_WRITE:
                if (bytes != 0) std::memcpy(there, next.memory(), bytes);
                break;
            default: std::abort();
        }
        over(qp, next, IBV_WC_SUCCESS);
    }
}

int post_send(ibv_qp* to, ibv_send_wr* first, ibv_send_wr**) {
    auto& qp = *static_cast<queue_pair*>(to);
    for (; first != nullptr; first = first->next) qp.waiting.emplace_back(*first);
    go_on(qp);
    return 0;
}
int post_receive(ibv_srq* to, ibv_recv_wr* first, ibv_recv_wr**) {
    auto& queue = *static_cast<receive_queue*>(to);
    for (; first != nullptr; first = first->next) queue.posted.push_back({first->wr_id, first->sg_list[0]});
    for (const auto& [number, qp] : queue_pairs) go_on(*qp);
    return 0;
}
int poll(ibv_cq* of_queue, int count, ibv_wc* into) {
    auto& waiting = static_cast<completion_queue*>(of_queue)->waiting;
    const auto got = std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(waiting.size()));
    std::copy_n(waiting.begin(), got, into);
    waiting.erase(waiting.begin(), waiting.begin() + got);
    return static_cast<int>(got);
}
int arm(ibv_cq* which, int) {
    static_cast<completion_queue*>(which)->armed = true;
    return 0;
}

}  // namespace

ibv_device& the_device() {
    static ibv_device one = [] {
        ibv_device made{};
        std::strcpy(made.name, device_name);
        std::strcpy(made.dev_path, "/nonexistent");
        made.transport_type = IBV_TRANSPORT_IB;
        return made;
    }();
    return one;
}

void stall(ibv_qp& of, stalled how) {
    auto& qp = static_cast<queue_pair&>(of);
    qp.stalls = true;
    qp.flushes = how == stalled::flushes;
}
void fail(ibv_qp& of, report how) {
    to_error(static_cast<queue_pair&>(of));
    if (how == report::event) raise_event(*of.context, IBV_EVENT_QP_FATAL, &of);
}
void fail_receive(ibv_qp& of, ibv_wc_status how) {
    auto& receives = *static_cast<receive_queue*>(of.srq);
    ibv_wc wc{};
    wc.wr_id = receives.posted.front().id;
    receives.posted.pop_front();
    wc.status = how;
    wc.qp_num = of.qp_num;
    complete(of.recv_cq, wc);
}

without_device::without_device() {
    gone = true;
    for (context* one : contexts) raise_event(*one, IBV_EVENT_DEVICE_FATAL);
}
without_device::~without_device() { gone = false; }

std::size_t times_not_ready() { return not_ready; }
std::size_t most_waiting() { return most; }

}  // namespace rdmacoro::test::verbs_stand_in

using namespace rdmacoro::test::verbs_stand_in;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
    if (count != nullptr) *count = 1;
    return new ibv_device*[2]{&the_device(), nullptr};
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
    auto* const made = new context{};
    made->device = device;
    made->async_fd = ::eventfd(0, EFD_NONBLOCK);
    made->ops.poll_cq = poll;
    made->ops.req_notify_cq = arm;
    made->ops.post_send = post_send;
    made->ops.post_srq_recv = post_receive;
    contexts.push_back(made);
    return made;
}
int ibv_close_device(ibv_context* which) {
    contexts.remove(&of(*which));
    ::close(which->async_fd);
    delete &of(*which);
    return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* into) {
    *into = {};
    into->phys_port_cnt = 1;
    into->max_cqe = 1 << 22;
    into->max_srq = 1000;
    into->max_srq_wr = 1 << 15;
    into->max_qp_rd_atom = into->max_qp_init_rd_atom = 16;
    into->vendor_id = 0x2c9;
    return 0;
}
int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* to) {
    auto& into = *reinterpret_cast<ibv_port_attr*>(to);
    into.state = IBV_PORT_ACTIVE;
    into.active_mtu = IBV_MTU_4096;
    into.max_msg_sz = 1u << 30;
    into.lid = 1;
    into.gid_tbl_len = into.pkey_tbl_len = 1;
    into.link_layer = IBV_LINK_LAYER_INFINIBAND;
    return 0;
}
int ibv_query_gid(ibv_context*, std::uint8_t, int, ibv_gid* into) {
    *into = {};
    into->raw[15] = 1;
    return 0;
}
int _ibv_query_gid_ex(ibv_context*, std::uint32_t, std::uint32_t, ibv_gid_entry*, std::uint32_t,
                      std::size_t) {
    return ENODATA;
}
int ibv_query_pkey(ibv_context*, std::uint8_t, int, __be16* into) {
    *into = 0xffff;
    return 0;
}
const char* ibv_port_state_str(ibv_port_state) { return "active"; }

ibv_pd* ibv_alloc_pd(ibv_context* where) {
    auto* const made = new ibv_pd{};
    made->context = where;
    return made;
}
int ibv_dealloc_pd(ibv_pd* which) {
    delete which;
    return 0;
}
ibv_mr* ibv_reg_mr(ibv_pd* domain, void* at, std::size_t bytes, int) {
    auto* const made = new ibv_mr{};
    made->context = domain->context;
    made->pd = domain;
    made->addr = at;
    made->length = bytes;
    made->lkey = made->rkey = 7;
    return made;
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* at, std::size_t bytes, std::uint64_t, unsigned) {
    return ibv_reg_mr(domain, at, bytes, 0);
}
int ibv_dereg_mr(ibv_mr* which) {
    delete which;
    return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* where) {
    auto* const made = new channel{};
    made->context = where;
    made->fd = ::eventfd(0, EFD_NONBLOCK);
    return made;
}
int ibv_destroy_comp_channel(ibv_comp_channel* which) {
    ::close(which->fd);
    delete static_cast<channel*>(which);
    return 0;
}
ibv_cq* ibv_create_cq(ibv_context* where, int entries, void* own, ibv_comp_channel* reports_to, int) {
    auto* const made = new completion_queue{};
    made->context = where;
    made->channel = reports_to;
    made->cq_context = own;
    made->cqe = entries;
    return made;
}
int ibv_destroy_cq(ibv_cq* which) {
    if (which->channel != nullptr) std::erase(static_cast<channel*>(which->channel)->events, which);
    delete static_cast<completion_queue*>(which);
    return 0;
}
int ibv_get_cq_event(ibv_comp_channel* from, ibv_cq** which, void** own) {
    auto& events = static_cast<channel*>(from)->events;
    if (events.empty()) return nothing_left(from->fd);
    *which = events.front();
    *own = (*which)->cq_context;
    events.pop_front();
    return 0;
}
void ibv_ack_cq_events(ibv_cq*, unsigned) {}

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr*) {
    auto* const made = new receive_queue{};
    made->context = domain->context;
    made->pd = domain;
    return made;
}
int ibv_destroy_srq(ibv_srq* which) {
    delete static_cast<receive_queue*>(which);
    return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
    static std::uint32_t next = 100;
    auto* const made = new queue_pair{};
    made->context = domain->context;
    made->pd = domain;
    made->qp_context = wanted->qp_context;
    made->send_cq = wanted->send_cq;
    made->recv_cq = wanted->recv_cq;
    made->srq = wanted->srq;
    made->qp_num = next++;
    made->qp_type = wanted->qp_type;
    queue_pairs[made->qp_num] = made;
    return made;
}
/// As adapters do, removes the completions of the queue pair, too.
int ibv_destroy_qp(ibv_qp* which) {
    queue_pairs.erase(which->qp_num);
    std::erase_if(of(*which->context).events,
                  [&](const ibv_async_event& event) { return event.element.qp == which; });
    for (ibv_cq* queue : {which->send_cq, which->recv_cq}) {
        std::erase_if(static_cast<completion_queue*>(queue)->waiting,
                      [&](const ibv_wc& wc) { return wc.qp_num == which->qp_num; });
    }
    delete static_cast<queue_pair*>(which);
    return 0;
}
int ibv_modify_qp(ibv_qp* which, ibv_qp_attr* wanted, int mask) {
    auto& qp = *static_cast<queue_pair*>(which);
    if (gone) return EIO;
    if ((mask & IBV_QP_DEST_QPN) != 0) qp.peer = wanted->dest_qp_num;
    if (wanted->qp_state == IBV_QPS_ERR) {
        to_error(qp);
    } else {
        qp.now = wanted->qp_state;
    }
    return 0;
}
int ibv_query_qp(ibv_qp* which, ibv_qp_attr* into, int, ibv_qp_init_attr*) {
    into->qp_state = static_cast<queue_pair*>(which)->now;
    return 0;
}

int ibv_get_async_event(ibv_context* from, ibv_async_event* into) {
    auto& events = of(*from).events;
    if (events.empty()) return nothing_left(from->async_fd);
    *into = events.front();
    events.pop_front();
    return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}

}  // extern "C"
