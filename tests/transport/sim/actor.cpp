#include <rdmacoro/transport/sim/actor.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace test_transport_sim_actor {

using namespace rdmacoro;
using namespace std::chrono_literals;

TEST_CASE("a step of an actor is an event of its world, in the order of time") {
    sim_world world;
    scheduler on(test::impatient{}, world.time());
    sim_options options;
    options.world = &world;
    sim::domain node(on, options);
    sim_actor actor(node);
    on.run([](sim_actor& a, sim_world& w) -> task<> {
        const auto before = w.events();
        co_await a.step();
        co_await a.step();
        CHECK(w.events() == before + 2);
    }(actor, world));
}

TEST_CASE("a step that is canceled is no event any more") {
    sim_world_options slow;
    slow.jitter = 1h;
    slow.seed = 3;
    sim_world world(slow);
    scheduler on(test::impatient{}, world.time());
    sim_options options;
    options.world = &world;
    sim::domain node(on, options);
    sim_actor actor(node);
    on.run([](sim_actor& a, sim_world& w) -> task<> {
        local_stop_source stop;
        auto stepping = start(as_result(with_stop(a.step(), stop.get_token())));
        REQUIRE_FALSE(w.queue().empty());
        stop.request_stop();
        const auto ended = co_await stepping;
        CHECK(ended.error() == errc::canceled);
        CHECK(w.queue().empty());
        CHECK(w.events() == 0);
    }(actor, world));
}

}  // namespace test_transport_sim_actor
