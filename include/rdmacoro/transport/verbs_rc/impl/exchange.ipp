// How a connection of a verbs domain opens by an exchange of queue-pair data over TCP.
//
// Both sides send a connect_info, make their queue pair ready, and send one more byte; a side that has received that byte may
// send messages. The socket stays open: its end is the end of the link, so that the death of an idle peer is noticed.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/random.h>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD void session::connect(const inet_endpoint& to, opener& waiter) noexcept {
    if (engine_.by_cm()) return connect_by_cm(to, waiter);
    connect_by_socket(to, waiter);
}

RDMACORO_COLD void session::connect_by_socket(const inet_endpoint& to, opener& waiter) noexcept {
    int refused = 0;
    const int fd = connect_for_exchange(to, refused);
    peer_ = to;
    if (refused != 0) {
        opener_ = &waiter;
        return fail_opening(errc::connection_refused, refused, "connect");
    }
    begin_opening(waiter);
    if (!open_socket(fd)) return;
    const port_state now = look_at_port(nullptr);
    if (!prepare_queue_pair(now)) return;
    store_own_info(now);
    socket_.exchange().connects();
    watch_socket();
}

/// Takes the socket over. False: `fail_opening` was called.
RDMACORO_COLD bool session::open_socket(int fd) noexcept {
    const char* const step = socket_.open(fd, peer_);
    if (step != nullptr) fail_opening(errc::no_resources, errno, step);
    return step == nullptr;
}
RDMACORO_COLD void session::watch_socket() noexcept {
    if (const char* const step = socket_.watch(); step != nullptr)
        fail_opening(errc::no_resources, errno, step);
}

/// The port as it is now, for a connection over this socket.
RDMACORO_COLD port_state session::look_at_port(const ibv_gid* peer) noexcept {
    port_state now;
    if (engine_.device().look_at_port(socket_.local(), peer, now) != 0)
        now.attributes = engine_.device().port_attributes();
    return now;
}

/// The queue pair in its first state.
RDMACORO_COLD failed_step session::initialize_queue_pair(const port_state& now) noexcept {
    if (const failed_step made = create_queue_pair(); made.system != 0) return made;
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.port_num = engine_.device().port();
    wanted.pkey_index = now.partition_index;
    wanted.qp_access_flags = static_cast<unsigned>(engine_.device().access_flags(access_rights::all));
    if (::ibv_modify_qp(queue_pair_.get(), &wanted,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        return {errno != 0 ? errno : EIO, "prepare a queue pair"};
    receives_->post();
    return {};
}
/// False: `fail_opening` was called.
RDMACORO_COLD bool session::prepare_queue_pair(const port_state& now) noexcept {
    const failed_step made = initialize_queue_pair(now);
    if (made.system != 0) fail_opening(errc::no_resources, made.system, made.name);
    return made.system == 0;
}

/// This side's connect_info, which is sent by the next step of the exchange.
RDMACORO_COLD void session::store_own_info(const port_state& now) noexcept {
    verbs::device& device = engine_.device();
    if (::getrandom(&first_sequence_, sizeof first_sequence_, 0) < 0) first_sequence_ = number_;
    first_sequence_ &= 0xffffff;
    queue_pair_info own;
    own.hello = engine_.own_greeting().store();
    own.number = number_;
    own.sequence = first_sequence_;
    own.lid = now.attributes.lid;
    own.mtu = static_cast<std::uint8_t>(now.attributes.active_mtu);
    own.read_depth = device.read_depth();
    own.gid = now.gid;
    own.store(socket_.exchange().own_connect_info());
}

/// Of an accepted connection. It costs a descriptor until the peer has sent its connect_info; the queue pair, and its room in
/// completion and receive queues, are taken only then.
RDMACORO_COLD void session::accept_by_socket(int fd, opener& waiter) noexcept {
    accepting_ = true;
    begin_opening(waiter);
    if (!open_socket(fd)) return;
    socket_.exchange().hold_back();
    watch_socket();
}

RDMACORO_COLD int session::connect_queue_pair(const queue_pair_info& peer, const port_state& now) noexcept {
    verbs::device& device = engine_.device();
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTR;
    wanted.path_mtu = static_cast<ibv_mtu>(
        std::clamp<int>(peer.mtu, IBV_MTU_256, std::max<int>(now.attributes.active_mtu, IBV_MTU_256)));
    wanted.dest_qp_num = peer.number;
    wanted.rq_psn = peer.sequence;
    wanted.max_dest_rd_atomic = device.read_depth();
    wanted.min_rnr_timer = receive_retry_timer;
    wanted.ah_attr = path_between(now, device.port(), {peer.lid, peer.gid}, engine_.options());
    if (::ibv_modify_qp(queue_pair_.get(), &wanted,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return errno != 0 ? errno : EIO;
    could_receive_ = true;
    wanted = {};
    wanted.qp_state = IBV_QPS_RTS;
    wanted.sq_psn = first_sequence_;
    wanted.timeout = acknowledge_timeout(engine_.options().acknowledge_timeout, device.retries_for_ever(), 0);
    wanted.retry_cnt = acknowledge_retries;
    wanted.rnr_retry = receive_retries;
    wanted.max_rd_atomic = std::clamp<std::uint8_t>(peer.read_depth, 1, device.read_depth());
    if (::ibv_modify_qp(queue_pair_.get(), &wanted,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_MAX_QP_RD_ATOMIC) != 0)
        return errno != 0 ? errno : EIO;
    return 0;
}

RDMACORO_COLD void session::on_socket() noexcept {
    if (phase_ == phase::opening) return socket_.go_on(*this);
    // Nothing is sent over the socket any more: any event means that the peer is dead.
    socket_.unwatch();
    peer_gone();
}

RDMACORO_COLD void session::exchanged(std::byte) noexcept {
    connected_ = true;
    become_ready();
}

RDMACORO_COLD void session::exchange_failed(const exchange_failure& how) noexcept {
    fail_opening(how.code, how.system, how.step);
}

/// False: `fail_opening` was called, an accepted client waits for its turn, or the peer's address is looked for.
RDMACORO_COLD bool session::take_connect_info() noexcept {
    queue_pair_info theirs;
    theirs.load(socket_.exchange().connect_info());
    exchange_failure refused;
    if (const errc verdict = take_greeting(theirs.hello.data(), theirs.hello.size()); verdict != errc::ok) {
        refused = {verdict, 0, "greet"};
    } else if (theirs.number == 0) {
        greeting said;
        static_cast<void>(said.load(theirs.hello.data(), theirs.hello.size()));
        fail_refused(said.refusal);
        return false;
    } else if (accepting_ && !engine_.admit_pending(*this)) {
        socket_.unwatch();
        return false;
    } else if (looks_for(theirs.gid)) {
        socket_.unwatch();
        return false;
    } else {
        return answer_connect_info();
    }
    exchange_failed(refused);
    return false;
}

/// Over RoCE the kernel looks for the host of the peer's GID in the very call that connects a queue pair, for up to a second where
/// none answers, and a stranger may name such an address. So it is looked for before, unless TCP has just reached it. True: `peer_found`
/// goes on.
RDMACORO_COLD bool session::looks_for(const ibv_gid& gid) noexcept {
    constexpr int patience = 2000;  // milliseconds
    inet_endpoint target = address_of_gid(gid);
    if (engine_.cm_channel() == nullptr || target.bytes == 0 || is_gid_of(gid, peer_)) return false;
    const port_state now = look_at_port(&gid);
    inet_endpoint from = address_of_gid(now.gid);
    if (now.attributes.link_layer != IBV_LINK_LAYER_ETHERNET ||
        from.address.ss_family != target.address.ss_family ||
        ::rdma_create_id(engine_.cm_channel(), &id_, static_cast<cm_party*>(this), RDMA_PS_TCP) != 0)
        return false;
    if (::rdma_resolve_addr(id_, from.get(), target.get(), patience) == 0) return true;
    ::rdma_destroy_id(std::exchange(id_, nullptr));
    return false;
}

/// What `looks_for` has begun is over.
RDMACORO_COLD void session::peer_found(const cm_news& news) noexcept {
    ::rdma_destroy_id(std::exchange(id_, nullptr));
    if (news.type != RDMA_CM_EVENT_ADDR_RESOLVED)
        return fail_opening(errc::timed_out, -news.status, "find the address of the peer's queue pair");
    if (answer_connect_info()) socket_.go_on(*this);
}

/// Connects the queue pair to the peer's. False: `fail_opening` was called.
RDMACORO_COLD bool session::answer_connect_info() noexcept {
    queue_pair_info theirs;
    theirs.load(socket_.exchange().connect_info());
    const port_state now = look_at_port(&theirs.gid);
    if (accepting_ && !make_queue_pair_for(now)) return false;
    exchange_failure refused;
    if (const int failed = connect_queue_pair(theirs, now); failed != 0) {
        refused = {errc::connection_refused, failed, "connect the queue pairs"};
    } else if (socket_.answer(std::byte{0})) {
        return true;
    } else {
        refused = socket_.exchange().failure();
    }
    exchange_failed(refused);
    return false;
}

/// Of an accepted client, which has sent its connect_info. False: `fail_opening` was called, and the client is told why.
RDMACORO_COLD bool session::make_queue_pair_for(const port_state& now) noexcept {
    const failed_step made = initialize_queue_pair(now);
    store_own_info(now);
    socket_.exchange().release();
    if (made.system == 0) return true;
    queue_pair_info own;
    greeting said = engine_.own_greeting();
    said.refusal = refusal_of(made);
    own.hello = said.store();
    own.store(socket_.exchange().own_connect_info());
    static_cast<void>(socket_.answer(std::byte{1}));
    fail_opening(errc::no_resources, made.system, made.name);
    return false;
}

RDMACORO_COLD void session::pending_admitted() noexcept {
    if (socket_.is_open()) {
        if (take_connect_info()) socket_.go_on(*this);
    } else if (engine_.admit_pending(*this)) {
        accept_request();
    }
}

}  // namespace rdmacoro::detail::verbs
