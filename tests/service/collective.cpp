#include <rdmacoro/service/collective.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

namespace test_service_collective {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

#if RDMACORO_WITH_TCP
using collective_transports = std::tuple<shm, tcp, sim>;
#else
using collective_transports = std::tuple<shm, sim>;
#endif

namespace {

/// The facts of its collective that an algorithm gets.
struct looks_around {
    static constexpr std::string_view name = "looks_around";
    static inline std::string wrong{};
    static bool admits(const collective_shape&) { return true; }
    static task<> run(collective& c) {
        const auto check = [&](bool good, const char* what) {
            if (!good) wrong += std::string(what) + " at " + std::to_string(c.rank()) + "; ";
        };
        check(c.size() == 3, "size");
        check(c.kind() == collective_kind::alltoall, "kind");
        check(c.element() == sizeof(int), "element");
        check(c.own().data() == c.block(0).data(), "own");
        for (unsigned rank = 0; rank < 3; ++rank) {
            check(c.block(rank).size() == 2 * sizeof(int), "block");
            check(c.block_bytes(rank) == 2 * sizeof(int), "block_bytes");
            check(c.given(rank).size() == 2 * sizeof(int), "given");
            check(c.block(rank).data() == c.block(0).data() + rank * 2 * sizeof(int), "place");
            check(c.host_of(rank) == rank / 2, "host");
            check(c.is_first_on_host(rank) == (rank != 1), "first on host");
        }
        check(c.blocks(1, 2).size() == 4 * sizeof(int), "blocks");
        check(c.given(1, 2).size() == 4 * sizeof(int), "given, several");
        check(c.blocks_bytes(0, 2) == 6 * sizeof(int), "blocks_bytes");
        check(c.take_scratch(300).bytes().size() == 300, "scratch");
        // What a rank gives to itself is where it belongs already.
        check(std::memcmp(c.block(c.rank()).data(), c.given(c.rank()).data(), 2 * sizeof(int)) == 0,
              "own block");
        co_await detail::pairwise_alltoall(c);
    }
};

/// Begins transfers that cannot end, and throws while they run.
struct throws_in_between {
    static constexpr std::string_view name = "throws_in_between";
    static bool admits(const collective_shape&) { return true; }
    static task<> run(collective& c) {
        std::array<std::byte, 100> memory{};
        if (c.rank() == 1) {
            collective::receiving in(c, 0, memory);
            collective::sending out(c, 2, c.data());
            throw std::runtime_error("the algorithm is wrong");
        }
        collective::receiving in(c, (c.rank() + 1) % 3, memory);
        co_await in;
        c.check();
    }
};

/// Two ranks of three do a step of their own.
struct steps_within {
    static constexpr std::string_view name = "steps_within";
    static bool admits(const collective_shape&) { return true; }
    static task<> run(collective& c) {
        const std::array<unsigned, 2> some{0, 2};
        if (c.rank() != 1) {
            detail::collective_call call = c.call();
            collective step(c, some, call);
            if (step.size() != 2 || step.rank() != c.rank() / 2) throw std::logic_error("rank of a step");
            co_await detail::doubling_allreduce(step);
        }
        detail::collective_call call = c.call();
        call.kind = collective_kind::broadcast;
        call.root = 2;
        collective step(c, {}, call);
        co_await detail::flat_broadcast(step);
    }
};

}  // namespace

TEST_CASE("an algorithm sees its rank, its blocks and the hosts, and moves what is missing") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(3, {0, 0, 1}, ranks<sim>::usual(), in(world));
        co_await all.open();
        looks_around::wrong.clear();
        const auto body = [](group& g) -> task<> {
            g.use<collectives<alltoall<looks_around>>>();
            const int rank = static_cast<int>(g.rank());
            const std::vector<int> out{rank, 0, rank, 1, rank, 2};
            std::vector<int> got(6, -1);
            co_await g.alltoall(out, got);
            CHECK(got == std::vector<int>{0, rank, 1, rank, 2, rank});
        };
        co_await all.each(body);
        CHECK(looks_around::wrong == "");
    });
}

TEST_CASE(
    "an algorithm that throws while transfers run leaves none behind, and its group is given up everywhere") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(3, {}, ranks<sim>::usual(), in(world));
        co_await all.open();
        std::vector<std::string> texts(3);
        const auto body = [&](group& g) -> task<> {
            g.use<collectives<allreduce<throws_in_between>>>();
            std::vector<int> x(20);
            try {
                co_await g.allreduce(in_place, x, std::plus<>{});
            } catch (const std::exception& e) {
                texts[g.rank()] = e.what();
            }
        };
        co_await all.each(body);
        CHECK(texts[1] == "the algorithm is wrong");
        for (const unsigned rank : {0u, 2u}) {
            INFO(texts[rank]);
            CHECK(texts[rank].find("rank 1") != std::string::npos);
            CHECK(texts[rank].find("the algorithm is wrong") != std::string::npos);
        }
    });
}

TEST_CASE("steps of an algorithm are collectives of some of the ranks, in the order that they are made") {
    run_simulated({}, [](sim_world& world) -> task<> {
        ranks<sim> all(3, {}, ranks<sim>::usual(), in(world));
        co_await all.open();
        const auto body = [](group& g) -> task<> {
            g.use<collectives<allreduce<steps_within>>>();
            for (int n = 0; n < 3; ++n) {
                std::vector<int> x(20, 1 + static_cast<int>(g.rank()));
                co_await g.allreduce(in_place, x, std::plus<>{});
                CHECK(x == std::vector<int>(20, 4));
            }
        };
        co_await all.each(body);
    });
}

namespace {

/// So many bytes that pieces of a message cut elements in two.
template <std::size_t Numbers>
struct numbers_row {
    std::uint32_t of[Numbers];
};
/// Associative, not commutative: of numbers the first that is not 0, and the sum.
struct keeps_first {
    template <std::size_t Numbers>
    numbers_row<Numbers> operator()(const numbers_row<Numbers>& a, const numbers_row<Numbers>& b) const {
        numbers_row<Numbers> both = a;
        for (std::size_t at = 1; at < Numbers; ++at) both.of[at] = a.of[at] + b.of[at];
        if (a.of[0] == 0) both.of[0] = b.of[0];
        return both;
    }
};

template <std::size_t Numbers, class Algorithm>
task<std::size_t> sum_rows(group& g, std::size_t count, bool in_place_too) {
    std::vector<numbers_row<Numbers>> mine(count), sum(count);
    for (std::size_t at = 0; at < count; ++at) {
        mine[at].of[0] = g.rank() >= at % g.size() ? g.rank() + 1 : 0;
        for (std::size_t n = 1; n < Numbers; ++n)
            mine[at].of[n] = static_cast<std::uint32_t>((g.rank() + 1) * (at + n));
    }
    const std::uint32_t ranks = g.size() * (g.size() + 1) / 2;
    std::size_t wrong = 0;
    const auto count_wrong = [&] {
        for (std::size_t at = 0; at < count; ++at) {
            bool good = sum[at].of[0] == at % g.size() + 1;
            for (std::size_t n = 1; n < Numbers; ++n)
                good = good && sum[at].of[n] == static_cast<std::uint32_t>(ranks * (at + n));
            wrong += good ? 0 : 1;
        }
    };
    co_await g.allreduce(mine, sum, keeps_first{}, use<Algorithm>);
    count_wrong();
    if (in_place_too) {
        sum = mine;
        co_await g.allreduce(in_place, sum, keeps_first{}, use<Algorithm>);
        count_wrong();
    }
    co_return wrong;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("elements are combined as they arrive, also those that a message's pieces cut in two",
                        "", collective_transports) {
    run_nodes([]() -> task<> {
        for (const unsigned size : {2u, 3u}) {
            ranks<TestType> all(size);
            co_await all.open();
            for (unsigned rank = 0; rank < size; ++rank) all.state(rank).checks = false;
            std::size_t wrong = 0;
            const auto body = [&wrong](group& g) -> task<> {
                for (const std::size_t count : {std::size_t{1}, std::size_t{700}, std::size_t{30'000}}) {
                    wrong += co_await sum_rows<1, recursive_doubling<>>(g, count, true);
                    wrong += co_await sum_rows<3, recursive_doubling<>>(g, count, true);
                    wrong += co_await sum_rows<7, recursive_doubling<>>(g, count, true);
                    wrong += co_await sum_rows<7, by_root<any_length, spanning_tree<>>>(g, count, true);
                    // An element as long as several pieces.
                    wrong += co_await sum_rows<20'000, recursive_doubling<>>(g, 1 + count % 3, false);
                }
            };
            co_await all.each(body);
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE("what comes through the ring of shared memory is combined where it lies") {
    run_nodes([]() -> task<> {
        ranks<shm> all(2);
        co_await all.open();
        for (unsigned rank = 0; rank < 2; ++rank) all.state(rank).checks = false;
        constexpr std::size_t bytes = 256u << 10;
        const auto body = [](group& g) -> task<> {
            std::vector<double> mine(bytes / sizeof(double), 1.0 + g.rank()), sum(mine.size());
            co_await g.barrier();
            for (int n = 0; n < 5; ++n)
                co_await g.allreduce(mine, sum, std::plus<>{}, use<recursive_doubling<>>);
            CHECK(sum == std::vector<double>(mine.size(), 3.0));
        };
        const std::uint64_t before = all.sum_of(&metrics::bytes_copied);
        co_await all.each(body);
        CHECK(all.sum_of(&metrics::bytes_received) >= 10 * bytes);
        // But for what came before its receive, which is stored.
        CHECK(all.sum_of(&metrics::bytes_copied) - before < 2 * bytes);
    });
}

}  // namespace test_service_collective
