// Two domains of a simulated network in which time passes only while all wait: limits are exact there, however slow the machine is.
#pragma once

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/sim.hpp>

namespace rdmacoro::test {

/// Runs `body(left, right)`, a task.
template <class Body>
void in_virtual_time(Body body) {
    sim_world world;
    scheduler on{idle::spin{}, world.time()};
    sim::domain left(on, {.world = &world});
    sim::domain right(on, {.world = &world});
    on.run(body(left, right));
}
inline duration time_since(time_point begin) { return scheduler::current()->now() - begin; }

}  // namespace rdmacoro::test
