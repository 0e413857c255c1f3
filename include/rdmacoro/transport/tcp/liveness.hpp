// tcp_liveness: notices hosts that vanish while data is under way to them.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/transport/detail/keepalive.hpp>

#include <cstdint>

namespace rdmacoro {
class scheduler;
}

namespace rdmacoro::detail {

class tcp_session;
struct tcp_sent_tag;

/// Watches the links that data was sent over, until it is acknowledged. A link ends with `errc::peer_lost` when its peer's
/// kernel has acknowledged nothing for `limit`, and answers no probe of a closed window either. A closed window alone, of
/// a peer that computes or was stopped, ends nothing; the system's TCP_USER_TIMEOUT counts it as silence.
///
/// Costs a branch for each send, and some system calls for each watched link and period, of which one fits eight times into
/// the limit. Idle links are the business of the kernel's probes.
class tcp_liveness : private timer_node {
public:
    /// Links looked at without a turn of the scheduler in between.
    static constexpr unsigned at_a_time = 64;
    static constexpr duration least_limit = std::chrono::seconds(1);

    tcp_liveness(scheduler& owner, duration limit) noexcept;
    tcp_liveness(const tcp_liveness&) = delete;
    tcp_liveness& operator=(const tcp_liveness&) = delete;
    ~tcp_liveness();

    /// The kernel took bytes of this session, which is not watched yet.
    void watch(tcp_session& session) noexcept;

private:
    void begin() noexcept;
    void look() noexcept;

    scheduler& owner_;
    duration limit_;
    intrusive_list<tcp_session, tcp_sent_tag> watched_;
    intrusive_list<tcp_session, tcp_sent_tag> to_look_at_;  // of this period
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/session.hpp>
#endif
