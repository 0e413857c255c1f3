#pragma once

// Two connected nodes of a simulated network.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/recording_sink.hpp"
#include "support/run.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

namespace rdmacoro::test {

inline sim_world_options costing(const sim_costs& costs) {
    sim_world_options o;
    o.costs = costs;
    o.violations_are_fatal = false;
    return o;
}

/// A completion that remembers how and when it came.
struct ended : completion {
    sim_world* world = nullptr;
    bool over = false;
    std::error_code outcome{};
    duration at{};

    explicit ended(sim_world& in) : world(&in) {
        done = [](completion& c, std::error_code why) noexcept {
            auto& self = static_cast<ended&>(c);
            self.over = true;
            self.outcome = why;
            self.at = self.world->now();
        };
    }
};

/// A world with two connected nodes, in virtual time.
struct pair_of_nodes {
    using link_type = sim::link<recording_sink>;

    sim_world world;
    scheduler on{impatient{}, world.time()};
    std::unique_ptr<sim::domain> a;
    std::unique_ptr<sim::domain> b;
    recording_sink at_a;
    recording_sink at_b;
    std::unique_ptr<link_type> to_b;
    std::unique_ptr<link_type> to_a;

    explicit pair_of_nodes(const sim_world_options& options = costing({}), sim_options nodes = {})
        : world(options) {
        nodes.world = &world;
        a = std::make_unique<sim::domain>(on, nodes);
        b = std::make_unique<sim::domain>(on, nodes);
        on.run([](pair_of_nodes& self) -> task<> {
            auto listening = co_await self.b->listen("b");
            auto near = co_await self.a->connect("sim://b");
            auto far = co_await listening.accept();
            self.to_b = std::make_unique<link_type>(std::move(near), self.at_a);
            self.to_a = std::make_unique<link_type>(std::move(far), self.at_b);
        }(*this));
    }

    /// Until nothing happens any more, or so long.
    void settle(duration limit = std::chrono::seconds(1)) {
        on.run([](duration time) -> task<> { co_await sleep_for(time); }(limit));
    }
    post_result post(std::uint64_t number, std::span<const std::byte> payload, completion& c) {
        return to_b->post(header_of(number), const_buffers(payload), c);
    }
};

}  // namespace rdmacoro::test
