// Processes that are killed, or never come, while the others join.

#include "support/catch.hpp"
#include "support/rank_processes.hpp"

#include <rdmacoro/coro/coro.hpp>

#include <random>
#include <string>
#include <system_error>

#include <unistd.h>

namespace test_ranks_joining {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// No port that the system gives to connections and to listeners of port 0, as those of other tests that run at a time: such a one may be
/// taken before rank 0 has it.
std::string free_address() {
    static std::minstd_rand random(static_cast<unsigned>(::getpid()));
    for (;;) {
        const std::string port = std::to_string(10'000 + random() % 22'000);
        try {
            return detail::meeting_server(loopback_endpoint(port), 1, detail::job_key(nullptr), false)
                .address();
        } catch (const std::system_error& taken) {
            if (taken.code() != errc::address_in_use) throw;
        }
    }
}

// The steps of a rank.
constexpr std::uint64_t has_joined = 1;
constexpr std::uint64_t has_connected = 2;  // with every other rank, where there are four

/// Joined, a rank does collectives until one fails.
task<> until_it_fails(job& ranks, rank_notes* notes) {
    const group all = ranks.world();
    notes[ranks.rank()].step = has_joined;
    for (;;) {
        co_await timeout(all.barrier(), 10s);
        notes[ranks.rank()].step = has_connected;
    }
}

/// One that had no connection yet with a rank that found the victim lost, and left, finds that rank gone.
bool names_one_that_left(rank_processes& all, const std::string& text, unsigned victim) {
    for (unsigned rank = 0; rank < all.size(); ++rank) {
        if (rank == victim || text.find("rank " + std::to_string(rank) + ' ') == std::string::npos) continue;
        if (names(all.notes(rank).text(), victim)) return true;
    }
    return false;
}

/// The others end with an error that names the rank, and none waits for longer than its limit.
void check_others(rank_processes& all, unsigned victim, duration limit,
                  std::chrono::steady_clock::time_point began, bool served) {
    CHECK(all.wait());
    bool any_joined = false;
    for (unsigned rank = 0; rank < all.size(); ++rank)
        any_joined = any_joined || (rank != victim && all.notes(rank).step >= has_joined);
    // Those that have joined connect first.
    const duration most = limit + (any_joined ? node_options().connect_limit : duration::zero()) + 3s;
    CHECK(std::chrono::steady_clock::now() - began < most);
    CHECK(all.was_killed(victim));
    for (unsigned rank = 0; rank < all.size(); ++rank) {
        if (rank == victim) continue;
        CAPTURE(rank, all.notes(rank).step.load());
        CHECK(all.status(rank) == 1 << 8);
        const std::string text = all.notes(rank).text();
        CHECK_THAT(text, contains("it ended with: "));
        INFO(text);
        if (names(text, victim)) continue;
        if (all.notes(rank).step == has_joined) {
            CHECK(names_one_that_left(all, text, victim));
            continue;
        }
        // Rank 0, which serves the others, has ended with that name; those that come later find it gone, or its address closed.
        CHECK(!served);
        CHECK(names(all.notes(0).text(), victim));
        const bool gone = text.find("rank 0, which listens there, has gone") != std::string::npos;
        const bool closed =
            text.find("rank 0, which is to listen there, has not come within the limit") != std::string::npos;
        CHECK((gone || closed));
    }
}

}  // namespace

TEST_CASE("a process that dies before it joins is named in the errors of the others, which end within their "
          "limit") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    constexpr duration limit = 400ms;
    for (const rank_network& over : networks) {
        for (const bool served : {true, false}) {
            for (const unsigned victim : {0u, 2u}) {
                rank_processes all(over, 3, until_it_fails, limit, [=](unsigned rank) {
                    if (rank == victim) ::kill(::getpid(), SIGKILL);
                });
                CAPTURE(over.name, served, victim);
                const auto began = std::chrono::steady_clock::now();
                if (served) {
                    all.meet();
                } else {
                    all.meet_at(free_address());
                }
                check_others(all, victim, limit, began, served);
                for (unsigned rank = 0; rank < all.size(); ++rank) CHECK(all.notes(rank).step == 0);
            }
        }
    }
}

TEST_CASE("a process that is killed while all join is named in the errors of the others, joined or not") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    std::minstd_rand random(seed());
    constexpr duration limit = 1s;
    unsigned joined = 0;
    unsigned others = 0;
    for (const rank_network& over : networks) {
        for (const bool served : {true, false}) {
            for (const unsigned victim : {0u, 2u}) {
                if (served && victim == 0) continue;  // as any other
                // In milliseconds; 0: when all are connected.
                for (const unsigned most : {2u, 12u, 0u}) {
                    if (most == 0 && !served) continue;
                    rank_processes all(over, 4, until_it_fails, limit);
                    CAPTURE(over.name, served, victim, most);
                    const auto began = std::chrono::steady_clock::now();
                    if (served) {
                        all.meet();
                    } else {
                        all.meet_at(free_address());
                    }
                    if (most != 0) {
                        std::this_thread::sleep_for(
                            std::chrono::microseconds(random() % (most * 1000)));  // any time is right
                    } else {
                        CHECK(all.wait_until([&all] {
                            bool connected_all = true;
                            for (unsigned rank = 0; rank < all.size(); ++rank)
                                connected_all = connected_all && all.notes(rank).step == has_connected;
                            return connected_all;
                        }));
                    }
                    all.kill(victim);
                    check_others(all, victim, limit, began, served);
                    for (unsigned rank = 0; rank < all.size(); ++rank) {
                        if (rank == victim) continue;
                        ++others;
                        joined += all.notes(rank).step >= has_joined ? 1 : 0;
                    }
                }
            }
        }
    }
    // Both happen.
    CHECK(joined > 0);
    CHECK(joined < others);
}

}  // namespace test_ranks_joining
