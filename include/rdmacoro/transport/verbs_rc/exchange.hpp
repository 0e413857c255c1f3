// How a connection of a verbs domain opens by an exchange of queue-pair data over TCP. Included by engine.hpp alone.
//
// Both sides send a card, make their queue pair ready, and send one byte more; who has got that byte may send messages. The
// socket stays open: its end is the end of the link, so that the death of an idle peer is noticed.
#pragma once

#include <rdmacoro/transport/detail/card_exchange.hpp>
#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <sys/random.h>

namespace rdmacoro::detail::verbs {

/// What one side says about its queue pair.
struct exchange_card {
    static constexpr std::size_t wire_bytes = greeting::wire_bytes + 32;

    greeting::bytes hello{};
    std::uint32_t number = 0;    // of the queue pair
    std::uint32_t sequence = 0;  // of its first packet
    std::uint16_t lid = 0;
    std::uint8_t mtu = 0;  // ibv_mtu
    std::uint8_t read_depth = 0;
    std::uint32_t flags = 0;
    ibv_gid gid{};

    void store(std::byte* to) const noexcept {
        std::memcpy(to, hello.data(), hello.size());
        to += hello.size();
        store_number(to, number);
        store_number(to + 4, sequence);
        store_number(to + 8, lid);
        store_number(to + 10, mtu);
        store_number(to + 11, read_depth);
        store_number(to + 12, flags);
        std::memcpy(to + 16, gid.raw, sizeof gid.raw);
    }
    void load(const std::byte* from) noexcept {
        std::memcpy(hello.data(), from, hello.size());
        from += hello.size();
        number = load_number<std::uint32_t>(from) & 0xffffff;
        sequence = load_number<std::uint32_t>(from + 4) & 0xffffff;
        lid = load_number<std::uint16_t>(from + 8);
        mtu = load_number<std::uint8_t>(from + 10);
        read_depth = load_number<std::uint8_t>(from + 11);
        flags = load_number<std::uint32_t>(from + 12);
        std::memcpy(gid.raw, from + 16, sizeof gid.raw);
    }
};

/// The socket's side of opening.
struct exchange_state : card_exchange<exchange_card::wire_bytes> {
    std::uint32_t sequence = 0;
};

inline void core::connect(const inet_endpoint& to, opener& who) noexcept {
    if (engine_.by_cm()) return connect_by_cm(to, who);
    connect_by_socket(to, who);
}

inline void core::connect_by_socket(const inet_endpoint& to, opener& who) noexcept {
    int refused = 0;
    const int fd = connect_for_cards(to, refused);
    peer_ = to;
    if (refused != 0) {
        opener_ = &who;
        return fail_opening(errc::connection_refused, refused, "connect");
    }
    accept_by_socket(fd, who);
    if (exchange_ != nullptr) exchange_->connects();
}

/// Takes the socket over; the two sides do the same.
inline void core::accept_by_socket(int fd, opener& who) noexcept {
    opener_ = &who;
    awaited_ = true;
    engine_.awaits();
    set_timer(engine_.options().handshake_timeout);
    socket_ = fd;
    if (fd < 0) return fail_opening(errc::no_resources, errno, "open a socket");
    set_card_options(fd);
    if (peer_.bytes == 0) peer_ = inet_endpoint::peer(fd);
    exchange_.reset(new (std::nothrow) exchange_state);
    int failed = exchange_ == nullptr ? ENOMEM : create_queue_pair();
    if (failed == 0) {
        verbs::device& device = engine_.device();
        ibv_qp_attr wanted{};
        wanted.qp_state = IBV_QPS_INIT;
        wanted.port_num = device.port();
        wanted.qp_access_flags = static_cast<unsigned>(device.access_flags(access_rights::all));
        failed = ::ibv_modify_qp(queue_pair_.get(), &wanted,
                                 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    }
    if (failed != 0) return fail_opening(errc::no_resources, failed, "create a queue pair");
    verbs::device& device = engine_.device();
    if (::getrandom(&exchange_->sequence, sizeof exchange_->sequence, 0) < 0) exchange_->sequence = number_;
    exchange_->sequence &= 0xffffff;
    exchange_card own;
    own.hello = engine_.own_greeting().store();
    own.number = number_;
    own.sequence = exchange_->sequence;
    own.lid = device.port_attributes().lid;
    own.mtu = static_cast<std::uint8_t>(device.port_attributes().active_mtu);
    own.read_depth = device.read_depth();
    own.gid = device.gid();
    own.store(exchange_->own_card());
    if (!engine_.watch(*this, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP))
        fail_opening(errc::no_resources, errno, "watch a socket");
}

inline int core::connect_queue_pair(const exchange_card& peer) noexcept {
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
    wanted.sq_psn = exchange_->sequence;
    wanted.timeout = acknowledge_timeout;
    wanted.retry_cnt = acknowledge_retries;
    wanted.rnr_retry = receive_retries;
    wanted.max_rd_atomic = std::clamp<std::uint8_t>(peer.read_depth, 1, device.read_depth());
    return ::ibv_modify_qp(queue_pair_.get(), &wanted,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

inline void core::on_socket(std::uint32_t) noexcept {
    if (phase_ == phase::opening) return exchange_step();
    // Nothing is said there any more: whatever it tells, the peer is gone.
    engine_.unwatch(*this);
    peer_gone();
}

inline void core::exchange_step() noexcept {
    for (;;) {
        switch (exchange_->go_on(socket_)) {
            case exchange_state::step::wait:
                static_cast<void>(engine_.watch(*this, socket_, exchange_->wanted()));
                return;
            case exchange_state::step::card:
                if (!take_card()) return;
                break;
            case exchange_state::step::done:
                static_cast<void>(engine_.watch(*this, socket_, EPOLLIN | EPOLLRDHUP));
                exchange_.reset();
                connected_ = true;
                return become_ready();
            case exchange_state::step::failed: {
                const auto how = exchange_->failure();
                return fail_opening(how.code, how.system, how.step);
            }
        }
    }
}

/// False: `fail_opening` was called.
inline bool core::take_card() noexcept {
    const auto refuse = [this](errc code, int system, const char* step) noexcept {
        fail_opening(code, system, step);
        return false;
    };
    exchange_card card;
    card.load(exchange_->card());
    if (const errc verdict = take_greeting(card.hello.data(), card.hello.size()); verdict != errc::ok)
        return refuse(verdict, 0, "greet");
    if (const int failed = connect_queue_pair(card); failed != 0)
        return refuse(errc::connection_refused, failed, "connect the queue pairs");
    if (exchange_->answer(socket_, std::byte{0})) return true;
    return refuse(exchange_->failure().code, exchange_->failure().system, exchange_->failure().step);
}

}  // namespace rdmacoro::detail::verbs
