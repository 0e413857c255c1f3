#include <rdmacoro/transport/sim/world.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/actor.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <vector>

namespace test_transport_sim_world {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("virtual time jumps to the next timer and to nothing else") {
    sim_world world;
    scheduler on(impatient{}, world.time());
    sim_options options;
    options.world = &world;
    sim::domain node(on, options);
    on.run([](sim_world& w) -> task<> {
        const duration before = w.now();
        co_await sleep_for(3h);
        CHECK(w.now() - before == 3h);
    }(world));
}

TEST_CASE("the nodes of a world share one scheduler") {
    sim_world world;
    scheduler one(impatient{}, world.time());
    scheduler other(impatient{}, world.time());
    sim_options options;
    options.world = &world;
    sim::domain node(one, options);
    try {
        sim::domain second(other, options);
        FAIL("a second scheduler was accepted");
    } catch (const error& refused) {
        CHECK(refused.code() == errc::invalid_argument);
    }
}

TEST_CASE("memory that its owner has back is watched until it is lent again") {
    sim_world_options options;
    options.violations_are_fatal = false;
    options.keeps_log = true;
    sim_world world(options);
    std::vector<std::byte> memory(100);
    world.touch(memory, "a test");
    CHECK(world.violations().empty());
    world.finished(std::span(memory).subspan(10, 10));
    world.touch(std::span(memory).subspan(0, 10), "a test");
    CHECK(world.violations().empty());
    world.touch(std::span(memory).subspan(19, 5), "a test");
    REQUIRE(world.violations().size() == 1);
    CHECK_THAT(world.violations().front(), contains("a test touches memory"));
    CHECK_THAT(world.log().back(), contains("VIOLATION"));
    world.borrowed(memory);
    world.touch(memory, "a test");
    CHECK(world.violations().size() == 1);
}

TEST_CASE("an event's key is written for people") {
    using detail::sim::event_key;
    using detail::sim::event_kind;
    CHECK(sim_world::described(event_key::of(event_kind::deliver, 3, 7)) == "deliver lane 3 #7");
    CHECK(sim_world::described(event_key::of(event_kind::step, 1, 0)) == "step actor 1 #0");
}

TEST_CASE("one seed gives one trace") {
    const auto hash = [](std::uint64_t seed) {
        sim_world_options of_world;
        of_world.seed = seed;
        of_world.jitter = 1us;
        sim_world world(of_world);
        scheduler on(impatient{}, world.time());
        sim_options options;
        options.world = &world;
        sim::domain node(on, options);
        sim_actor actor(node);
        on.run([](sim_actor& a) -> task<> {
            for (int n = 0; n < 20; ++n) co_await a.step();
        }(actor));
        CHECK(world.events() == 20);
        return world.trace_hash();
    };
    CHECK(hash(1) == hash(1));
    CHECK(hash(1) != hash(2));
}

}  // namespace test_transport_sim_world
