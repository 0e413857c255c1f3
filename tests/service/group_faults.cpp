// Groups whose ranks are lost, give up, or leave: nothing hangs, and what ends tells why.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/ranks.hpp"
#include "support/sanitizer.hpp"
#include "support/with_variable.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

namespace test_service_group_faults {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Every rank has a connection to every other one.
task<> connect_all(ranks<sim>& all) {
    static const algorithm* const with_all =
        find_algorithm(collective_kind::alltoall, "overlapped_flat_tree");
    forced_algorithm = with_all;
    forced_kind = collective_kind::alltoall;
    for (unsigned rank = 0; rank < all.size(); ++rank) all.state(rank).choose_by(&by_force);
    const auto body = [](group& g) -> task<> {
        std::vector<std::uint8_t> x(g.size());
        co_await g.alltoall(in_place, x);
    };
    co_await all.each(body);
}

task<> within(task<> what, duration most) { co_await timeout(std::move(what), most); }
task<> stopped_by(task<> what, local_stop_token token) { co_await with_stop(std::move(what), token); }

/// How a collective ended at the ranks when one of them was lost.
struct loss {
    bool too_late = false;  // all had ended
    unsigned failed = 0;
    std::string wrong{};
};

/// The victim dies `after` the beginning.
loss lose(const collective_case& of, const algorithm& by, unsigned size, unsigned victim, duration after,
          bool connected, const node_options& options = ranks<sim>::usual(),
          std::vector<unsigned> hosts = {}) {
    loss found;
    const auto note = [&](const std::string& text) {
        if (found.wrong.empty())
            found.wrong = of.text(by.name, size) + ", rank " + std::to_string(victim) + " lost after " +
                          std::to_string(after.count()) + " ns: " + text + "\n";
    };
    try {
        run_simulated({}, [&](sim_world& world) -> task<> {
            ranks<sim> all(size, hosts, options, in(world));
            co_await open_unchecked(all);
            if (connected) co_await connect_all(all);
            forced_algorithm = &by;
            forced_kind = of.kind;
            for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
            unsigned entered = 0;
            unsigned ended = 0;
            const auto part = [&](unsigned rank) -> task<> {
                group g = all.at(rank);
                std::error_code code;
                std::string text;
                try {
                    text = co_await perform<std::uint32_t>(g, of, std::plus<>{}, entered);
                } catch (const std::system_error& e) {
                    code = e.code();
                    text = e.what();
                }
                ++ended;
                if (rank == victim) co_return;
                if (!code) {
                    if (!text.empty()) note("rank " + std::to_string(rank) + ": " + text);
                    co_return;
                }
                ++found.failed;
                if (text.find("rank " + std::to_string(victim)) == std::string::npos)
                    note("rank " + std::to_string(rank) + " says " + text);
                // One that has lost its first connections may make others until it is silent, and blames those that it lost.
                const bool blamed =
                    g.failure() && (g.failure()->lost == std::vector<unsigned>{victim} ||
                                    (!connected && (g.failure()->by == victim ||
                                                    std::ranges::count(g.failure()->lost, victim) == 1)));
                if (!blamed)
                    note("rank " + std::to_string(rank) +
                         " blames others: " + (g.failure() ? g.failure()->describe() : std::string()));
            };
            const auto kill = [&]() -> task<> {
                co_await sleep_for(after);
                found.too_late = ended == size;
                if (!found.too_late) co_await all.kill(victim);
            };
            task_group parts;
            parts.spawn([&] { return kill(); });
            for (unsigned rank = 0; rank < size; ++rank) parts.spawn([&part, rank] { return part(rank); });
            co_await parts.join();
        });
    } catch (const std::exception& e) {
        note(std::string("thrown: ") + e.what());
    }
    return found;
}

struct losses {
    std::string wrong;
    std::size_t tried = 0;
    std::size_t felt = 0;  // where a rank that was left ended with an error
    std::map<std::string, std::size_t> by_algorithm;
};

/// Each algorithm, each of these ranks lost at each of these moments until the collective ends first.
void lose_each(unsigned size, const std::vector<unsigned>& victims, duration step, bool connected,
               losses& all, const node_options& options = ranks<sim>::usual(), std::size_t elements = 0,
               std::vector<unsigned> hosts = {}) {
    const unsigned on = hosts.empty() ? 1 : 2;
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        collective_case of;
        of.kind = static_cast<collective_kind>(which);
        of.elements = elements != 0 ? elements : size + 1;
        if (has_root(of.kind)) of.root = size / 2;
        for (const algorithm& by : algorithms_of(of.kind)) {
            if (!by.admits(of.shape(sizeof(std::uint32_t), size, on, false))) continue;
            if (!hosts.empty() && !is_for_hosts(by.name)) continue;
            for (const unsigned victim : victims) {
                for (duration after{1};; after += step) {
                    const loss one = lose(of, by, size, victim, after, connected, options, hosts);
                    if (all.wrong.size() < 4000) all.wrong += one.wrong;
                    if (!one.wrong.empty() || one.too_late) break;
                    ++all.tried;
                    if (one.failed == 0) continue;
                    ++all.felt;
                    ++all.by_algorithm[std::string(name_of(of.kind)) + " by " + std::string(by.name)];
                }
            }
        }
    }
}

}  // namespace

TEST_CASE("a rank that is lost at any step of any algorithm ends it everywhere, with an error that names the "
          "rank") {
    losses all;
    for (const unsigned size : {2u, 3u, 5u, 8u}) {
        if (under_sanitizer && size > 5) continue;
        std::vector<unsigned> victims{0, size - 1};
        if (size > 3) victims.push_back(size / 2 - 1);
        lose_each(size, victims, 1400ns, true, all);
    }
    CHECK(all.wrong == "");
    CHECK(all.felt > 500);
    std::string unharmed;
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const auto kind = static_cast<collective_kind>(which);
        for (const algorithm& by : algorithms_of(kind)) {
            const std::string name = std::string(name_of(kind)) + " by " + std::string(by.name);
            if (!is_for_hosts(by.name) && all.by_algorithm[name] == 0) unharmed += name + "\n";
        }
    }
    CHECK(unharmed == "");
}
TEST_CASE("the same while connections are made, by rendezvous, and on several hosts") {
    losses all;
    constexpr int coarser = under_sanitizer ? 2 : 1;
    lose_each(4, {0, 3}, coarser * 2500ns, false, all);
    node_options options = ranks<sim>::usual();
    options.mailbox.limits.eager_limit = 0;
    options.mailbox.limits.rendezvous_limit = 0;
    lose_each(4, {1, 2}, coarser * 1700ns, true, all, options, 300);
    losses by_hosts;
    lose_each(6, {0, 1, 3, 5}, coarser * 900ns, true, by_hosts, ranks<sim>::usual(), 7, {0, 0, 0, 1, 1, 1});
    losses by_both;
    lose_each(5, {0, 3, 4}, coarser * 1900ns, true, by_both, options, 300, {0, 0, 0, 1, 1});
    CHECK(all.wrong == "");
    CHECK(by_hosts.wrong == "");
    CHECK(by_both.wrong == "");
    CHECK(all.felt > 500 / coarser);
    std::string unharmed;
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        for (const algorithm& by : algorithms_of(static_cast<collective_kind>(which))) {
            const std::string name =
                std::string(name_of(static_cast<collective_kind>(which))) + " by " + std::string(by.name);
            if (is_for_hosts(by.name) &&
                (by_hosts.by_algorithm[name] == 0 || by_both.by_algorithm[name] == 0))
                unharmed += name + "\n";
        }
    }
    CHECK(unharmed == "");
}
TEST_CASE("each of up to eight ranks lost at each step of each algorithm", "[nightly]") {
    losses all;
    for (unsigned size = 2; size <= 8; ++size) {
        std::vector<unsigned> victims;
        for (unsigned rank = 0; rank < size; ++rank) victims.push_back(rank);
        lose_each(size, victims, 200ns, true, all);
        lose_each(size, victims, 1000ns, false, all);
    }
    CHECK(all.wrong == "");
    CHECK(all.felt > 10'000);
}

namespace {

/// How a collective of a rank ended.
struct end_of_rank {
    std::error_code code{};
    std::string text{};
};
task<> ends(task<> what, end_of_rank& how) {
    const failure of = co_await failing(std::move(what));
    how = {of.code, of.text};
}

}  // namespace

TEST_CASE(
    "a rank that loses patience ends the collective everywhere, and the rank that had not entered is named") {
    const bool by_timeout = GENERATE(true, false);
    run_simulated({}, [by_timeout](sim_world& world) -> task<> {
        constexpr unsigned size = 5;
        constexpr unsigned late = 3;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        std::vector<end_of_rank> how(size);
        local_stop_source stop;
        const auto part = [&](unsigned rank) -> task<> {
            if (rank == 1 && by_timeout) {
                co_await ends(within(all.at(rank).barrier(), 5ms), how[rank]);
            } else if (rank == 1) {
                co_await ends(stopped_by(all.at(rank).barrier(), stop.get_token()), how[rank]);
            } else {
                co_await ends(all.at(rank).barrier(), how[rank]);
            }
        };
        task_group parts;
        for (unsigned rank = 0; rank < size; ++rank) {
            if (rank != late) parts.spawn([&part, rank] { return part(rank); });
        }
        if (!by_timeout) {
            co_await sleep_for(5ms);
            stop.request_stop();
        }
        co_await parts.join();
        CHECK(how[1].code ==
              (by_timeout ? make_error_code(errc::timed_out) : make_error_code(errc::canceled)));
        for (const unsigned rank : {0u, 2u, 4u}) {
            INFO(how[rank].text);
            CHECK(how[rank].code == group_errc::revoked);
            CHECK(how[rank].text.find("not entered: rank 3") != std::string::npos);
        }
        // The late one hears it, too.
        co_await part(late);
        CHECK(how[late].code == group_errc::revoked);
        for (unsigned rank = 0; rank < size; ++rank) {
            REQUIRE(all.at(rank).failure());
            CHECK(all.at(rank).failure()->absent == std::vector<unsigned>{late});
            CHECK(all.at(rank).failure()->by == 1);
            CHECK(all.at(rank).failure()->lost.empty());
        }
    });
}

TEST_CASE("in every algorithm of every collective the rank that had not entered is named when others lose "
          "patience") {
    constexpr unsigned size = 5;
    constexpr unsigned late = 3;
    std::map<std::string, unsigned> felt;
    const auto one_case = [&](const collective_case& of, const algorithm& by) {
        run_simulated({}, [&](sim_world& world) -> task<> {
            ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
            co_await open_unchecked(all);
            forced_algorithm = &by;
            forced_kind = of.kind;
            for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
            unsigned failed = 0;
            unsigned entered = 0;
            const auto part = [&](unsigned rank) -> task<> {
                INFO(of.text(by.name, size) << ", rank " << rank);
                group g = all.at(rank);
                const auto performs = [&]() -> task<> {
                    const std::string wrong = co_await perform<std::uint32_t>(g, of, std::plus<>{}, entered);
                    CHECK(wrong == "");
                };
                const failure end = co_await failing(within(performs(), 5ms + rank * 7us));
                // Those that need nothing of the late rank end well.
                if (!end.code) co_return;
                ++failed;
                REQUIRE(g.failure());
                CHECK(g.failure()->absent == std::vector<unsigned>{late});
                CHECK(g.failure()->lost.empty());
                if (end.code == group_errc::revoked) {
                    CHECK(end.text.find("not entered: rank 3") != std::string::npos);
                } else {
                    CHECK(end.code == errc::timed_out);
                }
            };
            task_group parts;
            for (unsigned rank = 0; rank < size; ++rank) {
                if (rank != late) parts.spawn([&part, rank] { return part(rank); });
            }
            co_await parts.join();
            felt[std::string(name_of(of.kind)) + " by " + std::string(by.name)] += failed;
        });
    };
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        collective_case of;
        of.kind = static_cast<collective_kind>(which);
        of.elements = size + 1;
        // What a root gives the others wait for, what it is given the root waits for.
        const bool root_gives = of.kind == collective_kind::broadcast || of.kind == collective_kind::scatter;
        if (root_gives) of.root = late;
        for (const algorithm& by : algorithms_of(of.kind)) {
            if (by.admits(of.shape(sizeof(std::uint32_t), size, 1, false))) one_case(of, by);
        }
    }
    for (const auto& [name, ranks_that_failed] : felt) {
        INFO(name);
        CHECK(ranks_that_failed > 0);
    }
    CHECK(felt.size() >= 50);
}

TEST_CASE("a group that several ranks give up at a time names the ranks that had not entered, and no other") {
    for (unsigned apart = 0; apart < 40; ++apart) {
        run_simulated({}, [apart](sim_world& world) -> task<> {
            constexpr unsigned size = 6;
            ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
            co_await open_unchecked(all);
            co_await connect_all(all);
            const auto part = [&](unsigned rank) -> task<> {
                const duration patience = 1ms + rank * apart * 100ns;
                const failure of = co_await failing(within(all.at(rank).barrier(), patience));
                CHECK(of.code);
            };
            task_group parts;
            for (unsigned rank = 0; rank < size; ++rank) {
                if (rank != 2) parts.spawn([&part, rank] { return part(rank); });
            }
            co_await parts.join();
            co_await sleep_for(1ms);
            for (unsigned rank = 0; rank < size; ++rank) {
                INFO(rank);
                REQUIRE(all.at(rank).failure());
                CHECK(all.at(rank).failure()->absent == std::vector<unsigned>{2});
            }
        });
    }
}

TEST_CASE("ranks whose answers take long are said to have perhaps entered, are not lost, and are of the next "
          "group") {
    sim_world_options far;
    far.costs.latency = 150ms;
    run_simulated(far, [](sim_world& world) -> task<> {
        constexpr unsigned size = 4;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        std::vector<end_of_rank> how(size);
        std::vector<unsigned> left(size);
        const auto part = [&](unsigned rank) -> task<> {
            co_await ends(within(all.at(rank).barrier(), rank == 1 ? 5s : 60s), how[rank]);
            const group next = co_await timeout(all.at(rank).shrink(), 60s);
            left[rank] = next.size();
            co_await within(next.barrier(), 60s);
        };
        task_group parts;
        for (const unsigned rank : {0u, 1u, 2u}) parts.spawn([&part, rank] { return part(rank); });
        co_await sleep_for(20s);
        parts.spawn([&part] { return part(3); });
        co_await parts.join();
        CHECK(how[1].code == errc::timed_out);
        CHECK(left == std::vector<unsigned>(size, size));
        for (unsigned rank = 0; rank < size; ++rank) {
            REQUIRE(all.at(rank).failure());
            INFO(all.at(rank).failure()->describe());
            CHECK(all.at(rank).failure()->lost.empty());
            CHECK(all.at(rank).failure()->text.find(
                      "did not answer in time, and may have: ranks 0, 2 and 3") != std::string::npos);
        }
    });
}

TEST_CASE("of two collectives that a rank gives up at a time none names that rank") {
    for (const bool later_first : {true, false}) {
        run_simulated({}, [later_first](sim_world& world) -> task<> {
            constexpr unsigned size = 4;
            ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
            co_await open_unchecked(all);
            co_await connect_all(all);
            const auto part = [&](unsigned rank) -> task<> {
                const duration first = rank != 0 ? 1h : later_first ? 1ms + 100ns : 1ms;
                const duration second = rank != 0 ? 1h : later_first ? 1ms : 1ms + 100ns;
                auto one = start(failing(within(all.at(rank).barrier(), first)));
                auto two = start(failing(within(all.at(rank).barrier(), second)));
                const failure of_one = co_await one;
                const failure of_two = co_await two;
                CHECK(of_one.code);
                CHECK(of_two.code);
            };
            task_group parts;
            for (const unsigned rank : {0u, 1u, 3u}) parts.spawn([&part, rank] { return part(rank); });
            co_await parts.join();
            co_await sleep_for(1ms);
            for (unsigned rank = 0; rank < size; ++rank) {
                INFO(rank);
                REQUIRE(all.at(rank).failure());
                CHECK(all.at(rank).failure()->absent == std::vector<unsigned>{2});
            }
        });
    }
}

namespace {

using members = std::vector<unsigned>;
members of_job(const group& g) {
    members all;
    for (unsigned rank = 0; rank < g.size(); ++rank) all.push_back(g.rank_in_job(rank));
    return all;
}
task<> sums_up(group g) {
    std::uint64_t sum = std::uint64_t{1} << g.rank_in_job(g.rank());
    co_await g.allreduce(in_place, std::span(&sum, 1), std::plus<>{});
    std::uint64_t wanted = 0;
    for (const unsigned rank : of_job(g)) wanted += std::uint64_t{1} << rank;
    CHECK(sum == wanted);
}

}  // namespace

TEST_CASE("those that are left after a loss shrink to a group that works") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(5, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        unsigned done = 0;
        const auto part = [&](unsigned rank) -> task<> {
            const failure of = co_await failing(all.at(rank).barrier());
            if (rank == 2) co_return;
            CHECK(of.code);
            group left = co_await all.at(rank).shrink();
            CHECK(of_job(left) == members{0, 1, 3, 4});
            co_await sums_up(left);
            // The old one stays as it is.
            const failure again = co_await failing(all.at(rank).barrier());
            CHECK(again.code);
            ++done;
        };
        task_group parts;
        for (const unsigned rank : {0u, 1u, 3u, 4u}) parts.spawn([&part, rank] { return part(rank); });
        co_await sleep_for(1ms);
        co_await all.kill(2);
        co_await parts.join();
        CHECK(done == 4);
    });
}

TEST_CASE("those that are left shrink without waiting for lost ranks that they had no connection with") {
    run_simulated({}, [](sim_world& world) -> task<> {
        constexpr unsigned size = 8;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        // It connects ranks at distances of powers of two, and no others.
        forced_algorithm = find_algorithm(collective_kind::barrier, "dissemination");
        forced_kind = collective_kind::barrier;
        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
        co_await all.each([](group& g) -> task<> { co_await g.barrier(); });
        for (const auto& [rank, dead] : {std::pair{3u, 0u}, {4u, 1u}, {5u, 0u}, {5u, 2u}, {6u, 1u}, {7u, 2u}})
            CHECK(all.links(rank).peer(dead).link == nullptr);
        unsigned done = 0;
        const auto part = [&](unsigned rank) -> task<> {
            const failure of = co_await failing(all.at(rank).barrier());
            CHECK(of.code);
            const time_point began = detail::running_scheduler().now();
            group left = co_await all.at(rank).shrink();
            CHECK(detail::running_scheduler().now() - began < ranks<sim>::usual().connect_limit / 4);
            CHECK(of_job(left) == members{3, 4, 5, 6, 7});
            co_await sums_up(left);
            ++done;
        };
        task_group parts;
        for (unsigned rank = 3; rank < size; ++rank) parts.spawn([&part, rank] { return part(rank); });
        co_await sleep_for(1ms);
        task_group killing;
        for (unsigned rank = 0; rank < 3; ++rank) killing.spawn([&all, rank] { return all.kill(rank); });
        co_await killing.join();
        co_await parts.join();
        CHECK(done == 5);
    });
}

TEST_CASE("a rank that may name no more groups ends the shrink of all") {
    run_simulated({}, [](sim_world& world) -> task<> {
        constexpr unsigned size = 4;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        while (all.links(0).name_context() != 0) {}
        std::vector<failure> how(size);
        const auto part = [&](unsigned rank) -> task<> {
            how[rank] = co_await failing([](const group& whole) -> task<> {
                static_cast<void>(co_await whole.shrink());
            }(all.at(rank)));
        };
        task_group parts;
        for (unsigned rank = 0; rank < size; ++rank) parts.spawn([&part, rank] { return part(rank); });
        const auto ended =
            co_await as_result(timeout([](task_group& g) -> task<> { co_await g.join(); }(parts), 10s));
        REQUIRE(ended);
        for (const failure& one : how) CHECK(one.code == errc::no_resources);
    });
}

TEST_CASE("a rank that another one did not reach in time, and that lives, is of the next group") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(4, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        all.state(1).transfer_failed(0, make_error_code(errc::timed_out));
        const auto part = [](group& g) -> task<> {
            group left = co_await g.shrink();
            CHECK(of_job(left) == members{0, 1, 2, 3});
            co_await sums_up(left);
        };
        co_await all.each(part);
    });
}

TEST_CASE("ranks agree on who is left although those that decide die at any moment of it") {
    std::size_t tried = 0;
    std::size_t meanwhile = 0;
    std::string wrong;
    // The programs keep the old group, or let it go at once, as `g = co_await g.shrink()` does.
    for (const bool keeps : {true, false}) {
        for (const bool at_once : {true, false}) {
            for (const members& dying : {members{0}, members{0, 1}, members{3}, members{1, 2}}) {
                for (duration after{1}; after < 30us; after += 900ns) {
                    ++tried;
                    try {
                        run_simulated({}, [&](sim_world& world) -> task<> {
                            constexpr unsigned size = 6;
                            ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
                            co_await open_unchecked(all);
                            co_await connect_all(all);
                            co_await all.kill(4);
                            co_await sleep_for(10us);
                            bool killed = false;
                            unsigned first_ended = 0;
                            std::vector<members> first(size);
                            const auto part = [&](unsigned rank) -> task<> {
                                const bool dies = std::find(dying.begin(), dying.end(), rank) != dying.end();
                                if (!at_once) co_await sleep_for(rank * 2us);
                                group g = all.at(rank);
                                if (!keeps) all.leave(rank);
                                const auto steps = [&]() -> task<> {
                                    group once = co_await g.shrink();
                                    ++first_ended;
                                    first[rank] = of_job(once);
                                    if (!keeps) g = group();
                                    co_await until([&] { return killed; });
                                    group twice = co_await once.shrink();
                                    if (dies) co_return;
                                    members left;
                                    for (unsigned other = 0; other < size; ++other) {
                                        if (other != 4 &&
                                            std::find(dying.begin(), dying.end(), other) == dying.end())
                                            left.push_back(other);
                                    }
                                    if (of_job(twice) != left) throw std::runtime_error("left are others");
                                    co_await sums_up(twice);
                                };
                                if (dies) {
                                    static_cast<void>(co_await as_result(timeout(steps(), 1s)));
                                } else {
                                    co_await timeout(steps(), 60s);
                                }
                            };
                            task_group parts(on_child_error::stop_others);
                            for (unsigned rank = 0; rank < size; ++rank) {
                                if (rank != 4) parts.spawn([&part, rank] { return part(rank); });
                            }
                            co_await sleep_for(after);
                            if (first_ended == 0) ++meanwhile;
                            task_group killing;
                            for (const unsigned rank : dying)
                                killing.spawn([&all, rank] { return all.kill(rank); });
                            co_await killing.join();
                            killed = true;
                            co_await parts.join();
                            // All that are left had the same.
                            const unsigned any = dying == members{3} || dying == members{0} ? 1 : 5;
                            for (unsigned rank = 0; rank < size; ++rank) {
                                if (rank == 4 || std::find(dying.begin(), dying.end(), rank) != dying.end())
                                    continue;
                                if (first[rank] != first[any]) throw std::runtime_error("they disagree");
                            }
                        });
                    } catch (const std::exception& e) {
                        if (wrong.size() < 2000)
                            wrong += "first dying " + std::to_string(dying[0]) + " of " +
                                     std::to_string(dying.size()) + ", after " +
                                     std::to_string(after.count()) + (keeps ? ", kept" : ", let go") +
                                     (at_once ? ", at once" : ", in turn") + ": " + e.what() + "\n";
                    }
                }
            }
        }
    }
    CHECK(wrong == "");
    CHECK(tried > 500);
    CHECK(meanwhile > 60);
}

TEST_CASE("a rank that two others cannot reach is told that it is left out, and the rest goes on") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(4, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        // Ranks 2 and 3 lose each other; ranks 0 and 1 lose neither.
        all.network_of(3).drop_links_to(all.network_of(2));
        co_await sleep_for(10us);
        std::vector<failure> how(4);
        std::vector<members> left(4);
        const auto part = [&](unsigned rank) -> task<> {
            const auto steps = [&]() -> task<> {
                group now = co_await all.at(rank).shrink();
                left[rank] = of_job(now);
                co_await sums_up(now);
            };
            how[rank] = co_await failing(within(steps(), 10s));
        };
        task_group parts;
        for (unsigned rank = 0; rank < 4; ++rank) parts.spawn([&part, rank] { return part(rank); });
        co_await parts.join();
        for (unsigned rank = 0; rank < 4; ++rank) {
            INFO(rank << ": " << how[rank].text);
            CHECK(how[rank].code ==
                  (rank == 3 ? make_error_code(group_errc::not_member) : std::error_code()));
            CHECK(left[rank] == (rank == 3 ? members{} : members{0, 1, 2}));
        }
    });
}

namespace {

/// How a `shrink` of a rank ended, within 10 s.
struct shrunk {
    failure how{};
    members left{};
};
task<> shrinks(group whole, shrunk& end) {
    end.how = co_await failing(within(
        [](const group& of, members& left) -> task<> {
            const group now = co_await of.shrink();
            left = of_job(now);
            co_await sums_up(now);
        }(whole, end.left),
        10s));
}
std::error_code code_of(group_errc code) { return make_error_code(code); }

}  // namespace

TEST_CASE("where two of several ranks have lost each other and all live, the rest goes on with one of them, "
          "whichever calls first") {
    std::size_t tried = 0;
    for (const unsigned size : {3u, 4u, 5u}) {
        for (unsigned one = 0; one < size; ++one) {
            for (unsigned other = one + 1; other < size; ++other) {
                for (unsigned first = 0; first < size; ++first) {
                    for (const duration apart : {duration(0ns), duration(3us), duration(20us)}) {
                        CAPTURE(size, one, other, first, apart.count());
                        ++tried;
                        run_simulated({}, [&](sim_world& world) -> task<> {
                            ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
                            co_await open_unchecked(all);
                            co_await connect_all(all);
                            all.network_of(other).drop_links_to(all.network_of(one));
                            co_await sleep_for(10us);
                            std::vector<shrunk> ends(size);
                            task_group parts;
                            for (unsigned n = 0; n < size; ++n) {
                                const unsigned rank = (first + n) % size;
                                parts.spawn(shrinks, all.at(rank), std::ref(ends[rank]));
                                if (apart != duration::zero()) co_await sleep_for(apart);
                            }
                            co_await parts.join();
                            // The higher one goes: where the lower one decides, it has lost it, and any other rank has both.
                            members wanted;
                            for (unsigned rank = 0; rank < size; ++rank) {
                                if (rank != other) wanted.push_back(rank);
                            }
                            for (unsigned rank = 0; rank < size; ++rank) {
                                INFO(rank << ": " << ends[rank].how.text);
                                CHECK(ends[rank].how.code ==
                                      (rank == other ? code_of(group_errc::not_member) : std::error_code()));
                                if (rank != other) CHECK(ends[rank].left == wanted);
                            }
                        });
                    }
                }
            }
        }
    }
    CHECK(tried == 3 * (3 * 3 + 6 * 4 + 10 * 5));
}

TEST_CASE("of ranks that have lost each other the one that most others miss is left out") {
    run_simulated({}, [](sim_world& world) -> task<> {
        constexpr unsigned size = 6;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        for (const unsigned rank : {1u, 3u, 5u}) all.network_of(2).drop_links_to(all.network_of(rank));
        co_await sleep_for(10us);
        std::vector<shrunk> ends(size);
        task_group parts;
        for (unsigned rank = 0; rank < size; ++rank) parts.spawn(shrinks, all.at(rank), std::ref(ends[rank]));
        co_await parts.join();
        for (unsigned rank = 0; rank < size; ++rank) {
            INFO(rank << ": " << ends[rank].how.text);
            CHECK(ends[rank].how.code == (rank == 2 ? code_of(group_errc::not_member) : std::error_code()));
            if (rank != 2) CHECK(ends[rank].left == members{0, 1, 3, 4, 5});
        }
    });
}

TEST_CASE(
    "a rank that has lost one that is ready to shrink and dies then is not left out for it, and goes where "
    "that one lives") {
    const bool dies = GENERATE(true, false);
    run_simulated({}, [dies](sim_world& world) -> task<> {
        constexpr unsigned size = 4;
        constexpr unsigned victim = 2;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        std::vector<shrunk> ends(size);
        task_group parts;
        for (const unsigned rank : {0u, 1u, victim}) parts.spawn(shrinks, all.at(rank), std::ref(ends[rank]));
        co_await sleep_for(50us);
        // The victim is ready, and is heard no more, as by processes that find its death one after the other.
        for (const unsigned to : {0u, 1u}) all.network_of(victim).hold_messages_to(all.network_of(to), true);
        all.network_of(3).drop_links_to(all.network_of(victim));
        co_await sleep_for(50us);
        parts.spawn(shrinks, all.at(3), std::ref(ends[3]));
        co_await sleep_for(50us);
        CHECK(all.state(3).failure()->lost == std::vector<unsigned>{victim});
        if (dies) {
            co_await all.kill(victim);
        } else {
            for (const unsigned to : {0u, 1u})
                all.network_of(victim).hold_messages_to(all.network_of(to), false);
        }
        co_await parts.join();
        const unsigned out = dies ? victim : 3;
        for (unsigned rank = 0; rank < size; ++rank) {
            INFO(rank << ": " << ends[rank].how.text);
            if (rank != out) CHECK(ends[rank].left == (dies ? members{0, 1, 3} : members{0, 1, 2}));
            if (rank == 3 && !dies) CHECK(ends[rank].how.code == code_of(group_errc::not_member));
        }
    });
}

TEST_CASE(
    "a rank that is given up on another one's word, and lives, waits for nobody and keeps nobody waiting") {
    for (const duration apart : {duration(0ns), duration(3us), duration(20us), duration(1ms)}) {
        CAPTURE(apart.count());
        run_simulated({}, [&](sim_world& world) -> task<> {
            constexpr unsigned size = 6;
            ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
            co_await open_unchecked(all);
            // It connects ranks at distances of powers of two, and no others.
            forced_algorithm = find_algorithm(collective_kind::barrier, "dissemination");
            forced_kind = collective_kind::barrier;
            for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
            co_await all.each([](group& g) -> task<> { co_await g.barrier(); });
            REQUIRE(all.links(3).peer(0).link == nullptr);
            for (unsigned rank = 0; rank < size; ++rank)
                all.state(rank).revoke_alone(make_error_code(errc::canceled), "a limit");
            // Rank 4 has lost rank 0, and rank 3, which has no connection with that, takes its word.
            all.network_of(4).drop_links_to(all.network_of(0));
            co_await sleep_for(10us);
            detail::group_word ready;
            ready.kind = static_cast<std::uint8_t>(detail::word_kind::shrink_ready);
            ready.context = all.state(3).context();
            ready.by = 4;
            ready.lost = {0};
            all.state(3).word_arrived(4, ready);
            std::vector<shrunk> ends(size);
            task_group parts;
            for (const unsigned rank : {1u, 3u, 4u, 2u, 5u, 0u}) {
                parts.spawn(shrinks, all.at(rank), std::ref(ends[rank]));
                if (apart != duration::zero()) co_await sleep_for(apart);
            }
            co_await parts.join();
            members left;
            for (unsigned rank = 0; rank < size; ++rank) {
                INFO(rank << ": " << ends[rank].how.text);
                const bool out = ends[rank].how.code == code_of(group_errc::not_member);
                CHECK((out || !ends[rank].how.code));
                if (!out) left.push_back(rank);
            }
            CHECK(left.size() >= 4);
            for (const unsigned rank : left) CHECK(ends[rank].left == left);
        });
    }
}

TEST_CASE(
    "ranks that have let a group go, or have left in good order, are lost to no other group by its shrink") {
    const bool leaves = GENERATE(false, true);
    run_simulated({}, [leaves](sim_world& world) -> task<> {
        constexpr unsigned size = 8;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        const members in_second{0, 1, 2, 3, 7};
        std::map<unsigned, group> second;
        for (const unsigned rank : in_second)
            second[rank] = group(detail::counted_ptr<detail::group_state>(
                new detail::group_state(detail::counted_ptr<detail::rank_links>(&all.links(rank)), in_second,
                                        9, &default_collectives::choose)));
        // It connects ranks at distances of powers of two. Rank 7 has connections with all of the second group, rank 3 has none with rank 0.
        forced_algorithm = find_algorithm(collective_kind::barrier, "dissemination");
        forced_kind = collective_kind::barrier;
        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
        const auto barrier = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(barrier);
        detail::group_word asks;
        asks.kind = static_cast<std::uint8_t>(detail::word_kind::ask);
        asks.context = 1;
        all.links(7).send_word(2, asks);
        co_await sleep_for(1ms);
        REQUIRE(all.links(7).peer(2).link != nullptr);
        REQUIRE(all.links(3).peer(0).link == nullptr);
        for (unsigned rank = 0; rank < 3; ++rank) {
            second.erase(rank);
            if (leaves) co_await all.end(rank);
        }
        co_await sleep_for(10us);
        // Rank 7 has asked, or lost, all of them before it tells rank 3 that it is ready.
        std::map<unsigned, shrunk> ends;
        const auto shrinks_second = [&](unsigned rank) -> task<> {
            ends[rank].how = co_await failing(
                within([](const group& of, members& left) -> task<> { left = of_job(co_await of.shrink()); }(
                                                              second[rank], ends[rank].left),
                       10s));
        };
        task_group parts;
        for (const unsigned rank : {7u, 3u}) {
            parts.spawn([&shrinks_second, rank] { return shrinks_second(rank); });
            co_await sleep_for(1ms);
        }
        co_await parts.join();
        for (const unsigned rank : {3u, 7u}) {
            INFO(rank << ": " << ends[rank].how.text);
            CHECK(!ends[rank].how.code);
            CHECK(ends[rank].left == members{3, 7});
        }
        for (unsigned rank = 3; rank < size; ++rank) {
            const auto& failed = all.at(rank).failure();
            INFO(rank << ": " << (failed ? failed->describe() : std::string()));
            CHECK(!failed);
        }
        if (!leaves) co_await all.each(barrier);
    });
}

TEST_CASE("a second shrink of a group is refused while the group that the first has made lives, and does it "
          "no harm") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(3, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        const auto part = [&](group& whole) -> task<> {
            const group left = co_await whole.shrink();
            const failure again = co_await failing(
                [](const group& of) -> task<> { static_cast<void>(co_await of.shrink()); }(whole));
            CHECK(again.code == errc::invalid_argument);
            co_await left.barrier();
            all.leave(left.rank());
            co_await sleep_for(1ms);
            co_await sums_up(left);
        };
        co_await all.each(part);
    });
}

TEST_CASE("a rank that was ready to shrink and has let the group go since is waited for by nobody, at "
          "whatever moment") {
    std::size_t excluded = 0;
    std::size_t refused = 0;
    for (const bool others_first : {false, true}) {
        for (duration after{1}; after < 12us; after += 300ns) {
            CAPTURE(others_first, after.count());
            run_simulated({}, [&](sim_world& world) -> task<> {
                constexpr unsigned size = 3;
                ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
                co_await open_unchecked(all);
                co_await connect_all(all);
                // Rank 2 gives `shrink` up and never comes again.
                bool entered = false;
                const auto goes_away = [&]() -> task<> {
                    group g = all.at(2);
                    all.leave(2);
                    static_cast<void>(co_await failing(within(
                        [](const group& of, bool& has_it) -> task<> {
                            const group now = co_await of.shrink();
                            has_it = true;
                        }(g, entered),
                        after)));
                };
                members first(1), second(1);
                failure between;
                const auto goes_on = [&](unsigned rank) -> task<> {
                    if (!others_first) co_await sleep_for(after + 5us);
                    const group once = co_await all.at(rank).shrink();
                    if (rank == 0) first = of_job(once);
                    const failure of = co_await failing(within(once.barrier(), 5s));
                    if (of_job(once).size() == 2) {
                        CHECK_FALSE(of.code);
                        co_return;
                    }
                    if (entered) co_return;  // it was not too late for it
                    // It does not take its time limit to find out.
                    CHECK(of.code == group_errc::revoked);
                    const group twice = co_await once.shrink();
                    if (rank == 0) {
                        between = of;
                        second = of_job(twice);
                    }
                    co_await sums_up(twice);
                };
                task_group parts(on_child_error::stop_others);
                parts.spawn([&] { return goes_away(); });
                for (const unsigned rank : {0u, 1u}) parts.spawn([&goes_on, rank] { return goes_on(rank); });
                const auto ended = co_await as_result(
                    timeout([](task_group& g) -> task<> { co_await g.join(); }(parts), 20s));
                REQUIRE(ended);
                INFO(between.text);
                if (first.size() == 2) {
                    ++excluded;
                } else if (!entered) {
                    ++refused;
                    CHECK(first == members{0, 1, 2});
                    CHECK(second == members{0, 1});
                }
            });
        }
    }
    CHECK(excluded > 5);
    CHECK(refused > 2);
}

TEST_CASE("a rank that left in good order before others have the group that it is left in is not waited for "
          "by its shrink") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(2, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        // Rank 1 says that it is ready, gives up, and hears the decision and the goodbye before it calls again.
        const auto gives_up = [](const group& of) -> task<> { static_cast<void>(co_await of.shrink()); };
        CHECK((co_await failing(within(gives_up(all.at(1)), 5us))).code == errc::timed_out);
        {
            const group decided = co_await all.at(0).shrink();
            CHECK(of_job(decided) == members{0, 1});
        }
        co_await all.end(0);
        co_await sleep_for(1ms);
        const group left = co_await all.at(1).shrink();
        CHECK(of_job(left) == members{0, 1});
        const failure of = co_await failing(left.barrier());
        CHECK(of.code == errc::closed);
        std::optional<group> alone;
        const auto again = [](const group& from, std::optional<group>& into) -> task<> {
            into = co_await from.shrink();
        };
        const failure ended = co_await failing(within(again(left, alone), 10s));
        INFO(ended.text);
        CHECK_FALSE(ended.code);
        REQUIRE(alone);
        CHECK(of_job(*alone) == members{1});
    });
}

TEST_CASE("the shrink of a group that another rank let go of before two thousand others ends without it") {
    const bool expects_another = GENERATE(false, true);
    run_simulated({}, [expects_another](sim_world& world) -> task<> {
        ranks<sim> all(2, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        std::optional<group> old;
        const auto part = [&](group& whole) -> task<> {
            group made = co_await whole.split(0);
            if (whole.rank() == 0) old = made;
            made = group();
            for (int n = 0; n < 2000; ++n) static_cast<void>(co_await whole.split(0));
        };
        co_await all.each(part);
        task_group others;
        // Rank 1 may be about to enter groups that it does not know yet: it answers when it is not.
        if (expects_another) {
            others.spawn([&]() -> task<> { static_cast<void>(co_await all.at(1).split(0)); });
            co_await sleep_for(1ms);
            others.spawn([&]() -> task<> {
                co_await sleep_for(1s);
                static_cast<void>(co_await all.at(0).split(0));
            });
        }
        shrunk end;
        co_await shrinks(*old, end);
        INFO(end.how.text);
        CHECK_FALSE(end.how.code);
        CHECK(end.left == members{0});
        co_await others.join();
    });
}

TEST_CASE("a wrong argument that is given where no scheduler runs is thrown, and the others hear of it") {
    sim_world world;
    scheduler on{impatient{}, world.time()};
    std::optional<ranks<sim>> all;
    on.run([&]() -> task<> {
        all.emplace(3u, std::vector<unsigned>{}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(*all);
        co_await connect_all(*all);
    }());
    std::vector<int> x(3), y(4);
    std::error_code code;
    try {
        auto never = all->at(1).allreduce(x, y, std::plus<>{});
    } catch (const std::system_error& e) {
        code = e.code();
    }
    CHECK(code == errc::invalid_argument);
    on.run([&]() -> task<> {
        const failure here = co_await failing(all->at(1).barrier());
        CHECK(here.text.find("a buffer has 4 elements, not 3") != std::string::npos);
        const failure there = co_await failing(within(all->at(0).barrier(), 5s));
        CHECK(there.code == group_errc::revoked);
        CHECK(there.text.find("a buffer has 4 elements, not 3") != std::string::npos);
        all.reset();
    }());
}

TEST_CASE("messages of revoked groups are matched by nothing and take no memory, over a thousand groups") {
    // The messages of a comparison wait in every round; those of the collective itself come too late in most.
    const with_variable compares("RDMACORO_CHECK_COLLECTIVES", "1");
    run_simulated({}, [](sim_world& world) -> task<> {
        constexpr unsigned size = 3;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        const auto stored = [&] {
            std::size_t count = 0;
            for (unsigned a = 0; a < size; ++a) {
                for (unsigned b = 0; b < size; ++b) {
                    if (auto* link = all.links(a).peer(b).link) count += link->unread();
                }
            }
            return count;
        };
        std::size_t stale_seen = 0;
        std::size_t early = 0;
        const auto in_use = []() -> std::size_t {
#if defined(__GLIBC__)
            return mallinfo2().uordblks;
#else
            return 0;
#endif
        };
        std::size_t round = 0;
        std::vector<group> now;
        for (unsigned rank = 0; rank < size; ++rank) {
            now.push_back(all.at(rank));
            all.leave(rank);
        }
        for (; round < 1000; ++round) {
            const int old_value = static_cast<int>(round);
            const auto part = [&](unsigned rank) -> task<> {
                group& g = now[rank];
                if (rank == 0) {
                    std::vector<int> x(300, old_value);
                    static_cast<void>(co_await failing(g.broadcast(x, root(0))));
                } else if (rank == 1) {
                    // Its receive is canceled and its message never comes.
                    std::vector<int> x(300, -1);
                    static_cast<void>(co_await failing(g.broadcast(x, root(2))));
                    CHECK(x == std::vector<int>(300, -1));
                } else {
                    co_await sleep_for(20us);
                    if (stored() != 0) ++stale_seen;
                }
                g = co_await g.shrink();
                std::vector<int> y(100, rank == 2 ? 7 : 0);
                co_await g.broadcast(y, root(2));
                CHECK(y == std::vector<int>(100, 7));
            };
            task_group parts(on_child_error::stop_others);
            for (unsigned rank = 0; rank < size; ++rank) parts.spawn([&part, rank] { return part(rank); });
            co_await parts.join();
            if (round == 200) early = in_use();
        }
        CHECK(stale_seen > 900);
        CHECK(stored() < 20);
        const std::size_t end = in_use();
        INFO("from " << early << " to " << end << " bytes in use");
        CHECK(end < early + 100'000);
    });
}

TEST_CASE("a group that was revoked before it exists here begins revoked") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(3, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        const auto make = [&](unsigned rank) {
            return group(detail::counted_ptr<detail::group_state>(
                new detail::group_state(detail::counted_ptr<detail::rank_links>(&all.links(rank)), {0, 1}, 5,
                                        &default_collectives::choose)));
        };
        {
            const detail::rank_links::naming expects_it(
                detail::counted_ptr<detail::rank_links>(&all.links(1)));
            group first = make(0);
            const failure gave_up = co_await failing(within(first.barrier(), 1ms));
            CHECK(gave_up.code == errc::timed_out);
            co_await sleep_for(1ms);
            group second = make(1);
            REQUIRE(second.failure());
            CHECK(second.failure()->absent == std::vector<unsigned>{1});
            const failure of = co_await failing(second.barrier());
            CHECK(of.code == group_errc::revoked);
            CHECK(of.text.find("not entered: rank 1") != std::string::npos);
        }
    });
}

TEST_CASE("a rank that leaves in good order after its last barrier does not end the barrier of the others") {
    unsigned in_it = 0;  // how often another rank was in the barrier still
    for (duration after{0}; after < 12us; after += 400ns) {
        for (const unsigned leaves : {0u, 2u, 4u}) {
            run_simulated({}, [&](sim_world& world) -> task<> {
                constexpr unsigned size = 5;
                ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
                co_await open_unchecked(all);
                co_await connect_all(all);
                unsigned entered = 0;
                unsigned ended = 0;
                const auto part = [&](unsigned rank) -> task<> {
                    co_await sleep_for(rank * after / 4);
                    ++entered;
                    co_await all.at(rank).barrier();
                    ++ended;
                    if (rank != leaves) co_return;
                    CHECK(entered == size);
                    in_it += ended < size;
                    co_await all.end(rank);
                };
                task_group parts(on_child_error::stop_others);
                for (unsigned rank = 0; rank < size; ++rank)
                    parts.spawn([&part, rank] { return part(rank); });
                const failure of =
                    co_await failing([](task_group& g) -> task<> { co_await g.join(); }(parts));
                INFO(of.text);
                CHECK(!of.code);
            });
        }
    }
    CHECK(in_it > 30);
}

TEST_CASE("a rank that left without entering ends the collective of the others") {
    run_simulated({}, [](sim_world& world) -> task<> {
        constexpr unsigned size = 4;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        co_await all.end(3);
        std::vector<failure> how(size);
        const auto part = [&](unsigned rank) -> task<> {
            how[rank] = co_await failing(all.at(rank).barrier());
        };
        task_group parts;
        for (unsigned rank = 0; rank < 3; ++rank) parts.spawn([&part, rank] { return part(rank); });
        co_await parts.join();
        for (unsigned rank = 0; rank < 3; ++rank) {
            INFO(how[rank].text);
            CHECK(how[rank].code);
            CHECK(how[rank].text.find("rank 3") != std::string::npos);
        }
    });
}

namespace {

/// A rank that splits the group of all, and does what a program does then: uses what it got, and after a failure goes on with those that are left.
struct split_then_shrink {
    bool shrinks_it = false;  // the group that it got, first
    std::optional<members> left_of_it{};
    bool split = false;
    bool used = false;
    failure of{};
    members left{};

    task<> go(const group& whole, std::optional<duration> patience) {
        std::optional<group> made;
        of = co_await failing(
            [](const group& all, std::optional<duration> most, std::optional<group>& into) -> task<> {
                if (most) {
                    into = co_await timeout(all.split(0), *most);
                } else {
                    into = co_await all.split(0);
                }
            }(whole, patience, made));
        split = made.has_value();
        if (made && shrinks_it) {
            const group rest = co_await made->shrink();
            co_await rest.barrier();
            left_of_it = of_job(rest);
        } else if (made) {
            of = co_await failing(made->barrier());
            used = !of.code;
        }
        made.reset();
        const group next = co_await whole.shrink();
        co_await next.barrier();
        left = of_job(next);
    }
};

}  // namespace

TEST_CASE("a split that fails at one rank leaves no other rank waiting in the group that it made") {
    std::size_t some_have_split = 0;
    std::size_t some_have_used = 0;
    for (const bool dies : {false, true}) {
        for (duration after{1}; after < 30us; after += 300ns) {
            CAPTURE(dies, after.count());
            run_simulated({}, [&](sim_world& world) -> task<> {
                constexpr unsigned size = 4;
                constexpr unsigned fails = 1;
                ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
                co_await open_unchecked(all);
                co_await connect_all(all);
                std::vector<split_then_shrink> each(size);
                task_group parts(on_child_error::stop_others);
                for (unsigned rank = 0; rank < size; ++rank) {
                    if (dies && rank == fails) continue;
                    parts.spawn([&, rank] {
                        return each[rank].go(all.at(rank), rank == fails ? std::optional(after)
                                                                         : std::optional<duration>());
                    });
                }
                // A rank that dies takes part until then.
                task_group dying;
                if (dies) {
                    dying.spawn([&all]() -> task<> {
                        static_cast<void>(co_await as_result(all.at(fails).split(0)));
                    });
                    co_await sleep_for(after);
                    co_await all.kill(fails);
                }
                const auto ended = co_await as_result(
                    timeout([](task_group& g) -> task<> { co_await g.join(); }(parts), 60s));
                REQUIRE(ended);
                co_await dying.join();
                const members wanted = dies ? members{0, 2, 3} : members{0, 1, 2, 3};
                unsigned have_split = 0;
                unsigned have_used = 0;
                for (const unsigned rank : wanted) {
                    INFO(rank << ": " << each[rank].of.text);
                    CHECK(each[rank].left == wanted);
                    have_split += each[rank].split ? 1 : 0;
                    have_used += each[rank].used ? 1 : 0;
                }
                if (have_split != 0 && have_split != wanted.size()) ++some_have_split;
                if (have_used != 0) ++some_have_used;
            });
        }
    }
    CHECK(some_have_split > 5);
    CHECK(some_have_used > 5);
}

TEST_CASE("ranks that have the group of a split that failed at others shrink it without those") {
    std::size_t some_have_it = 0;
    for (const bool first_is_late : {false, true}) {
        for (duration after{1}; after < 30us; after += 300ns) {
            CAPTURE(first_is_late, after.count());
            run_simulated({}, [&](sim_world& world) -> task<> {
                constexpr unsigned size = 4;
                const unsigned fails = first_is_late ? 0 : 2;
                ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
                co_await open_unchecked(all);
                co_await connect_all(all);
                std::vector<split_then_shrink> each(size);
                task_group parts(on_child_error::stop_others);
                for (unsigned rank = 0; rank < size; ++rank) {
                    each[rank].shrinks_it = true;
                    parts.spawn([&, rank] {
                        return each[rank].go(all.at(rank), rank == fails ? std::optional(after)
                                                                         : std::optional<duration>());
                    });
                }
                const auto ended = co_await as_result(
                    timeout([](task_group& g) -> task<> { co_await g.join(); }(parts), 60s));
                REQUIRE(ended);
                members have;
                for (unsigned rank = 0; rank < size; ++rank) {
                    CHECK(each[rank].left == members{0, 1, 2, 3});
                    if (each[rank].left_of_it) have.push_back(rank);
                }
                for (const unsigned rank : have) CHECK(*each[rank].left_of_it == have);
                if (!have.empty() && have.size() != size) ++some_have_it;
            });
        }
    }
    CHECK(some_have_it > 5);
}

TEST_CASE("a rank that gives a wrong argument and leaves is named for that, and not as lost") {
    const bool connected = GENERATE(false, true);
    run_simulated({}, [connected](sim_world& world) -> task<> {
        constexpr unsigned size = 8;
        constexpr unsigned wrong = 1;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        if (connected) co_await connect_all(all);
        std::vector<failure> how(size);
        std::vector<std::optional<group_failure>> said(size);
        const auto part = [&](unsigned rank) -> task<> {
            std::vector<int> x(rank == wrong ? 10 : 40);
            const std::vector<int> mine(5);
            how[rank] = co_await failing([](const group& g, auto& own, auto& into) -> task<> {
                co_await g.allgather(own, into);
            }(all.at(rank), mine, x));
            said[rank] = all.at(rank).failure();
            co_await all.end(rank);
        };
        task_group parts;
        for (unsigned rank = 0; rank < size; ++rank) parts.spawn([&part, rank] { return part(rank); });
        co_await parts.join();
        for (unsigned rank = 0; rank < size; ++rank) {
            INFO(rank << ": " << how[rank].text);
            REQUIRE(said[rank]);
            CHECK(said[rank]->by == wrong);
            CHECK(said[rank]->lost.empty());
            CHECK(how[rank].code == (rank == wrong ? make_error_code(errc::invalid_argument)
                                                   : make_error_code(group_errc::revoked)));
            CHECK(how[rank].text.find("a buffer has 10 elements, not 40") != std::string::npos);
        }
    });
}

TEST_CASE("a rank that leaves in good order amid a collective is not lost where a word says soon why") {
    const bool is_told = GENERATE(true, false);
    run_simulated({}, [is_told](sim_world& world) -> task<> {
        ranks<sim> all(3, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        for (unsigned rank = 0; rank < 3; ++rank) all.state(rank).choose_by(&default_collectives::choose);
        // Its first message is from rank 0.
        failure how;
        task_group parts;
        parts.spawn(
            [&]() -> task<> { how = co_await failing(all.at(2).barrier(algorithm_named{"flat_tree"})); });
        co_await sleep_for(1ms);
        co_await all.end(0);
        co_await sleep_for(10ms);
        CHECK_FALSE(all.at(2).failure());
        if (is_told) all.state(1).revoke_alone(make_error_code(errc::canceled), "for a reason");
        co_await parts.join();
        INFO(how.text);
        REQUIRE(all.at(2).failure());
        if (is_told) {
            CHECK(how.code == group_errc::revoked);
            CHECK(how.text.find("for a reason") != std::string::npos);
            CHECK(all.at(2).failure()->lost.empty());
        } else {
            CHECK(how.code == errc::closed);
            CHECK(all.at(2).failure()->lost == members{0});
        }
    });
}

TEST_CASE("a collective that is canceled by the destructor of an operation that an exception leaves names "
          "the rank that "
          "had not entered") {
    run_simulated({}, [](sim_world& world) -> task<> {
        constexpr unsigned size = 4;
        ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
        co_await open_unchecked(all);
        co_await connect_all(all);
        std::vector<failure> how(size);
        const auto part = [&](unsigned rank) -> task<> {
            how[rank] = co_await failing(all.at(rank).barrier());
        };
        task_group parts;
        for (const unsigned rank : {0u, 3u}) parts.spawn([&part, rank] { return part(rank); });
        bool unwound = false;
        try {
            auto begun = start(all.at(1).barrier());
            co_await sleep_for(5ms);
            throw std::runtime_error("the rest of the function");
        } catch (const std::runtime_error&) {
            unwound = true;
        }
        CHECK(unwound);
        co_await parts.join();
        for (const unsigned rank : {0u, 3u}) {
            INFO(how[rank].text);
            CHECK(how[rank].code == group_errc::revoked);
            CHECK(how[rank].text.find("rank 1 has canceled it") != std::string::npos);
        }
        for (unsigned rank = 0; rank < size; ++rank) {
            REQUIRE(all.at(rank).failure());
            CHECK(all.at(rank).failure()->absent == std::vector<unsigned>{2});
        }
    });
}

TEST_CASE("groups, connections and collectives end in any order while all is pending") {
    std::vector<int> order{0, 1, 2, 3};
    do {
        for (const duration after : {duration(1ns), duration(3us), duration(1ms)}) {
            run_simulated({}, [&](sim_world& world) -> task<> {
                ranks<sim> all(3, {}, ranks<sim>::usual(), in(world));
                co_await open_unchecked(all);
                std::vector<std::uint32_t> x(5000), y(5000);
                local_stop_source stop;
                failure how;
                const auto part = [&](group g) -> task<> {
                    how = co_await failing(stopped_by(g.allreduce(x, y, std::plus<>{}), stop.get_token()));
                };
                {
                    task_group pending;
                    pending.spawn([&] { return part(all.at(1)); });
                    // Rank 0 takes part for a while, and rank 2 never.
                    pending.spawn(
                        [](group g) -> task<> {
                            std::vector<std::uint32_t> mine(5000);
                            static_cast<void>(co_await failing(g.allreduce(in_place, mine, std::plus<>{})));
                        },
                        all.at(0));
                    co_await sleep_for(after);
                    for (const int what : order) {
                        if (what == 0) all.leave(1);
                        if (what == 1) co_await all.end(2);
                        if (what == 2) stop.request_stop();
                        if (what == 3) co_await all.kill(0);
                    }
                    co_await pending.join();
                }
                CHECK(how.code);
            });
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

}  // namespace test_service_group_faults
