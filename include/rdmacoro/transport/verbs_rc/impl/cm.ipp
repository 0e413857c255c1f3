// How a connection of a verbs domain opens by rdma_cm.
//
//   connecting side   address, route, request ->            <- response, established ->
//   accepting side    (request) queue pair ready to receive, response ->    (established)
//
// Queue pairs are created without the connection manager, because the domain opens the device; the connection manager only
// gives the attributes of each state. Over iWARP the device changes the states by itself, and the connecting side sends first.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD errc session::take_greeting(const std::byte* from, std::size_t bytes) noexcept {
    greeting theirs;
    const errc verdict = theirs.load(from, bytes);
    if (verdict != errc::ok) return verdict;
    window_.open_sending(theirs.credits);
    const std::size_t longest =
        std::min<std::size_t>(theirs.slot_bytes, engine_.slots().slot_bytes()) - frame_bytes;
    verbs::device& device = engine_.device();
    capabilities_.inline_bytes =
        device.inline_limit() > frame_bytes ? device.inline_limit() - frame_bytes : 0;
    capabilities_.max_message = longest;
    capabilities_.eager_bytes = longest;
    capabilities_.segment_bytes = longest;
    capabilities_.one_sided = true;
    capabilities_.one_sided_offloaded = true;
    capabilities_.needs_registration = true;
    capabilities_.atomics = device.atomics();
    capabilities_.put_before_send = true;
    capabilities_.revokes_at_once = false;
    capabilities_.ends_on_refusal = true;
    return errc::ok;
}

RDMACORO_COLD failed_step session::create_queue_pair() noexcept {
    if (const failed_step held = engine_.hold_resources(bank_, receives_); held.system != 0) return held;
    holds_resources_ = true;
    return {make_queue_pair(), "create a queue pair"};
}

/// With the resources that it holds. 0, or the number of an error.
RDMACORO_COLD int session::make_queue_pair() noexcept {
    ibv_qp_init_attr wanted{};
    wanted.qp_context = this;
    wanted.send_cq = wanted.recv_cq = bank_->queue.get();
    wanted.srq = bank_->shared.get();
    if (wanted.srq == nullptr) {
        wanted.cap.max_recv_wr = engine_.options().credits;
        wanted.cap.max_recv_sge = 1;
    }
    wanted.cap.max_send_wr = engine_.options().send_depth;
    wanted.cap.max_send_sge = 1;
    wanted.cap.max_inline_data = engine_.device().inline_limit();
    wanted.qp_type = IBV_QPT_RC;
    unique_queue_pair made(::ibv_create_qp(engine_.device().domain(), &wanted));
    if (made == nullptr) return errno != 0 ? errno : ENOMEM;
    queue_pair_ = std::move(made);
    if (wanted.srq == nullptr) receives_->open_own(queue_pair_.get());
    number_ = queue_pair_->qp_num;
    window_.open_receiving(engine_.options().credits);
    engine_.add_queue_pair(*this);
    return 0;
}

/// The new one is made before the old one, which nothing has come to, is destroyed: it has another number. 0, or the number of an
/// error.
RDMACORO_COLD int session::replace_queue_pair() noexcept {
    engine_.remove_queue_pair(*this);
    unique_queue_pair old = std::move(queue_pair_);
    const int failed = make_queue_pair();
    old.reset();
    if (bank_->shared != nullptr || failed != 0) return failed;
    // The slots that the old one had.
    receives_->remove_wanted(engine_.options().credits);
    engine_.empty_own(*bank_, *receives_);
    receives_->open_own(queue_pair_.get());
    return receives_->add_wanted(engine_.options().credits) ? 0 : ENOMEM;
}

RDMACORO_COLD int session::modify_by_cm(ibv_qp_state to) noexcept {
    ibv_qp_attr wanted{};
    int mask = 0;
    wanted.qp_state = to;
    if (::rdma_init_qp_attr(id_, &wanted, &mask) != 0) return errno;
    if (to == IBV_QPS_INIT) {
        wanted.qp_access_flags = static_cast<unsigned>(engine_.device().access_flags(access_rights::all));
        mask |= IBV_QP_ACCESS_FLAGS;
    }
    const verbs_options& options = engine_.options();
    if (to == IBV_QPS_RTR && (mask & IBV_QP_AV) != 0) {
        // The connection manager leaves the timer at 0, which is the longest.
        wanted.min_rnr_timer = receive_retry_timer;
        mask |= IBV_QP_MIN_RNR_TIMER;
        if (options.service_level >= 0) wanted.ah_attr.sl = static_cast<std::uint8_t>(options.service_level);
        if (options.traffic_class >= 0 && wanted.ah_attr.is_global != 0)
            wanted.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
    }
    // The connection manager has the connecting side's numbers.
    if (accepting_ && to == IBV_QPS_RTR && (mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0)
        wanted.max_dest_rd_atomic = std::min(wanted.max_dest_rd_atomic, responder_resources_);
    if (accepting_ && to == IBV_QPS_RTS && (mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0)
        wanted.max_rd_atomic = std::min(wanted.max_rd_atomic, initiator_depth_);
    if (to == IBV_QPS_RTS) {
        wanted.timeout = acknowledge_timeout(options.acknowledge_timeout, engine_.device().retries_for_ever(),
                                             wanted.timeout);
        wanted.retry_cnt = acknowledge_retries;
        wanted.rnr_retry = receive_retries;
    }
    if (::ibv_modify_qp(queue_pair_.get(), &wanted, mask) != 0) return errno != 0 ? errno : EIO;
    if (to == IBV_QPS_INIT) receives_->post();
    if (to == IBV_QPS_RTR) could_receive_ = true;
    return 0;
}

RDMACORO_COLD void session::begin_opening(opener& waiter) noexcept {
    opener_ = &waiter;
    awaited_.begin();
    timer_.set(engine_.options().handshake_timeout);
}

RDMACORO_COLD void session::connect_by_cm(const inet_endpoint& to, opener& waiter) noexcept {
    begin_opening(waiter);
    peer_ = to;
    source_ = engine_.device().has_chosen_address() ? 0 : 1;
    if (!resolve_address()) fail_opening(errc::address_invalid, errno, "find a way to the address");
}

/// Looks for a way to the peer: from the domain's own address, where it was opened with one; else from the one that the route names;
/// else, where that is another device's, from one that the device has now. False: there is none left; `errno` is the reason.
RDMACORO_COLD bool session::resolve_address() noexcept {
    constexpr int patience = 2000;  // milliseconds
    constexpr std::uint8_t by_route = 1;
    constexpr std::uint8_t ways = 3;
    verbs::device& device = engine_.device();
    for (; source_ < ways;) {
        const std::uint8_t way = source_++;
        if (id_ != nullptr) ::rdma_destroy_id(std::exchange(id_, nullptr));
        if (::rdma_create_id(engine_.cm_channel(), &id_, static_cast<cm_party*>(this), RDMA_PS_TCP) != 0)
            return false;
        if (const int asked = engine_.options().traffic_class; asked >= 0) {
            auto tos = static_cast<std::uint8_t>(asked);
            static_cast<void>(::rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos));
        }
        if (way > by_route) {
            try {
                device.look_for_address(peer_.address.ss_family);
            } catch (const std::exception&) {
                errno = ENOMEM;
                return false;
            }
        }
        inet_endpoint from = device.address();
        set_port(from, 0);
        const bool fits = from.address.ss_family == peer_.address.ss_family;
        if (way != by_route && !fits) continue;
        inet_endpoint target = peer_;
        if (::rdma_resolve_addr(id_, way == by_route ? nullptr : from.get(), target.get(), patience) == 0)
            return true;
    }
    return false;
}

/// The peer's host believes that the queue pair is still that of an earlier connection, as after a crash: another one is tried.
RDMACORO_COLD void session::try_again() noexcept {
    if (const int failed = replace_queue_pair(); failed != 0)
        return fail_opening(errc::no_resources, failed, "create another queue pair");
    source_ = engine_.device().has_chosen_address() ? 0 : 1;
    if (!resolve_address()) fail_opening(errc::connection_refused, errno, "connect again");
}

/// The reason that a peer gets when it is refused because this step failed.
RDMACORO_COLD std::uint32_t session::refusal_of(const failed_step& how) noexcept {
    return how.name == registering || limited_by_memlock(how.system) ? greeting::no_memory
                                                                     : greeting::no_room;
}

RDMACORO_COLD void session::fail_refused(std::uint32_t refusal) noexcept {
    fail_opening(errc::no_resources, refusal == greeting::no_memory ? ENOBUFS : ECONNREFUSED, "be accepted");
}

RDMACORO_COLD std::uint64_t session::taken() const noexcept { return bank_ != nullptr ? bank_->taken : 0; }
RDMACORO_COLD std::uint64_t session::all_taken_at() const noexcept {
    return bank_ != nullptr ? bank_->all_taken_at() : 1;
}

/// Sends the request to connect. False: `fail_opening` was called.
RDMACORO_COLD bool session::send_cm_request() noexcept {
    if (queue_pair_ == nullptr) {  // else it is the second one, of a stale connection
        if (const failed_step made = create_queue_pair(); made.system != 0) {
            fail_opening(errc::no_resources, made.system, made.name);
            return false;
        }
    }
    int failed = modify_by_cm(IBV_QPS_INIT);
    const greeting::bytes own = engine_.own_greeting().store();
    rdma_conn_param with{};
    with.private_data = own.data();
    with.private_data_len = own.size();
    with.responder_resources = with.initiator_depth = engine_.device().read_depth();
    with.flow_control = 1;
    with.retry_count = acknowledge_retries;
    with.rnr_retry_count = receive_retries;
    with.srq = engine_.shares_receives() ? 1 : 0;
    with.qp_num = number_;
    if (failed == 0 && ::rdma_connect(id_, &with) != 0) failed = errno;
    if (failed == 0) {
        cm_owes_event_ = engine_.device().iwarp();
        return true;
    }
    fail_opening(errc::connection_refused, failed, "request a connection");
    return false;
}

RDMACORO_COLD void session::accept_by_cm(const cm_news& request, opener& waiter) noexcept {
    begin_opening(waiter);
    id_ = request.id;
    id_->context = static_cast<cm_party*>(this);
    accepting_ = true;
    peer_ = endpoint_of(::rdma_get_peer_addr(id_));
    responder_resources_ = std::min(request.responder_resources, engine_.device().read_depth());
    initiator_depth_ = std::min(request.initiator_depth, engine_.device().read_depth());
    if (const errc verdict = take_greeting(request.data.data(), request.bytes); verdict != errc::ok)
        return refuse_request(verdict, {0, "greet"});
    if (engine_.admit_pending(*this)) accept_request();
}

RDMACORO_COLD void session::refuse_request(errc code, const failed_step& how) noexcept {
    greeting said = engine_.own_greeting();
    said.refusal = refusal_of(how);
    const greeting::bytes own = said.store();
    static_cast<void>(::rdma_reject(id_, own.data(), own.size()));
    fail_opening(code, how.system, how.name);
}

/// Of a client that has asked by the connection manager, and has its turn.
RDMACORO_COLD void session::accept_request() noexcept {
    failed_step made = create_queue_pair();
    if (made.system == 0) made = {modify_by_cm(IBV_QPS_INIT), "prepare a queue pair"};
    const bool by_hand = !engine_.device().iwarp();
    if (made.system == 0 && by_hand) made.system = modify_by_cm(IBV_QPS_RTR);
    if (made.system == 0 && by_hand) made.system = modify_by_cm(IBV_QPS_RTS);
    if (made.system != 0) return refuse_request(errc::no_resources, made);
    if (const int asked = engine_.options().traffic_class; asked >= 0) {
        auto tos = static_cast<std::uint8_t>(asked);
        static_cast<void>(::rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos));
    }
    may_send_ = by_hand;
    const greeting::bytes own = engine_.own_greeting().store();
    rdma_conn_param with{};
    with.private_data = own.data();
    with.private_data_len = own.size();
    with.responder_resources = responder_resources_;
    with.initiator_depth = initiator_depth_;
    with.flow_control = 1;
    with.rnr_retry_count = receive_retries;
    with.srq = engine_.shares_receives() ? 1 : 0;
    with.qp_num = number_;
    if (::rdma_accept(id_, &with) != 0) return fail_opening(errc::peer_lost, errno, "accept");
    connected_ = by_hand;
    cm_owes_event_ = !by_hand;
}

/// An accepted client has sent by its queue pair: the last message of its handshake is late or lost, and the connection manager need not
/// wait for it. It reports that the connection is established.
RDMACORO_COLD void session::first_message_came() noexcept {
    if (phase_ == phase::opening && accepting_ && id_ != nullptr && !socket_.is_open())
        static_cast<void>(::rdma_notify(id_, IBV_EVENT_COMM_EST));
}

RDMACORO_COLD void session::cm_event(const cm_news& news) noexcept {
    cm_owes_event_ = false;
    if (phase_ == phase::opening) return socket_.is_open() ? peer_found(news) : opening_event(news);
    switch (news.type) {
        case RDMA_CM_EVENT_DISCONNECTED:
        case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            cm_over_ = true;
            fail(errc::peer_lost);
            break;
        default: break;
    }
}

RDMACORO_COLD void session::opening_event(const cm_news& news) noexcept {
    constexpr int patience = 2000;  // milliseconds
    switch (news.type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            if (!engine_.device().has(*id_)) {
                if (resolve_address()) return;
                return fail_opening(errc::address_invalid, 0, "reach the address by the domain's device");
            }
            if (::rdma_resolve_route(id_, patience) != 0)
                fail_opening(errc::connection_refused, errno, "find a route");
            return;
        case RDMA_CM_EVENT_ROUTE_RESOLVED: static_cast<void>(send_cm_request()); return;
        case RDMA_CM_EVENT_CONNECT_RESPONSE: {
            if (const errc verdict = take_greeting(news.data.data(), news.bytes); verdict != errc::ok)
                return fail_opening(verdict, 0, "greet");
            int failed = modify_by_cm(IBV_QPS_RTR);
            if (failed == 0) failed = modify_by_cm(IBV_QPS_RTS);
            if (failed == 0 && ::rdma_establish(id_) != 0) failed = errno;
            connected_ = true;
            if (failed != 0) return fail_opening(errc::peer_lost, failed, "establish the connection");
            return become_ready();
        }
        case RDMA_CM_EVENT_ESTABLISHED:
            if (!accepting_) {
                if (const errc verdict = take_greeting(news.data.data(), news.bytes); verdict != errc::ok)
                    return fail_opening(verdict, 0, "greet");
                want_hello_ = true;
                connected_ = true;
            }
            connected_ = could_receive_ = true;  // over iWARP the device has changed the states
            // On iWARP the accepting side becomes ready with the peer's first frame.
            if (may_send_) become_ready();
            return;
        case RDMA_CM_EVENT_ADDR_ERROR:
            if (resolve_address()) return;
            return fail_opening(errc::timed_out, -news.status, "find the address");
        case RDMA_CM_EVENT_DEVICE_REMOVAL:  // of another device, to which the address led at first
            if (!accepting_ && resolve_address()) return;
            return fail_opening(errc::peer_lost, -news.status, "connect");
        case RDMA_CM_EVENT_ROUTE_ERROR: return fail_opening(errc::timed_out, -news.status, "find a route");
        case RDMA_CM_EVENT_UNREACHABLE: return fail_opening(errc::timed_out, -news.status, "connect");
        case RDMA_CM_EVENT_REJECTED: {
            constexpr int stale_connection = 10;  // a reason of InfiniBand's connection manager
            constexpr unsigned most_stale = 3;
            if (accepting_) return fail_opening(errc::peer_lost, 0, "accept");
            if (news.status == stale_connection && ++stale_ <= most_stale) return try_again();
            // A peer that rejects sends its greeting; a host without a listener sends nothing.
            greeting theirs;
            const errc verdict = theirs.load(news.data.data(), news.bytes);
            if (verdict == errc::ok) return fail_refused(theirs.refusal);
            return fail_opening(verdict == errc::version_mismatch ? verdict : errc::connection_refused,
                                news.status < 0 ? -news.status : 0, "connect");
        }
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_DISCONNECTED: return fail_opening(errc::peer_lost, -news.status, "connect");
        default: return;
    }
}

RDMACORO_COLD void session::device_gone() noexcept {
    cm_over_ = true;
    if (phase_ == phase::opening) return fail_opening(errc::unsupported, ENODEV, "open");
    if (phase_ == phase::ready) fail(errc::peer_lost);
}

RDMACORO_COLD void session::no_longer_pending() noexcept {
    static_cast<list_node<pending_tag>&>(*this).unlink();
    if (std::exchange(pending_, false)) engine_.pending_over(*this);
}

RDMACORO_COLD void session::become_ready() noexcept {
    no_longer_pending();
    phase_ = phase::ready;
    if (engine_.options().keepalive > duration::zero()) {
        timer_.set(engine_.options().keepalive);
    } else {
        timer_.cancel();
    }
    awaited_.end();
    mark_work();
    if (opener* waiter = std::exchange(opener_, nullptr)) waiter->opened(*this, {});
}

RDMACORO_COLD void session::fail_opening(errc code, int system, const char* step) noexcept {
    opener* const waiter = std::exchange(opener_, nullptr);
    no_longer_pending();
    let_go(false);
    owned_ = false;
    if (waiter != nullptr) waiter->opened(*this, {code, system, step});
}

}  // namespace rdmacoro::detail::verbs
