// The steps around the windows of get and put: what the listening side does for them, on request.
#pragma once

#include "exchange.hpp"
#include "peer.hpp"

#include <rdmacoro/coro/task.hpp>

#include <cstdint>

namespace pingpong {

/// Asks for a step, and waits until it is done, unless it is the end.
rdmacoro::task<> ask_step(peer& of, step_message::what what, std::uint64_t number);

/// Tells now and then how far this side is, until asked to stop: the listening side sees nothing of gets and puts.
rdmacoro::task<> tell_progress(peer& to);

/// The listening side's part: prepares and checks windows until the end is asked for.
rdmacoro::task<> answer_steps(peer& to, exchange& x);

/// Forgets the time of an exchange, which the connecting side measures.
rdmacoro::task<> without_ticks(rdmacoro::task<tick_count> measured);

}  // namespace pingpong
