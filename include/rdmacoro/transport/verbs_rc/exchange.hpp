// How a connection of a verbs domain opens by an exchange of queue-pair data over TCP. Included by engine.hpp alone.
//
// Both sides send a card, make their queue pair ready, and send one byte more; who has got that byte may send messages. The
// socket stays open: its end is the end of the link, so that the death of an idle peer is noticed.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>

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
struct exchange_state {
    bool connecting = false;
    bool carded = false;  // the peer's card is taken
    std::size_t sent = 0;
    std::size_t to_send = exchange_card::wire_bytes;
    std::size_t got = 0;
    std::uint32_t sequence = 0;
    std::array<std::byte, exchange_card::wire_bytes + 1> out{};  // the card, and the byte
    std::array<std::byte, exchange_card::wire_bytes + 1> in{};
};

inline void core::connect_by_socket(const inet_endpoint& to, opener& who) noexcept {
    const int fd = ::socket(to.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    peer_ = to;
    if (fd >= 0 && ::connect(fd, to.get(), to.bytes) != 0 && errno != EINPROGRESS) {
        const int why = errno;
        ::close(fd);
        opener_ = &who;
        return fail_opening(errc::connection_refused, why, "connect");
    }
    accept_by_socket(fd, who);
    if (exchange_ != nullptr) exchange_->connecting = true;
}

/// Takes the socket over; the two sides do the same.
inline void core::accept_by_socket(int fd, opener& who) noexcept {
    opener_ = &who;
    awaited_ = true;
    engine_.awaits();
    set_timer(engine_.options().handshake_timeout);
    socket_ = fd;
    if (fd < 0) return fail_opening(errc::no_resources, errno, "open a socket");
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
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
    own.store(exchange_->out.data());
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

inline void core::on_socket(std::uint32_t events) noexcept {
    if (phase_ == phase::opening) return exchange_step(events);
    // Nothing is said there any more: whatever it tells, the peer is gone.
    engine_.unwatch(*this);
    peer_gone();
}

inline void core::exchange_step(std::uint32_t) noexcept {
    exchange_state& x = *exchange_;
    if (x.connecting) {
        int why = 0;
        socklen_t bytes = sizeof why;
        if (::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &why, &bytes) != 0) why = errno;
        if (why != 0)
            return fail_opening(why == ETIMEDOUT || why == EHOSTUNREACH ? errc::timed_out
                                                                        : errc::connection_refused,
                                why, "connect");
        const inet_endpoint peer = inet_endpoint::peer(socket_);
        if (peer.bytes == 0) return;  // not yet
        x.connecting = false;
    }
    const auto say = [&]() noexcept {
        while (x.sent < x.to_send) {
            const ssize_t n = ::send(socket_, x.out.data() + x.sent, x.to_send - x.sent, MSG_NOSIGNAL);
            if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
            x.sent += static_cast<std::size_t>(n);
        }
        return true;
    };
    if (!say()) return fail_opening(errc::peer_lost, errno, "greet");
    while (x.got < x.in.size()) {
        const ssize_t n = ::recv(socket_, x.in.data() + x.got, x.in.size() - x.got, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) return fail_opening(errc::peer_lost, n < 0 ? errno : 0, "greet");
        x.got += static_cast<std::size_t>(n);
        if (x.carded || x.got < exchange_card::wire_bytes) continue;
        x.carded = true;
        exchange_card card;
        card.load(x.in.data());
        if (const errc verdict = take_greeting(card.hello.data(), card.hello.size()); verdict != errc::ok)
            return fail_opening(verdict, 0, "greet");
        if (const int failed = connect_queue_pair(card); failed != 0)
            return fail_opening(errc::connection_refused, failed, "connect the queue pairs");
        ++x.to_send;
        if (!say()) return fail_opening(errc::peer_lost, errno, "greet");
    }
    if (x.got < x.in.size() || x.sent < x.to_send) {
        const std::uint32_t wanted = EPOLLIN | EPOLLRDHUP | (x.sent < x.to_send ? EPOLLOUT : 0u);
        static_cast<void>(engine_.watch(*this, socket_, wanted));
        return;
    }
    static_cast<void>(engine_.watch(*this, socket_, EPOLLIN | EPOLLRDHUP));
    exchange_.reset();
    connected_ = true;
    become_ready();
}

}  // namespace rdmacoro::detail::verbs
