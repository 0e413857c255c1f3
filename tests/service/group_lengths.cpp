// Ranks that give lengths by which their algorithms have other partners, or other numbers of messages: with the comparison of calls and without.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/when_all.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
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

}  // namespace test_service_group_lengths
