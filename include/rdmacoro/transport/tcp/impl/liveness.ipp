// Keepalive of idle tcp links, and the watch over unacknowledged data.
#pragma once

#include <rdmacoro/transport/tcp/engine.hpp>
#include <rdmacoro/transport/tcp/liveness.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace rdmacoro::detail {

RDMACORO_COLD tcp_liveness::tcp_liveness(scheduler& owner, duration limit) noexcept
    : owner_(owner), limit_(std::max(limit, least_limit)) {
    expired = [](timer_node& self) noexcept { static_cast<tcp_liveness&>(self).look(); };
}

RDMACORO_COLD tcp_liveness::~tcp_liveness() { owner_.remove_timer(*this); }

RDMACORO_COLD void tcp_liveness::watch(tcp_session& session) noexcept {
    session.silent_ = false;
    watched_.push_back(session);
    if (!timer_node::queued()) begin();
}

// A link that ends may send on another one of the domain, which is watched from then on: the timer may be set already.
RDMACORO_COLD void tcp_liveness::begin() noexcept {
    owner_.remove_timer(*this);
    deadline = deadline_after(owner_.now(), to_look_at_.empty() ? limit_ / 8 : std::chrono::milliseconds(1));
    owner_.add_timer(*this);
}

/// A link ends when two looks in a row find it silent: data that was sent a moment ago is not acknowledged yet, though the
/// last acknowledgement may be old.
RDMACORO_COLD void tcp_liveness::look() noexcept {
    if (to_look_at_.empty()) to_look_at_.splice_back(watched_);
    const std::int64_t limit = std::chrono::duration_cast<std::chrono::milliseconds>(limit_).count();
    for (unsigned count = 0; count < at_a_time && !to_look_at_.empty(); ++count) {
        tcp_session& session = *to_look_at_.pop_front();
        int waiting = 0;  // bytes that are not sent or not acknowledged
        tcp_info now{};
        socklen_t bytes = sizeof now;
        if (::ioctl(session.fd_, SIOCOUTQ, &waiting) != 0 || waiting == 0) continue;
        if (::getsockopt(session.fd_, IPPROTO_TCP, TCP_INFO, &now, &bytes) != 0) continue;
        const bool was_silent = session.silent_;
        // A peer that is alive answers each retransmission, and each probe but those within half a second of the one before,
        // however long its window stays closed. The kernel makes these further and further apart, at most two minutes.
        const std::int64_t quiet = now.tcpi_last_ack_recv;
        const bool unanswered =
            now.tcpi_probes >= 2 || (now.tcpi_unacked != 0 && now.tcpi_last_data_sent < quiet);
        session.silent_ = quiet >= limit && (unanswered || quiet >= limit + 120'000);
        if (was_silent && session.silent_ && session.up_ == nullptr) {
            ::shutdown(session.fd_, SHUT_RDWR);  // the link that takes it finds the end of the stream
        } else if (was_silent && session.silent_) {
            session.close(make_error_code(errc::peer_lost));
        } else {
            watched_.push_back(session);
        }
    }
    if (!watched_.empty() || !to_look_at_.empty()) begin();
}

}  // namespace rdmacoro::detail
