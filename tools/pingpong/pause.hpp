// A pause of what stands beside a measurement.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/task.hpp>

namespace pingpong {

/// False: the coroutine is to stop. An idle strategy, which learns from a program's sleeps, sees none: the measured side idles as it does
/// without the pause.
[[nodiscard]] rdmacoro::task<bool> pause(rdmacoro::duration time);

}  // namespace pingpong
