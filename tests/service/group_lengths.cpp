// Ranks that give lengths by which their algorithms have other partners, or other numbers of messages: with the comparison of calls and without.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/when_all.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test_service_group_lengths {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

enum class what { allgather, allreduce, broadcast };

/// A collective of `bytes` at this rank.
task<> part_of(group g, what kind, std::size_t bytes) {
    std::vector<std::uint8_t> x(bytes);
    std::vector<std::uint8_t> all(bytes * g.size());
    switch (kind) {
        case what::allgather: co_await g.allgather(x, all); break;
        case what::allreduce:
            co_await g.allreduce(in_place, x, std::plus<>{}, rdmacoro::use<pipelined_ring<>>);
            break;
        case what::broadcast: co_await g.broadcast(x, root(0), rdmacoro::use<chain<>>); break;
    }
}

task<> within(task<> work, duration most) { co_await timeout(std::move(work), most); }

/// How it ends at each rank, of which rank 0 gives another length, when each waits for a minute at most.
std::vector<failure> ends_of(what kind, unsigned size, std::size_t bytes_of_first, std::size_t bytes,
                             bool compared) {
    std::vector<failure> how(size);
    run_simulated({}, [&](sim_world& world) -> task<> {
        sim_options network;
        network.world = &world;
        ranks<sim> all(size, {}, ranks<sim>::usual(), network);
        co_await all.open();
        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).checks = compared;
        const auto part = [&](group& g) -> task<> {
            const std::size_t own = g.rank() == 0 ? bytes_of_first : bytes;
            how[g.rank()] = co_await failing(within(part_of(g, kind, own), 1min));
        };
        co_await all.each(part);
    });
    return how;
}

constexpr std::size_t piece = 64 << 10;

}  // namespace

TEST_CASE("lengths that lead to different algorithms or differ by whole pieces end everywhere with the "
          "comparison") {
    for (const auto& how : {ends_of(what::allgather, 3, 600, 3000, true),
                            ends_of(what::allreduce, 2, 4 * piece, 2 * piece, true),
                            ends_of(what::broadcast, 3, piece, 2 * piece, true)}) {
        for (const failure& of : how) {
            CHECK(of.code == group_errc::mismatch);
            CHECK_THAT(of.text, Catch::Contains("disagree about the length"));
        }
    }
}

TEST_CASE("without the comparison such lengths may leave ranks waiting until a timeout ends it everywhere") {
    for (const auto& how : {ends_of(what::allgather, 3, 600, 3000, false),
                            ends_of(what::allreduce, 2, 4 * piece, 2 * piece, false),
                            ends_of(what::broadcast, 3, piece, 2 * piece, false)}) {
        unsigned timed_out = 0;
        for (const failure& of : how) {
            const bool known = !of.code || of.code == errc::timed_out || of.code == group_errc::revoked;
            INFO(of.text);
            CHECK(known);
            timed_out += of.code == errc::timed_out ? 1 : 0;
        }
        CHECK(timed_out > 0);
    }
}

namespace {

/// What `ends_late` waits for and finds.
struct late_end {
    group* second = nullptr;       // the group of rank 2
    bool throws_its_own = false;   // rank 2, after the other rank's word
    bool has_come = false;         // rank 2 has its message, and has seen that its length is wrong
    bool threw_early = false;      // rank 2, before its group knew the reason
    bool reason_has_come = false;  // then, before the exception had left the algorithm
};
late_end* running = nullptr;

/// Rank 1 sends to all; rank 2 sees first that a message is too long, and rank 0's word comes while rank 2's algorithm ends.
struct ends_late {
    static constexpr std::string_view name = "ends_late";
    static bool admits(const collective_shape&) { return true; }
    static task<> run(collective& c) {
        if (c.rank() == 1) {
            collective::sending first(c, 0, c.data());
            collective::sending second(c, 2, c.data());
            co_await first;
            co_await second;
            c.check();
            co_return;
        }
        {
            collective::receiving in(c, 1, c.data());
            co_await in;
        }
        if (c.rank() == 0) {
            co_await until([] { return running->has_come; });
            c.check();
            co_return;
        }
        std::exception_ptr failed;
        try {
            if (running->throws_its_own) throw std::runtime_error("of the algorithm itself");
            c.check();
        } catch (...) {
            failed = std::current_exception();
        }
        running->threw_early = failed != nullptr && !running->second->failure();
        running->has_come = true;
        co_await until([] { return running->second->failure().has_value(); });
        running->reason_has_come = true;
        if (failed) std::rethrow_exception(failed);
    }
};

task<> broadcasts_late(group g, std::vector<std::uint8_t>* x) {
    co_await g.broadcast(*x, root(1), rdmacoro::use<ends_late>);
}

}  // namespace

TEST_CASE("a message of a wrong length is no cancellation where another rank says so first") {
    for (const bool throws_its_own : {false, true}) {
        late_end state;
        state.throws_its_own = throws_its_own;
        running = &state;
        std::vector<failure> how(3);
        std::string own;
        run_simulated({}, [&](sim_world& world) -> task<> {
            ranks<sim> all(3, {}, ranks<sim>::usual(), in(world));
            co_await open_unchecked(all);
            state.second = &all.at(2);
            const auto part = [&](group& g) -> task<> {
                std::vector<std::uint8_t> x(g.rank() == 1 ? 16 : 8);
                try {
                    how[g.rank()] = co_await failing(broadcasts_late(g, &x));
                } catch (const std::runtime_error& e) {
                    own = e.what();
                }
            };
            co_await all.each(part);
            REQUIRE(all.at(2).failure());
            CHECK(all.at(2).failure()->by == 0);
        });
        running = nullptr;
        CHECK(state.threw_early);
        CHECK(state.reason_has_come);
        INFO(how[2].text);
        CHECK(how[0].code == group_errc::mismatch);
        if (throws_its_own) {
            CHECK(own == "of the algorithm itself");
        } else {
            CHECK(how[2].code == group_errc::mismatch);
            CHECK_THAT(how[2].text, Catch::Contains("rank 1 sent 16 bytes, 8 were expected"));
        }
    }
}

}  // namespace test_service_group_lengths
