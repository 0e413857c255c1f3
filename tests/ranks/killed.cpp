// Ranks that are killed, stopped, or end without a word: the others' collectives end with errors that name them, and go on without them.

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/rank_processes.hpp"

#include <rdmacoro/coro/coro.hpp>

#include <numeric>
#include <random>

namespace test_ranks_killed {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// The survivors' pending collectives end within it. A rank whose word goes over a connection that is yet to be made needs its
/// time, and eight processes share what cores there are.
constexpr std::chrono::nanoseconds most = 5s;

enum class death {
    by_itself,    ///< after so many turns of its own collective
    by_the_test,  ///< at any time
    by_exit,      ///< it ends well, and has not left
    by_return,    ///< the same, with all destructors
};

struct loss {
    collective_kind kind;
    std::size_t elements;
    unsigned victim;
    death how;
    int turns = 0;
};

task<> perform_once(group& g, const loss& of) {
    collective_case one;
    one.kind = of.kind;
    one.elements = of.elements;
    one.root = g.size() > 1 ? 1 : 0;
    unsigned entered = g.size() - 1;
    const std::string wrong = co_await perform<std::uint32_t>(g, one, std::plus<>{}, entered);
    if (!wrong.empty()) throw std::runtime_error(one.text("default", g.size()) + ": " + wrong);
}

/// A collective of each kind of those that are left, with contents.
task<> check_all(group g) {
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const loss as{static_cast<collective_kind>(which), 100, 0, death::by_itself};
        co_await timeout(perform_once(g, as), 10s);
    }
}

struct ended {
    std::error_code code;
    std::string text;
};
task<ended> error_in(task<> what) {
    try {
        co_await std::move(what);
    } catch (const std::system_error& e) {
        co_return ended{e.code(), e.what()};
    }
    co_return ended{};
}
task<> limited(task<> what, duration limit) { co_await timeout(std::move(what), limit); }

/// The report of a survivor about the end of its collective.
void judge(const group& g, const ended& with, unsigned victim, bool in_order, rank_notes& own,
           const rank_notes& of_victim) {
    const auto took = std::chrono::nanoseconds(nanoseconds_now() - of_victim.began);
    const bool code = with.code == errc::peer_lost || (in_order && with.code == errc::closed);
    if (!code) own.say("the code is " + with.code.message() + "; ");
    if (!names(with.text, victim)) own.say("the rank is not named; ");
    if (!g.failure() || g.failure()->lost != std::vector<unsigned>{victim})
        own.say("failure() has other ranks; ");
    if (took > most) own.say("it took " + std::to_string(took / 1ms) + " ms; ");
    if (!own.text().empty()) own.say("\"" + with.text + "\"; ");
    ++own.failed;
}

task<> loses_one(job& ranks, rank_notes* notes, loss of) {
    group g = ranks.world();
    rank_notes& own = notes[ranks.rank()];
    const bool dies = ranks.rank() == of.victim;
    constexpr std::uint64_t last = 5;
    ended with;
    const auto give_up = std::chrono::steady_clock::now() + 20s;
    while (!with.code && std::chrono::steady_clock::now() < give_up) {
        if (dies && own.step == last && of.how != death::by_the_test) {
            own.began = nanoseconds_now();
            if (of.how == death::by_exit) ::_exit(0);
            if (of.how == death::by_return) co_return;
            auto pending = start(perform_once(g, of));
            for (int turn = 0; turn < of.turns; ++turn) co_await yield();
            own.in_time = !pending.done();
            own.began = nanoseconds_now();
            ::kill(::getpid(), SIGKILL);
            co_await pending;
        }
        with = co_await error_in(limited(perform_once(g, of), 15s));
        ++own.step;
    }
    if (dies) co_return;  // not killed: the test sees it by the status
    judge(g, with, of.victim, of.how == death::by_exit || of.how == death::by_return, own, notes[of.victim]);
    g = co_await timeout(g.shrink(), 10s);
    if (g.size() != ranks.size() - 1) own.say("the new group has " + std::to_string(g.size()) + " ranks; ");
    co_await check_all(g);
    co_await ranks.leave();
}

/// How many ranks died in their own collective, of how many that were to.
struct deaths {
    unsigned in_time = 0;
    unsigned all = 0;
};

void lose(const rank_network& over, unsigned size, const loss& of, std::minstd_rand& random, deaths& count) {
    rank_processes all(over, size,
                       [of](job& ranks, rank_notes* notes) { return loses_one(ranks, notes, of); });
    const int how = static_cast<int>(of.how);
    CAPTURE(over.name, size, std::string(name_of(of.kind)), of.elements, of.victim, how, of.turns);
    all.meet();
    if (of.how == death::by_the_test) {
        CHECK(all.wait_until([&] { return all.notes(of.victim).step >= 3; }));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));  // any time is right
        all.notes(of.victim).began = nanoseconds_now();
        all.kill(of.victim);
    }
    all.wait();
    if (of.how == death::by_itself) {
        ++count.all;
        count.in_time += all.notes(of.victim).in_time;
    }
    const bool killed = of.how == death::by_itself || of.how == death::by_the_test;
    CHECK(all.wrong(killed ? std::vector{of.victim} : std::vector<unsigned>{}) == "");
    for (unsigned rank = 0; rank < size; ++rank) {
        if (rank != of.victim) CHECK(all.notes(rank).failed == 1);
    }
}

}  // namespace

TEST_CASE("a process that is killed in a collective ends it at all others, with its rank in the error, and "
          "they go on") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    std::minstd_rand random(seed());
    deaths count;
    using enum collective_kind;
    for (const rank_network& over : networks) {
        for (const loss& of :
             {loss{barrier, 0, 0, death::by_itself, 0}, loss{barrier, 0, 2, death::by_itself, 1},
              loss{barrier, 0, 3, death::by_the_test}, loss{allreduce, 1, 1, death::by_itself, 2},
              loss{allreduce, 100'000, 0, death::by_itself, 20}, loss{allreduce, 300, 3, death::by_the_test},
              loss{alltoall, 10, 2, death::by_itself, 3}, loss{alltoall, 50'000, 1, death::by_the_test},
              loss{broadcast, 262'144, 1, death::by_itself, 1},
              loss{broadcast, 262'144, 0, death::by_itself, 30},
              loss{broadcast, 262'144, 1, death::by_the_test},
              loss{broadcast, 262'144, 3, death::by_the_test}})
            lose(over, 4, of, random, count);
        for (const unsigned size : {2u, 3u, 8u})
            lose(over, size, {allreduce, 1000, size - 1, death::by_the_test}, random, count);
    }
    // One that comes late may find all that it needs, and be through at once.
    CHECK(4 * count.in_time >= 3 * count.all);
}

TEST_CASE("a process that ends without leaving is named where a collective needs more of it") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    std::minstd_rand random(seed());
    deaths none;
    for (const rank_network& over : networks) {
        for (const death how : {death::by_exit, death::by_return}) {
            lose(over, 4, {collective_kind::allreduce, 20, 1, how}, random, none);
            lose(over, 3, {collective_kind::barrier, 0, 0, how}, random, none);
        }
    }
}

namespace {

task<> shrink_to(group& g) { g = co_await g.shrink(); }

/// Two victims: one in a collective, the other one in the shrink that follows.
task<> loses_two(job& ranks, rank_notes* notes, unsigned second, int turns) {
    group g = ranks.world();
    const unsigned rank = ranks.rank();
    const unsigned first = ranks.size() - 1;
    rank_notes& own = notes[rank];
    co_await check_all(g);
    own.step = 1;
    if (rank == first) {
        for (unsigned other = 0; other < ranks.size(); ++other) {
            while (notes[other].step == 0) co_await yield();
        }
        ::kill(::getpid(), SIGKILL);
    }
    const auto give_up = std::chrono::steady_clock::now() + 20s;
    while (std::chrono::steady_clock::now() < give_up) {
        const ended with = co_await error_in(limited(check_all(g), 15s));
        if (!with.code) break;
        ++own.failed;
        if (rank == second) {
            auto pending = start(g.shrink());
            for (int turn = 0; turn < turns; ++turn) co_await yield();
            own.in_time = !pending.done();
            own.began = nanoseconds_now();
            ::kill(::getpid(), SIGKILL);
            static_cast<void>(co_await pending);
        }
        const ended shrunk = co_await error_in(limited(shrink_to(g), 15s));
        if (shrunk.code) own.say("shrink: " + shrunk.text + ", after: " + g.failure()->describe() + "; ");
        if (shrunk.code) co_return;
        own.step = g.size();
    }
    co_await ranks.leave();
}

}  // namespace

TEST_CASE("a process that is killed while the others shrink is left out, whether it decides or not") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    deaths count;
    for (const rank_network& over : networks) {
        for (const unsigned second : {0u, 2u}) {
            for (const int turns : {0, 1, 6, 40}) {
                constexpr unsigned size = 5;
                rank_processes all(over, size, [=](job& ranks, rank_notes* notes) {
                    return loses_two(ranks, notes, second, turns);
                });
                CAPTURE(over.name, second, turns);
                all.meet();
                all.wait();
                CHECK(all.wrong({second, size - 1}) == "");
                ++count.all;
                count.in_time += all.notes(second).in_time;
                for (unsigned rank = 0; rank + 1 < size; ++rank) {
                    if (rank == second) continue;
                    CHECK(all.notes(rank).step == size - 2);
                    CHECK(all.notes(rank).failed >= 1);
                }
            }
        }
    }
    // Its own shrink has ended already where it comes last, or a turn takes as long as the others' part.
    CHECK(count.in_time >= 1);
    CHECK(count.all == 8 * networks.size());
}

namespace {

/// A rank stops itself in the middle of the work of all.
task<> stops(job& ranks, rank_notes* notes, unsigned victim) {
    group g = ranks.world();
    rank_notes& own = notes[ranks.rank()];
    const loss as{collective_kind::allreduce, 3000, 0, death::by_itself};
    for (unsigned round = 0; round < 30; ++round) {
        if (ranks.rank() == victim && round == 10) ::raise(SIGSTOP);
        co_await timeout(perform_once(g, as), 20s);
        ++own.step;
    }
    co_await check_all(g);
    co_await ranks.leave();
}

/// The others wait for it no longer than their limit, and go on with it once it goes on.
task<> stops_for_too_long(job& ranks, rank_notes* notes, unsigned victim) {
    group g = ranks.world();
    rank_notes& own = notes[ranks.rank()];
    co_await check_all(g);
    own.step = 1;
    if (ranks.rank() == victim) ::raise(SIGSTOP);
    const bool measures = ranks.rank() == (victim + 1) % ranks.size();
    ended with = co_await error_in(limited(g.barrier(), measures ? duration(300ms) : duration(15s)));
    // A rank that has stood still may find all the messages of the barrier: then it is the next collective that ends.
    if (ranks.rank() == victim && !with.code) with = co_await error_in(limited(g.barrier(), 15s));
    const bool code =
        with.code == (measures ? make_error_code(errc::timed_out) : make_error_code(group_errc::revoked));
    if (!code) own.say("the code is " + with.code.message() + ", " + with.text + "; ");
    if (!g.failure() || g.failure()->absent != std::vector<unsigned>{victim} || !g.failure()->lost.empty())
        own.say("failure() does not have the absent rank; ");
    if (!measures && !names(with.text, victim)) own.say("the rank is not named: " + with.text + "; ");
    ++own.failed;
    g = co_await timeout(g.shrink(), 15s);
    if (g.size() != ranks.size()) own.say("the new group has " + std::to_string(g.size()) + " ranks; ");
    co_await check_all(g);
    co_await ranks.leave();
}

/// A rank computes before the first collective, for longer than attempts to connect to one that is gone go on.
task<> computes_first(job& ranks, rank_notes* notes, unsigned late) {
    group g = ranks.world();
    rank_notes& own = notes[ranks.rank()];
    const auto began = std::chrono::steady_clock::now();
    if (ranks.rank() == late)
        std::this_thread::sleep_for(node_options().connect_limit + 1s);  // gives its scheduler no turn
    co_await timeout(g.barrier(), 25s);
    if (std::chrono::steady_clock::now() - began < node_options().connect_limit)
        own.say("the barrier has not waited for it; ");
    co_await check_all(g);
    co_await ranks.leave();
}

/// Waits for its SIGSTOP.
bool has_stopped(pid_t pid) {
    int status = 0;
    return ::waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
}

}  // namespace

TEST_CASE("a process that computes for some seconds before its first collective is not lost") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    for (const rank_network& over : networks) {
        rank_processes all(over, 4,
                           [](job& ranks, rank_notes* notes) { return computes_first(ranks, notes, 1); });
        CAPTURE(over.name);
        all.meet();
        all.wait();
        CHECK(all.wrong({}) == "");
    }
}

TEST_CASE("a process that is stopped for some seconds is not lost, and the collective goes on with it") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    for (const rank_network& over : networks) {
        constexpr unsigned victim = 1;
        rank_processes all(over, 4,
                           [](job& ranks, rank_notes* notes) { return stops(ranks, notes, victim); });
        CAPTURE(over.name);
        all.meet();
        REQUIRE(has_stopped(all.pid(victim)));
        std::this_thread::sleep_for(1200ms);  // the seconds of the promise
        for (unsigned rank = 0; rank < all.size(); ++rank)
            CHECK((all.notes(rank).step == 10 || all.notes(rank).step == 11));
        ::kill(all.pid(victim), SIGCONT);
        all.wait();
        CHECK(all.wrong() == "");
        for (unsigned rank = 0; rank < all.size(); ++rank) CHECK(all.notes(rank).step == 30);
    }
}

TEST_CASE("a process that is stopped for longer than another one's limit is named as absent, and is of the "
          "next group") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    for (const rank_network& over : networks) {
        constexpr unsigned victim = 2;
        rank_processes all(
            over, 4, [](job& ranks, rank_notes* notes) { return stops_for_too_long(ranks, notes, victim); });
        CAPTURE(over.name);
        all.meet();
        REQUIRE(has_stopped(all.pid(victim)));
        CHECK(all.wait_until([&] {
            unsigned failed = 0;
            for (unsigned rank = 0; rank < all.size(); ++rank)
                failed += rank != victim && all.notes(rank).failed == 1 ? 1 : 0;
            return failed == all.size() - 1;
        }));
        ::kill(all.pid(victim), SIGCONT);
        all.wait();
        CHECK(all.wrong() == "");
        CHECK(all.notes(victim).failed == 1);
    }
}

}  // namespace test_ranks_killed
