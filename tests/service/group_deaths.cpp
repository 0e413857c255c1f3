// Ranks that die at any time, each of which its peers find dead one after the other, as real processes do: those that are left are all in the
// last group.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/sanitizer.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/with_stop.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace test_service_group_deaths {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// What a seed stands for.
struct plan {
    explicit plan(unsigned seed) : random(seed * 7919U + 17U) {
        random.discard(5);
        size = 3 + below(5);
        deaths = std::min(size - 1, 2 + below(2));
        spread = below(2) != 0 ? duration(5000 + below(40'000)) : duration(1000);
        keeps_groups = below(2) != 0;
        world.seed = seed + 1;
        if (below(2) != 0) world.jitter = duration(below(3000));
    }
    unsigned below(unsigned limit) { return static_cast<unsigned>(random() >> 8) % limit; }
    duration up_to(duration most) { return duration(1 + below(static_cast<unsigned>(most.count()))); }

    std::minstd_rand random;
    unsigned size = 0;
    unsigned deaths = 0;
    duration spread{};  ///< up to so much between two peers that find a rank dead
    bool keeps_groups = false;
    sim_world_options world;
};

class deadly_job {
public:
    deadly_job(plan& of, sim_world& world)
        : plan_(of),
          all_(of.size, {}, ranks<sim>::usual(), in(world)),
          dead_(of.size),
          last_(of.size),
          stops_(of.size) {}

    task<> run() {
        co_await all_.open();
        for (unsigned rank = 0; rank < all_.size(); ++rank) all_.state(rank).checks = false;
        const auto connect = [](group& g) -> task<> {
            std::vector<std::uint8_t> x(g.size());
            co_await g.alltoall(in_place, x);
        };
        co_await all_.each(connect);
        task_group parts;
        parts.spawn([this] { return kill_some(); });
        for (unsigned rank = 0; rank < all_.size(); ++rank)
            parts.spawn([this, rank] { return stoppable(work(rank), stops_[rank].get_token()); });
        co_await timeout(parts.join(), 300s);
        for (unsigned rank = 0; rank < all_.size(); ++rank) {
            if (!dead_[rank] && last_[rank] != plan_.size - plan_.deaths)
                wrong += "rank " + std::to_string(rank) + " ended in a group of " +
                         std::to_string(last_[rank]) + "; ";
        }
    }

    std::string wrong;
    unsigned amid_shrink = 0;  ///< ranks that died while others shrank

private:
    static task<> stoppable(task<> what, local_stop_token token) {
        static_cast<void>(co_await as_result(with_stop(std::move(what), token)));
    }
    /// Ends with whether all ranks of the group know that no more will die.
    static task<bool> round(const group& g, bool is_over) {
        std::uint32_t x[2] = {is_over ? 1U : 0U, 1U};
        co_await g.allreduce(in_place, std::span<std::uint32_t>(x), std::plus<>());
        if (x[1] != g.size()) throw std::runtime_error("the sum is wrong");
        co_return x[0] == g.size();
    }

    /// Collectives until no rank dies any more, and `shrink` where one fails.
    task<> work(unsigned rank) {
        group g = all_.at(rank);
        std::vector<group> former;
        if (!plan_.keeps_groups) all_.leave(rank);
        for (int rounds = 0; rounds < 2000; ++rounds) {
            const result<bool> ended = co_await as_result(timeout(round(g, is_over_), 30s));
            if (dead_[rank]) co_return;
            if (ended && *ended) {
                last_[rank] = g.size();
                co_return;
            }
            if (!ended) {
                if (plan_.below(2) != 0) co_await sleep_for(plan_.up_to(10us));
                ++shrinking_;
                result<group> made = co_await as_result(timeout(g.shrink(), 30s));
                --shrinking_;
                if (dead_[rank]) co_return;
                if (!made) {
                    wrong += "rank " + std::to_string(rank) + ": shrink: " + made.error().message() + "; ";
                    co_return;
                }
                if (plan_.keeps_groups) former.push_back(g);
                g = std::move(*made);
            }
            co_await sleep_for(plan_.up_to(4us));
        }
        wrong += "rank " + std::to_string(rank) + " does not end; ";
    }

    task<> kill_some() {
        task_group dying;
        for (unsigned n = 0; n < plan_.deaths; ++n) {
            co_await sleep_for(plan_.up_to(n == 0 || plan_.below(3) != 0 ? 20us : 100us));
            unsigned victim = plan_.below(plan_.size);
            while (dead_[victim]) victim = (victim + 1) % plan_.size;
            dead_[victim] = true;
            if (shrinking_ != 0) ++amid_shrink;
            dying.spawn([this, victim] { return die(victim); });
        }
        co_await dying.join();
        co_await sleep_for(3ms);
        is_over_ = true;
    }
    /// Nothing more comes from it nor goes to it, and its peers find that out in any order.
    task<> die(unsigned victim) {
        sim::domain& network = all_.network_of(victim);
        std::vector<unsigned> others;
        for (unsigned other = 0; other < plan_.size; ++other) {
            if (other != victim) others.push_back(other);
        }
        std::shuffle(others.begin(), others.end(), plan_.random);
        std::size_t found = 0;
        const auto hold = [&] {  // connections that are made meanwhile, too
            for (const unsigned other : std::span(others).subspan(found)) {
                network.hold_messages_to(all_.network_of(other), true);
                all_.network_of(other).hold_messages_to(network, true);
            }
        };
        hold();
        stops_[victim].request_stop();
        while (found < others.size()) {
            network.drop_links_to(all_.network_of(others[found++]));
            for (duration left = plan_.up_to(plan_.spread); left > 0ns; left -= 500ns) {
                co_await sleep_for(std::min<duration>(left, 500ns));
                hold();
            }
        }
        for (const duration pause : {5us, 50us, 50us}) {
            for (const unsigned other : others) network.drop_links_to(all_.network_of(other));
            co_await sleep_for(pause);
        }
        network.set_silent(true);
    }

    plan& plan_;
    ranks<sim> all_;
    std::vector<bool> dead_;
    std::vector<unsigned> last_;  // the size of a rank's last group
    std::vector<local_stop_source> stops_;
    unsigned shrinking_ = 0;
    bool is_over_ = false;
};

/// Runs seeds `[first, last)`. What was wrong, with its seed; how many ranks died while others shrank.
std::pair<std::string, unsigned> run_seeds(unsigned first, unsigned last) {
    std::pair<std::string, unsigned> found;
    for (unsigned seed = first; seed < last; ++seed) {
        plan of(seed);
        std::string wrong;
        try {
            run_simulated(of.world, [&](sim_world& world) -> task<> {
                deadly_job one(of, world);
                co_await one.run();
                wrong = one.wrong;
                found.second += one.amid_shrink;
            });
        } catch (const std::exception& e) {
            wrong += std::string("thrown: ") + e.what();
        }
        if (!wrong.empty() && found.first.size() < 2000)
            found.first += "seed " + std::to_string(seed) + ": " + wrong + "\n";
    }
    return found;
}

}  // namespace

TEST_CASE("of ranks that die one after the other and are found dead by each peer at another time all others "
          "are left") {
    const auto [wrong, amid_shrink] = run_seeds(0, under_sanitizer ? 150 : 1500);
    CHECK(wrong == "");
    CHECK(amid_shrink > 20);
}

TEST_CASE("the same of fifty thousand jobs", "[nightly]") {
    const auto [wrong, amid_shrink] = run_seeds(10'000, 60'000);
    CHECK(wrong == "");
    CHECK(amid_shrink > 1000);
}

}  // namespace test_service_group_deaths
