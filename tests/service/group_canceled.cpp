// Random programs of ranks that all live, cancel what they wait for at any moment, shrink and go on: what ends well has the right value, nothing
// hangs, and all ranks are of the last group.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/sanitizer.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/when_any.hpp>
#include <rdmacoro/coro/with_stop.hpp>

#include <cstdint>
#include <exception>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_service_group_canceled {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// The same everywhere.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + 1;
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
}

struct plan {
    explicit plan(unsigned seed) : number(seed), random(seed * 7919U + 17U) {
        random.discard(5);
        size = 2 + below(5);
        world.seed = seed + 1;
        if (below(2) != 0) world.jitter = duration(below(3000));
        keeps_groups = below(2) != 0;
        checks = below(3) == 0;
        one_in = 2 + below(30);
        longest = below(2) != 0 ? 30us : 300us;
    }
    unsigned below(unsigned limit) { return static_cast<unsigned>(random() >> 8) % limit; }
    duration up_to(duration most) { return duration(below(static_cast<unsigned>(most.count()))); }

    unsigned number;
    std::minstd_rand random;
    unsigned size = 0;
    bool keeps_groups = false;
    bool checks = false;  ///< ranks compare what they ask for
    unsigned one_in = 2;  ///< so many operations, one is given up
    duration longest{};
    sim_world_options world;
};

class hasty_job {
public:
    hasty_job(plan& of, sim_world& world)
        : plan_(of), all_(of.size, {}, ranks<sim>::usual(), in(world)), last_(of.size) {}

    task<> run() {
        co_await all_.open();
        for (unsigned rank = 0; rank < all_.size(); ++rank) all_.state(rank).checks = plan_.checks;
        end_of_haste_ = scheduler::current()->now() + 2ms;
        task_group parts;
        for (unsigned rank = 0; rank < all_.size(); ++rank) parts.spawn([this, rank] { return work(rank); });
        co_await timeout(parts.join(), 300s);
        for (unsigned rank = 0; rank < all_.size(); ++rank) {
            if (last_[rank] != plan_.size)
                note(rank, "ended in a group of " + std::to_string(last_[rank]) + " ranks");
        }
    }

    std::string wrong;
    unsigned given_up = 0;
    unsigned shrinks_given_up = 0;
    unsigned ended_well = 0;

private:
    void note(unsigned rank, const std::string& what) {
        if (wrong.size() < 1000) wrong += "rank " + std::to_string(rank) + ": " + what + "; ";
    }
    [[nodiscard]] bool hasty() const { return scheduler::current()->now() < end_of_haste_; }

    /// Awaits it, or gives it up in one of several ways at some moment. What does not end by itself is wrong.
    task<result<>> endure(task<> what, bool may_give_up, unsigned rank) {
        const bool gives_up = may_give_up && hasty() && plan_.below(plan_.one_in) == 0;
        const duration patience = plan_.up_to(plan_.longest);
        if (!gives_up) {
            result<> ended = co_await as_result(timeout(std::move(what), 30s));
            if (!ended && ended.error() == errc::timed_out) note(rank, "hangs");
            co_return ended;
        }
        ++given_up;
        switch (plan_.below(3)) {
            case 0: co_return co_await as_result(timeout(std::move(what), patience));
            case 1: {
                local_stop_source stop;
                auto pending = start(as_result(with_stop(std::move(what), stop.get_token())));
                static_cast<void>(co_await as_result(sleep_for(patience)));
                stop.request_stop();
                co_return co_await pending;
            }
            default: {
                const auto first =
                    co_await as_result(when_any(as_result(std::move(what)), sleep_for(patience)));
                if (!first) co_return first.error();
                if (first->index == 1) co_return make_error_code(errc::timed_out);
                co_return std::get<0>(first->value);
            }
        }
    }

    static std::uint64_t value(std::uint64_t of, unsigned rank_in_job) {
        return mixed(of, rank_in_job) >> 32;
    }
    std::vector<std::uint64_t> values(const group& g, std::uint64_t of) {
        std::vector<std::uint64_t> all;
        for (unsigned rank = 0; rank < g.size(); ++rank) all.push_back(value(of, g.rank_in_job(rank)));
        return all;
    }
    void compare(const group& g, const char* what, const std::vector<std::uint64_t>& got,
                 const std::vector<std::uint64_t>& wanted) {
        if (got != wanted) note(g.rank_in_job(g.rank()), std::string(what) + " has a wrong result");
    }

    /// One collective, which `number` stands for, and what comes of it.
    task<> collective_of(group g, std::uint64_t number) {
        const auto all = values(g, number);
        const std::uint64_t mine = all[g.rank()];
        const unsigned at = static_cast<unsigned>(mixed(number, 3) % g.size());
        std::vector<std::uint64_t> x{mine};
        std::vector<std::uint64_t> room(g.size());
        const auto sum_to = [&](unsigned end) {
            return std::accumulate(all.begin(), all.begin() + end, std::uint64_t{0});
        };
        switch (mixed(number, 1) % 9) {
            case 0: co_await g.barrier(); break;
            case 1:
                co_await g.broadcast(x, root(at));
                compare(g, "broadcast", x, {all[at]});
                break;
            case 2:
                co_await g.allreduce(in_place, x, std::plus<>{});
                compare(g, "allreduce", x, {sum_to(g.size())});
                break;
            case 3:
                co_await g.allgather(x, room);
                compare(g, "allgather", room, all);
                break;
            case 4:
                co_await g.gather(x, room, root(at));
                if (g.rank() == at) compare(g, "gather", room, all);
                break;
            case 5:
                co_await g.scan(in_place, x, std::plus<>{});
                compare(g, "scan", x, {sum_to(g.rank() + 1)});
                break;
            case 6: {
                std::vector<std::uint64_t> out(g.size());
                for (unsigned to = 0; to < g.size(); ++to) out[to] = mixed(number, g.rank(), to);
                co_await g.alltoall(out, room);
                for (unsigned from = 0; from < g.size(); ++from) out[from] = mixed(number, from, g.rank());
                compare(g, "alltoall", room, out);
                break;
            }
            case 7: {
                // Long enough to be announced.
                std::vector<std::uint64_t> row(20'000, mine);
                co_await g.allreduce(in_place, row, std::plus<>{});
                compare(g, "a long allreduce", {row.front(), row.back()},
                        {sum_to(g.size()), sum_to(g.size())});
                break;
            }
            default: {
                // Two at a time.
                std::vector<std::uint64_t> y{mine};
                auto first = start(g.allreduce(in_place, x, std::plus<>{}));
                co_await g.allreduce(in_place, y, std::plus<>{});
                co_await first;
                compare(g, "the first of two", x, {sum_to(g.size())});
                compare(g, "the second of two", y, {sum_to(g.size())});
            }
        }
    }
    /// A part of the group, and one collective in that. The part may fail, and the whole go on.
    task<> splits(group g, std::uint64_t number, group& part) {
        const auto color_of = [&](unsigned rank) {
            return static_cast<std::int64_t>(mixed(number, 7, rank) % 2);
        };
        part = co_await g.split(color_of(g.rank()));
        unsigned wanted = 0;
        for (unsigned rank = 0; rank < g.size(); ++rank)
            wanted += color_of(rank) == color_of(g.rank()) ? 1 : 0;
        if (part.size() != wanted) note(g.rank_in_job(g.rank()), "a split has a wrong size");
    }
    /// Ends with whether all ranks of the group have no more haste.
    task<> is_over(group g, bool here, bool& all_are) {
        std::uint32_t x[2] = {here ? 1U : 0U, 1U};
        co_await g.allreduce(in_place, std::span<std::uint32_t>(x), std::plus<>());
        if (x[1] != g.size()) note(g.rank_in_job(g.rank()), "the sum is wrong");
        all_are = x[0] == g.size();
    }

    task<> shrinks(group g, group& made) { made = co_await g.shrink(); }

    task<> work(unsigned rank) {
        group g = all_.at(rank);
        std::vector<group> former;
        if (!plan_.keeps_groups) all_.leave(rank);
        std::uint64_t depth = 0;
        std::uint64_t index = 0;
        for (int rounds = 0; rounds < 5000; ++rounds) {
            const std::uint64_t number = mixed(plan_.number, depth, ++index);
            result<> ended;
            if (index % 4 == 0) {
                const bool here = !hasty();
                bool all_are = false;
                ended = co_await endure(is_over(g, here, all_are), !here, rank);
                if (ended && all_are) {
                    last_[rank] = g.size();
                    co_return;
                }
            } else if (mixed(number, 5) % 6 == 0) {
                group part;
                ended = co_await endure(splits(g, number, part), true, rank);
                if (ended)
                    static_cast<void>(co_await endure(collective_of(part, mixed(number, 11)), true, rank));
                if (plan_.keeps_groups && part) former.push_back(part);
            } else {
                ended = co_await endure(collective_of(g, number), true, rank);
            }
            if (ended) {
                ++ended_well;
                if (plan_.below(2) != 0) co_await sleep_for(plan_.up_to(4us));
                continue;
            }
            if (!g.failure())
                note(rank, "a group whose collective has failed has no failure: " + ended.error().message());
            if (g.failure() && !g.failure()->lost.empty())
                note(rank, "a rank is called lost: " + g.failure()->describe());
            group made;
            for (int attempts = 0; !made && attempts < 1000; ++attempts) {
                if (plan_.below(3) == 0) co_await sleep_for(plan_.up_to(10us));
                const result<> shrunk = co_await endure(shrinks(g, made), true, rank);
                if (shrunk) break;
                ++shrinks_given_up;
                if (shrunk.error() == errc::timed_out || shrunk.error() == errc::canceled) continue;
                note(rank, "shrink: " + shrunk.error().message());
                co_return;
            }
            if (!made) {
                note(rank, "no shrink ends");
                co_return;
            }
            if (made.size() != plan_.size)
                note(rank, "is in a group of " + std::to_string(made.size()) + " ranks");
            if (plan_.keeps_groups) former.push_back(g);
            g = std::move(made);
            ++depth;
            index = 0;
        }
        note(rank, "does not end");
    }

    plan& plan_;
    ranks<sim> all_;
    std::vector<unsigned> last_;  // the size of a rank's last group
    time_point end_of_haste_{};
};

struct findings {
    std::string wrong;
    unsigned given_up = 0;
    unsigned shrinks_given_up = 0;
    unsigned ended_well = 0;
};
findings run_seeds(unsigned first, unsigned last) {
    findings found;
    for (unsigned seed = first; seed < last; ++seed) {
        plan of(seed);
        std::string wrong;
        try {
            run_simulated(of.world, [&](sim_world& world) -> task<> {
                hasty_job one(of, world);
                std::exception_ptr failed;
                try {
                    co_await one.run();
                } catch (...) {
                    failed = std::current_exception();
                }
                wrong = one.wrong;
                found.given_up += one.given_up;
                found.shrinks_given_up += one.shrinks_given_up;
                found.ended_well += one.ended_well;
                if (failed) std::rethrow_exception(failed);
            });
        } catch (const std::exception& e) {
            wrong += std::string("thrown: ") + e.what();
        }
        if (!wrong.empty() && found.wrong.size() < 2000)
            found.wrong +=
                "seed " + std::to_string(seed) + " (" + std::to_string(of.size) + " ranks): " + wrong + "\n";
    }
    return found;
}

}  // namespace

TEST_CASE("ranks that cancel collectives, splits and shrinks at any moment go on with all of them") {
    const findings found = run_seeds(0, under_sanitizer ? 40 : 300);
    CHECK(found.wrong == "");
    CHECK(found.given_up > 1000);
    CHECK(found.shrinks_given_up > (under_sanitizer ? 10u : 50u));
    CHECK(found.ended_well > 10'000);
}

TEST_CASE("the same of ten thousand programs", "[nightly]") {
    const findings found = run_seeds(10'000, 20'000);
    CHECK(found.wrong == "");
}

}  // namespace test_service_group_canceled
