// How a connection of a verbs domain opens by an exchange of queue-pair data over TCP.
//
// Both sides send a connect_info, make their queue pair ready, and send one more byte; a side that has received that byte may
// send messages. The socket stays open: its end is the end of the link, so that the death of an idle peer is noticed.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <algorithm>
#include <cerrno>

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
    accept_by_socket(fd, waiter);
    if (socket_.exchanges()) socket_.exchange().connects();
}

/// The queue pair in its first state. 0, or the number of an error.
RDMACORO_COLD int session::prepare_queue_pair() noexcept {
    if (const int failed = create_queue_pair(); failed != 0) return failed;
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_INIT;
    wanted.port_num = engine_.device().port();
    wanted.qp_access_flags = static_cast<unsigned>(engine_.device().access_flags(access_rights::all));
    return ::ibv_modify_qp(queue_pair_.get(), &wanted,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/// Takes the socket over. The two sides do the same from here on.
RDMACORO_COLD void session::accept_by_socket(int fd, opener& waiter) noexcept {
    begin_opening(waiter);
    if (const char* const step = socket_.open(fd, peer_); step != nullptr)
        return fail_opening(errc::no_resources, errno, step);
    if (const int failed = prepare_queue_pair(); failed != 0)
        return fail_opening(errc::no_resources, failed, "create a queue pair");
    verbs::device& device = engine_.device();
    if (::getrandom(&first_sequence_, sizeof first_sequence_, 0) < 0) first_sequence_ = number_;
    first_sequence_ &= 0xffffff;
    queue_pair_info own;
    own.hello = engine_.own_greeting().store();
    own.number = number_;
    own.sequence = first_sequence_;
    own.lid = device.port_attributes().lid;
    own.mtu = static_cast<std::uint8_t>(device.port_attributes().active_mtu);
    own.read_depth = device.read_depth();
    own.gid = device.gid();
    own.store(socket_.exchange().own_connect_info());
    if (const char* const step = socket_.watch(); step != nullptr)
        fail_opening(errc::no_resources, errno, step);
}

RDMACORO_COLD int session::connect_queue_pair(const queue_pair_info& peer) noexcept {
    verbs::device& device = engine_.device();
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_RTR;
    wanted.path_mtu = static_cast<ibv_mtu>(std::clamp<int>(
        peer.mtu, IBV_MTU_256, std::max<int>(device.port_attributes().active_mtu, IBV_MTU_256)));
    wanted.dest_qp_num = peer.number;
    wanted.rq_psn = peer.sequence;
    wanted.max_dest_rd_atomic = device.read_depth();
    wanted.min_rnr_timer = 12;
    wanted.ah_attr.port_num = device.port();
    wanted.ah_attr.dlid = peer.lid;
    // Over Ethernet the GID is the address; an InfiniBand subnet has local ones.
    if (device.port_attributes().link_layer == IBV_LINK_LAYER_ETHERNET || peer.lid == 0) {
        wanted.ah_attr.is_global = 1;
        wanted.ah_attr.grh.dgid = peer.gid;
        wanted.ah_attr.grh.sgid_index = device.gid_index();
        wanted.ah_attr.grh.hop_limit = 64;
    }
    int failed = ::ibv_modify_qp(queue_pair_.get(), &wanted,
                                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (failed != 0) return failed;
    wanted = {};
    wanted.qp_state = IBV_QPS_RTS;
    wanted.sq_psn = first_sequence_;
    wanted.timeout = acknowledge_timeout;
    wanted.retry_cnt = acknowledge_retries;
    wanted.rnr_retry = receive_retries;
    wanted.max_rd_atomic = std::clamp<std::uint8_t>(peer.read_depth, 1, device.read_depth());
    return ::ibv_modify_qp(queue_pair_.get(), &wanted,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
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

/// False: `fail_opening` was called.
RDMACORO_COLD bool session::take_connect_info() noexcept {
    exchange_failure refused;
    queue_pair_info theirs;
    theirs.load(socket_.exchange().connect_info());
    if (const errc verdict = take_greeting(theirs.hello.data(), theirs.hello.size()); verdict != errc::ok) {
        refused = {verdict, 0, "greet"};
    } else if (const int failed = connect_queue_pair(theirs); failed != 0) {
        refused = {errc::connection_refused, failed, "connect the queue pairs"};
    } else if (socket_.answer(std::byte{0})) {
        return true;
    } else {
        refused = socket_.exchange().failure();
    }
    exchange_failed(refused);
    return false;
}

}  // namespace rdmacoro::detail::verbs
