// Bodies of taken_port.hpp.
#pragma once

#include <rdmacoro/coro/detail/described_step.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/transport/detail/taken_port.hpp>

#include <algorithm>
#include <string>

namespace rdmacoro::detail {

inline constexpr wait_facts taken_port_facts{"listen", "the port is taken, the next attempt is to come",
                                             next_actor::time};

RDMACORO_COLD taken_port::taken_port(scheduler& on, const inet_address& address)
    : on_(on),
      address_(address.whole),
      until_(on.now() + patience),
      any_port_(address.port.find_first_not_of('0') == std::string::npos) {}

RDMACORO_COLD bool taken_port::may_come_free(std::error_code why) noexcept {
    return why == errc::address_in_use && !any_port_ && on_.now() < until_;
}

RDMACORO_COLD task<> taken_port::wait() {
    const duration left = std::min(pause, until_ - on_.now());
    const described_step pausing(on_, taken_port_facts, address_, until_);
    co_await sleep_operation(std::max(left, duration::zero()), false);
}

}  // namespace rdmacoro::detail
