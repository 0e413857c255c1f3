#include <rdmacoro/service/detail/in_turns.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/collective_plans.hpp"
#include "support/counting_new.hpp"
#include "support/no_spare_frames.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace test_service_detail_in_turns {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using element = std::uint64_t;
constexpr std::size_t in_a_piece = detail::in_one_go / sizeof(element);

/// What each rank has combined since the last turn, and all of them together.
std::array<std::size_t, 16> combined_since_turn{};
std::size_t combined = 0;
/// The most of a rank.
std::size_t taken_since_turn() {
    std::size_t most = 0;
    for (std::size_t& one : combined_since_turn) most = std::max(most, std::exchange(one, 0));
    return most;
}
/// Two turns of a rank may lie between two of the one that looks.
constexpr std::size_t most_of_a_rank = 2 * in_a_piece;

/// Counts what it combines, at one rank.
struct counted_sum {
    static constexpr bool commutative = true;
    static constexpr bool associative = true;
    std::size_t rank;
    element operator()(element a, element b) const {
        ++combined_since_turn[rank];
        ++combined;
        return a + b;
    }
};

/// Looks at something in each turn until it is stopped: the most that `changed()` has said of one turn, and the sum of all.
struct watch {
    std::size_t most = 0;
    std::size_t all = 0;
    bool over = false;
};
template <class F>
task<> look(watch& w, F changed) {
    while (!w.over) {
        const std::size_t now = changed();
        w.most = std::max(w.most, now);
        w.all += now;
        co_await yield();
    }
}

/// The marks, one for each 256 KiB, of a block that have changed since the last call.
class marks {
public:
    explicit marks(std::span<const element> block) : block_(block) {
        for (std::size_t at = 0; at < block.size(); at += step) seen_.push_back(block[at]);
    }
    [[nodiscard]] std::size_t changed() {
        std::size_t count = 0;
        for (std::size_t i = 0; i < seen_.size(); ++i) {
            if (seen_[i] != block_[i * step]) ++count;
            seen_[i] = block_[i * step];
        }
        return count;
    }
    static constexpr std::size_t in_a_piece = 4;

private:
    static constexpr std::size_t step = (std::size_t{256} << 10) / sizeof(element);
    std::span<const element> block_;
    std::vector<element> seen_;
};

/// `body(group)` at each of `size` ranks, by `by`, while `changed` is looked at.
template <class F, class Changed>
watch watched(unsigned size, std::vector<unsigned> hosts, const algorithm& by, collective_kind kind, F body,
              Changed changed) {
    watch w;
    run_simulated({}, [&](sim_world& world) -> task<> {
        sim_options network;
        network.world = &world;
        ranks<sim> all(size, hosts, ranks<sim>::usual(), network);
        co_await all.open();
        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).checks = false;
        forced_algorithm = &by;
        forced_kind = kind;
        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(&by_force);
        co_await all.each([](group& g) { return g.barrier(); });
        task_group beside;
        beside.spawn([&] { return look(w, changed); });
        co_await all.each(body);
        w.over = true;
        co_await beside.join();
    });
    return w;
}

collective_case long_case(collective_kind kind, std::size_t elements) {
    collective_case of;
    of.kind = kind;
    of.elements = elements;
    return of;
}

}  // namespace

TEST_CASE("no algorithm combines more than 1 MiB for a rank between two turns") {
    using enum collective_kind;
    constexpr std::size_t n = 3 * in_a_piece + 5;
    std::size_t tried = 0;
    for (const collective_kind kind : {reduce, allreduce, reduce_scatter, scan, exscan}) {
        for (const bool on_two_hosts : {false, true}) {
            const unsigned size = on_two_hosts ? 4 : 3;
            const std::size_t block = kind == reduce_scatter ? n / size : n;
            for (const algorithm& by : algorithms_of(kind)) {
                if (!by.admits(
                        long_case(kind, block).shape(sizeof(element), size, on_two_hosts ? 2 : 1, false)))
                    continue;
                INFO(name_of(kind) << " by " << by.name << (on_two_hosts ? " on two hosts" : ""));
                std::vector<element> results;
                const auto body = [&](group& g) -> task<> {
                    const std::vector<element> mine(kind == reduce_scatter ? block * size : n, g.rank() + 1);
                    std::vector<element> got(block);
                    switch (kind) {
                        case reduce: co_await g.reduce(mine, got, counted_sum{g.rank()}, root(0)); break;
                        case allreduce: co_await g.allreduce(mine, got, counted_sum{g.rank()}); break;
                        case reduce_scatter:
                            co_await g.reduce_scatter(mine, got, counted_sum{g.rank()});
                            break;
                        case scan: co_await g.scan(mine, got, counted_sum{g.rank()}); break;
                        default: co_await g.exscan(mine, got, counted_sum{g.rank()}); break;
                    }
                    if (g.rank() == (kind == exscan || kind == scan ? size - 1 : 0)) results = std::move(got);
                };
                combined = 0;
                const watch w =
                    watched(size, on_two_hosts ? std::vector<unsigned>{0, 0, 1, 1} : std::vector<unsigned>{},
                            by, kind, body, &taken_since_turn);
                CHECK(combined >= block);
                CHECK(w.most <= most_of_a_rank);
                const element sum = kind == exscan ? size * (size - 1) / 2 : size * (size + 1) / 2;
                REQUIRE(results.size() == block);
                CHECK(std::ranges::count(results, sum) == static_cast<std::ptrdiff_t>(block));
                ++tried;
            }
        }
    }
    CHECK(tried >= 30);
}

TEST_CASE("a scan of many ranks combines no more than 1 MiB for each of them between two turns") {
    // Each operand alone is no longer than that.
    constexpr unsigned size = 12;
    const algorithm* const by = find_algorithm(collective_kind::scan, "overlapped_flat_tree");
    REQUIRE(by != nullptr);
    std::vector<element> last;
    const auto body = [&](group& g) -> task<> {
        const std::vector<element> mine(in_a_piece, g.rank() + 1);
        std::vector<element> got(in_a_piece);
        co_await g.scan(mine, got, counted_sum{g.rank()});
        if (g.rank() == size - 1) last = std::move(got);
    };
    combined = 0;
    const watch w = watched(size, {}, *by, collective_kind::scan, body, &taken_since_turn);
    CHECK(combined == size * (size - 1) / 2 * in_a_piece);
    CHECK(w.most <= most_of_a_rank);
    CHECK(std::ranges::count(last, size * (size + 1) / 2) == static_cast<std::ptrdiff_t>(in_a_piece));
}

TEST_CASE("a rank's own block is copied 1 MiB between two turns") {
    using enum collective_kind;
    constexpr std::size_t n = 3 * in_a_piece;
    constexpr unsigned size = 2;
    std::size_t tried = 0;
    for (const collective_kind kind : {scatter, gather, allgather, alltoall}) {
        for (const algorithm& by : algorithms_of(kind)) {
            if (!by.admits(long_case(kind, n).shape(sizeof(element), size, 1, false))) continue;
            INFO(name_of(kind) << " by " << by.name);
            // What a rank gives to itself: nothing that comes is written there.
            std::vector<element> whole(n * size), at_root(kind == scatter ? n : n * size);
            marks own(std::span<const element>(at_root).first(n));
            const auto body = [&](group& g) -> task<> {
                const std::vector<element> mine(n, g.rank() + 1);
                const std::vector<element> all(n * size, g.rank() + 1);
                std::vector<element> elsewhere(n * size);
                std::vector<element>& into = g.rank() == 0 ? at_root : elsewhere;
                switch (kind) {
                    case scatter: co_await g.scatter(all, std::span(into).first(n), root(0)); break;
                    case gather: co_await g.gather(mine, into, root(0)); break;
                    case allgather: co_await g.allgather(mine, into); break;
                    default: co_await g.alltoall(all, into); break;
                }
            };
            const watch w = watched(size, {}, by, kind, body, [&] { return own.changed(); });
            CHECK(w.all == n / in_a_piece * marks::in_a_piece);
            CHECK(w.most <= marks::in_a_piece);
            CHECK(std::count(at_root.begin(), at_root.begin() + n, 1) == n);
            ++tried;
        }
    }
    CHECK(tried >= 15);
}

TEST_CASE("blocks that do not lie in a row are packed and put back 1 MiB between two turns") {
    constexpr std::size_t n = 6 * in_a_piece;
    const algorithm& by = algorithms_of(collective_kind::allreduce).front();
    // Of one element, or longer than what is copied between two turns.
    const std::size_t block = GENERATE(std::size_t{1}, n / 2);
    const std::size_t step = block == 1 ? 2 : block + 1;
    const std::size_t room = step * (n / block);
    std::vector<element> into(room);
    marks put_back(into);
    const auto body = [&](group& g) -> task<> {
        std::vector<element> given(room, g.rank() + 1);
        std::vector<element> elsewhere(room);
        auto& here = g.rank() == 0 ? into : elsewhere;
        co_await g.allreduce(strided(std::span<const element>(given), 0, block, step, n / block),
                             strided(here, 0, block, step, n / block), std::plus<>{});
    };
    const watch w = watched(2, {}, by, collective_kind::allreduce, body, [&] { return put_back.changed(); });
    CHECK(w.all >= room / in_a_piece * marks::in_a_piece);
    CHECK(w.most <= step / block * marks::in_a_piece);
    CHECK(std::ranges::count(into, 3) == n);
}

TEST_CASE("many short copies in a row give turns as well") {
    std::vector<std::byte> from(detail::in_one_go / 4 + 1, std::byte{7}), to(from.size());
    scheduler on;
    on.run([](std::vector<std::byte>& into, const std::vector<std::byte>& bytes) -> task<> {
        std::size_t since_turn = 0;
        unsigned turns = 0;
        bool over = false;
        task_group beside;
        beside.spawn([&]() -> task<> {
            while (!over) {
                ++turns;
                co_await yield();
            }
        });
        for (int i = 0; i < 40; ++i) co_await detail::copy_in_turns(since_turn, into, bytes);
        over = true;
        co_await beside.join();
        CHECK(turns >= 10);
        CHECK(into == bytes);
    }(to, from));
}

TEST_CASE("without memory for a turn a long copy is made all the same") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    std::vector<std::byte> from(3 * detail::in_one_go, std::byte{7}), to(from.size());
    scheduler on;
    on.run([](std::vector<std::byte>& into, const std::vector<std::byte>& bytes) -> task<> {
        const no_spare_frames none;
        std::size_t since_turn = 0;
        fail_next_allocations(1);
        co_await detail::copy_in_turns(since_turn, into, bytes);
        // It was that allocation which failed.
        CHECK_NOTHROW(std::make_unique<int>(1));
        CHECK(into == bytes);
    }(to, from));
}

}  // namespace test_service_detail_in_turns
