#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/counting_new.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <rdmacoro/coro/start.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

#if RDMACORO_WITH_TCP
using group_transports = std::tuple<shm, tcp, sim>;
#else
using group_transports = std::tuple<shm, sim>;
#endif

/// Sets a variable of the environment as long as it lives.
class variable {
public:
    variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~variable() { ::unsetenv(name_); }
    variable(const variable&) = delete;
    variable& operator=(const variable&) = delete;

private:
    const char* name_;
};

/// The error of a call, thrown at once or when it is awaited.
template <class F>
task<failure> refused(F call) {
    try {
        co_await call();
    } catch (const std::system_error& e) {
        co_return failure{e.code(), e.what()};
    }
    co_return failure{};
}

std::vector<unsigned> of_job(const group& g) {
    std::vector<unsigned> all;
    for (unsigned rank = 0; rank < g.size(); ++rank) all.push_back(g.rank_in_job(rank));
    return all;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("every operation gives every rank what it must have", "", group_transports) {
    run_nodes([]() -> task<> {
        for (const unsigned size : {1u, 2u, 3u, 4u}) {
            ranks<TestType> all(size);
            co_await all.open();
            std::string wrong;
            for (std::size_t which = 0; which < collective_kinds; ++which) {
                for (unsigned variant = 0; variant < 8; ++variant) {
                    collective_case of;
                    of.kind = static_cast<collective_kind>(which);
                    of.uneven = (variant & 1) != 0;
                    of.in_place = (variant & 2) != 0;
                    of.is_reproducible = (variant & 4) != 0;
                    if ((of.uneven && !may_be_uneven(of.kind)) ||
                        (of.in_place && !may_be_in_place(of.kind)) ||
                        (of.is_reproducible && !is_reduction(of.kind)) || (of.uneven && of.in_place))
                        continue;
                    for (const std::size_t elements : {0u, 1u, 5u, 3000u, 40'000u}) {
                        of.elements = elements;
                        of.root = has_root(of.kind) ? size - 1 : 0;
                        unsigned entered = 0;
                        const auto body = [&](group& g) -> task<> {
                            wrong += co_await perform<std::uint32_t>(g, of, std::plus<>{}, entered);
                            if (elements < 100 && is_reduction(of.kind)) {
                                unsigned again = 0;
                                wrong += co_await perform<matrix>(g, of, product{}, again);
                            }
                        };
                        co_await all.each(body);
                        if (!wrong.empty()) FAIL(of.text("default", size) + ": " + wrong);
                    }
                }
            }
        }
    });
}

TEMPLATE_LIST_TEST_CASE(
    "contributions and results are vectors, arrays and spans of any trivially copyable type", "",
    group_transports) {
    run_nodes([]() -> task<> {
        struct point {
            double x;
            char name;
        };
        ranks<TestType> all(3);
        co_await all.open();
        const auto body = [](group& g) -> task<> {
            std::array<point, 2> points{};
            if (g.rank() == 1) points = {point{1.5, 'a'}, point{2.5, 'b'}};
            co_await g.broadcast(points, root(1));
            CHECK(points[1].x == 2.5);
            CHECK(points[1].name == 'b');
            const std::array<short, 2> mine{static_cast<short>(g.rank()), 7};
            std::vector<short> everyone(6);
            co_await g.allgather(mine, std::span(everyone));
            CHECK(everyone == std::vector<short>{0, 7, 1, 7, 2, 7});
            double plain[2] = {0.5, static_cast<double>(g.rank())};
            co_await g.allreduce(in_place, plain, std::plus<>{});
            CHECK(plain[0] == 1.5);
            CHECK(plain[1] == 3.0);
            std::int64_t largest = 0;
            const std::int64_t rank = g.rank();
            co_await g.reduce(std::span(&rank, 1), std::span(&largest, 1), maximum{}, root(0));
            if (g.rank() == 0) CHECK(largest == 2);
            const int offset = g.size() == 3 ? 4 : 0;
            std::vector<std::uint8_t> sums{1};
            const auto op = [offset](std::uint8_t x, std::uint8_t y) {
                return static_cast<std::uint8_t>(x + y + offset - 4);
            };
            co_await g.allreduce(in_place, sums, op);
            CHECK(sums[0] == 3);
        };
        co_await all.each(body);
    });
}

TEST_CASE("wrong arguments are refused, and the other ranks are told at once which rank gave one") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        group& g = all.at(0);
        std::vector<int> two(2), three(3), four(4), none;
        const std::vector<std::size_t> ones{1, 1}, both{3, 1}, short_one{1}, lots{2, 2};
        std::vector<failure> found;
        found.push_back(co_await refused([&] { return g.broadcast(two, root(2)); }));
        found.push_back(co_await refused([&] { return g.scatter(three, two, root(0)); }));
        found.push_back(co_await refused([&] { return g.scatterv(two, short_one, two, root(0)); }));
        found.push_back(co_await refused([&] { return g.scatterv(three, ones, two, root(0)); }));
        found.push_back(co_await refused([&] { return g.scatterv(four, both, two, root(0)); }));
        found.push_back(co_await refused([&] { return g.gather(two, three, root(0)); }));
        found.push_back(co_await refused([&] { return g.gatherv(two, three, ones, root(0)); }));
        found.push_back(co_await refused([&] { return g.gatherv(two, four, both, root(0)); }));
        found.push_back(co_await refused([&] { return g.allgather(two, three); }));
        found.push_back(co_await refused([&] { return g.allgather(in_place, three); }));
        found.push_back(co_await refused([&] { return g.allgatherv(two, two, ones); }));
        found.push_back(co_await refused([&] { return g.allgatherv(two, three, ones); }));
        found.push_back(co_await refused([&] { return g.alltoall(two, four); }));
        found.push_back(co_await refused([&] { return g.alltoall(three, three); }));
        found.push_back(co_await refused([&] { return g.alltoall(in_place, three); }));
        found.push_back(co_await refused([&] { return g.alltoallv(four, both, four, lots); }));
        found.push_back(co_await refused([&] { return g.alltoallv(four, short_one, four, lots); }));
        found.push_back(co_await refused([&] { return g.reduce(two, three, std::plus<>{}, root(0)); }));
        found.push_back(co_await refused([&] { return g.reduce(in_place, two, std::plus<>{}, root(9)); }));
        found.push_back(co_await refused([&] { return g.allreduce(two, three, std::plus<>{}); }));
        found.push_back(co_await refused([&] { return g.reduce_scatter(three, two, std::plus<>{}); }));
        found.push_back(co_await refused([&] { return g.reduce_scatterv(two, ones, two, std::plus<>{}); }));
        found.push_back(co_await refused([&] { return g.scan(two, three, std::plus<>{}); }));
        found.push_back(co_await refused([&] { return g.exscan(two, none, std::plus<>{}); }));
        for (std::size_t at = 0; at < found.size(); ++at) {
            INFO(at << ": " << found[at].text);
            CHECK(found[at].code == errc::invalid_argument);
            CHECK(found[at].text.find("group: ") == 0);
        }
        REQUIRE(g.failure());
        CHECK(g.failure()->why == errc::invalid_argument);
        const failure other = co_await refused([&] { return timeout(all.at(1).barrier(), 10s); });
        CHECK(other.code == group_errc::revoked);
        CHECK_THAT(other.text, contains("rank 0 has given it up (broadcast: root 2 of 2 ranks)"));
        const auto body = [](group& one) -> task<> { one = co_await one.shrink(); };
        co_await all.each(body);
        const auto again = [](group& one) -> task<> { co_await one.barrier(); };
        co_await all.each(again);
    });
}

TEST_CASE("an error of the comparison between ranks has the name of the collective that was asked for") {
    for (const bool checks : {false, true}) {
        run_nodes([checks]() -> task<> {
            ranks<sim> all(2);
            co_await all.open();
            for (unsigned rank = 0; rank < 2; ++rank) all.state(rank).checks = checks;
            std::vector<int> x(1);
            const failure late =
                co_await refused([&] { return timeout(all.at(0).broadcast(x, root(1)), 50ms); });
            CHECK(late.code == errc::timed_out);
            REQUIRE(all.at(0).failure());
            CHECK_THAT(all.at(0).failure()->text, contains("broadcast number 1"));
            co_await until([&] { return all.at(1).failure().has_value(); });
            const failure other =
                co_await refused([&] { return timeout(all.at(1).scan(x, x, std::plus<>{}), 10s); });
            CHECK_THAT(other.text, contains("group: scan number 1"));
        });
    }
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        const auto splits = [](group& g) -> task<> { static_cast<void>(co_await g.split(0)); };
        const failure late = co_await refused([&] { return timeout(splits(all.at(0)), 50ms); });
        CHECK(late.code == errc::timed_out);
        REQUIRE(all.at(0).failure());
        CHECK_THAT(all.at(0).failure()->text, contains("split number 1"));
    });
}

TEST_CASE("counts whose sum passes the largest number, and ranks that there are not, are refused") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const group& g = all.at(1);
        const std::vector<std::size_t> counts{~std::size_t{0}, 0, 1};  // in all 0, without the carry
        std::vector<int> none;
        const failure gathered =
            co_await refused([&] { return timeout(g.allgatherv(none, none, counts), 100ms); });
        CHECK(gathered.code == errc::invalid_argument);
        CHECK(g.rank_in_job(2) == 2);
        CHECK_THROWS_AS(g.rank_in_job(3), std::system_error);
    });
}

TEST_CASE("a group of nothing, or that was moved from, refuses all") {
    run_nodes([]() -> task<> {
        ranks<sim> all(1);
        co_await all.open();
        group first = all.at(0);
        const group second = std::move(first);
        CHECK(second);
        for (const group& g : {first, group()}) {
            CHECK(!g);
            std::vector<int> x(1);
            const failure barrier = co_await refused([&] { return g.barrier(); });
            CHECK(barrier.code == errc::invalid_argument);
            const failure broadcast = co_await refused([&] { return g.broadcast(x, root(0)); });
            CHECK(broadcast.code == errc::invalid_argument);
            const failure gather = co_await refused([&] { return g.gather(x, x, root(0)); });
            CHECK(gather.code == errc::invalid_argument);
            CHECK_THROWS_AS(g.rank(), std::system_error);
            CHECK_THROWS_AS(g.explain(), std::system_error);
        }
        co_await second.barrier();
    });
}

TEMPLATE_LIST_TEST_CASE("several collectives of a group run at a time, and are awaited in any order", "",
                        group_transports) {
    run_nodes([]() -> task<> {
        ranks<TestType> all(4);
        co_await all.open();
        const auto body = [](group& g) -> task<> {
            const auto rank = static_cast<int>(g.rank());
            std::vector<int> sum(1000, rank), largest(3, rank), from(5000, rank == 2 ? 9 : 0), every(4);
            std::vector<int> same(20'000, 1), out(4, rank), in(4);
            auto first = start(g.allreduce(in_place, sum, std::plus<>{}));
            auto second = start(g.broadcast(from, root(2)));
            auto third = start(g.allreduce(in_place, largest, maximum{}));
            auto fourth = start(g.barrier());
            auto fifth = start(g.allgather(std::span(&rank, 1), every));
            auto sixth = start(g.allreduce(in_place, same, std::plus<>{}));
            auto seventh = start(g.alltoall(out, in));
            if (rank % 2 == 0) co_await yield();
            co_await seventh;
            co_await sixth;
            co_await third;
            co_await fourth;
            co_await first;
            co_await fifth;
            co_await second;
            CHECK(sum == std::vector<int>(1000, 6));
            CHECK(largest == std::vector<int>(3, 3));
            CHECK(from == std::vector<int>(5000, 9));
            CHECK(every == std::vector<int>{0, 1, 2, 3});
            CHECK(same == std::vector<int>(20'000, 4));
            CHECK(in == std::vector<int>{0, 1, 2, 3});
        };
        co_await all.each(body);
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a group is split by colors, in the order of keys, and overlapping groups run at a time", "",
    group_transports) {
    run_nodes([]() -> task<> {
        ranks<TestType> all(6);
        co_await all.open();
        const auto body = [](group& g) -> task<> {
            const unsigned rank = g.rank();
            // 2 rows of 3.
            group row = co_await g.split(rank / 3);
            group column = co_await g.split(rank % 3, -static_cast<std::int64_t>(rank));
            CHECK(row.size() == 3);
            CHECK(row.rank() == rank % 3);
            CHECK(of_job(row)[1] == rank / 3 * 3 + 1);
            CHECK(of_job(column) == std::vector<unsigned>{rank % 3 + 3, rank % 3});
            CHECK(column.rank() == 1 - rank / 3);
            std::vector<unsigned> a(2000, rank), b(2000, rank), c(2000, rank);
            auto in_row = start(row.allreduce(in_place, a, std::plus<>{}));
            auto in_column = start(column.allreduce(in_place, b, std::plus<>{}));
            auto in_all = start(g.allreduce(in_place, c, std::plus<>{}));
            co_await in_all;
            co_await in_column;
            co_await in_row;
            CHECK(a == std::vector<unsigned>(2000, rank < 3 ? 3 : 12));
            CHECK(b == std::vector<unsigned>(2000, 2 * (rank % 3) + 3));
            CHECK(c == std::vector<unsigned>(2000, 15));
            // Some are in none; groups of groups.
            group some = co_await g.split(rank == 4 ? no_color : 7, rank == 5 ? -1 : 0);
            CHECK(static_cast<bool>(some) == (rank != 4));
            if (!some) co_return;
            CHECK(of_job(some) == std::vector<unsigned>{5, 0, 1, 2, 3});
            group pair = co_await some.split(some.rank() < 2 ? 0 : 1);
            std::vector<unsigned> d(1, 1);
            co_await pair.allreduce(in_place, d, std::plus<>{});
            CHECK(d[0] == pair.size());
            CHECK(pair.size() == (some.rank() < 2 ? 2 : 3));
        };
        co_await all.each(body);
    });
}

namespace {

/// Counts its runs; everything else is the ring's.
struct counted_ring {
    static constexpr std::string_view name = "counted_ring";
    static inline int runs = 0;
    static bool admits(const collective_shape& shape) { return shape.elements >= shape.ranks; }
    static task<> run(collective& c) {
        ++runs;
        return detail::ring_allreduce(c);
    }
};

}  // namespace

TEST_CASE("a group uses the algorithms that it is given, those of the user's own included, and the default "
          "for the rest") {
    run_nodes([]() -> task<> {
        using mine = collectives<allreduce<recursive_doubling<up_to<64>>, counted_ring>,
                                 broadcast<binomial<up_to<(32u << 10)>>, scatter_allgather<>>>;
        ranks<sim> all(4);
        co_await all.open();
        for (unsigned rank = 0; rank < 4; ++rank) all.at(rank).use<mine>();
        const std::string text = all.at(0).explain();
        INFO(text);
        CHECK(text.find("counted_ring") != std::string::npos);
        CHECK(text.find("scatter_allgather") != std::string::npos);
        const auto body = [](group& g) -> task<> {
            std::vector<int> brief(3, 1), lengthy(300, 1), whole(100'000, g.rank() == 0 ? 5 : 0);
            co_await g.allreduce(in_place, brief, std::plus<>{});
            CHECK(brief == std::vector<int>(3, 4));
            co_await g.barrier();
            if (g.rank() == 0) CHECK(counted_ring::runs == 0);
            co_await g.barrier();
            co_await g.allreduce(in_place, lengthy, std::plus<>{});
            CHECK(lengthy == std::vector<int>(300, 4));
            co_await g.broadcast(whole, root(0));
            CHECK(whole == std::vector<int>(100'000, 5));
            co_await g.barrier();
        };
        counted_ring::runs = 0;
        co_await all.each(body);
        CHECK(counted_ring::runs == 4);
    });
}

TEST_CASE("the environment names the algorithm of a run, where that admits the collective") {
    const variable forced("RDMACORO_ALLREDUCE", "ring");
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        REQUIRE(all.state(0).forced(collective_kind::allreduce) != nullptr);
        CHECK(all.state(0).forced(collective_kind::allreduce)->name == "ring");
        CHECK(all.state(0).forced(collective_kind::reduce_scatter) == nullptr);
        const auto body = [](group& g) -> task<> {
            std::vector<int> x(30, 1), y(1, 1);
            co_await g.allreduce(in_place, x, std::plus<>{});
            co_await g.allreduce(in_place, y, std::plus<>{});  // too short for a ring
            CHECK(x == std::vector<int>(30, 3));
            CHECK(y[0] == 3);
        };
        co_await all.each(body);
    });
}

TEST_CASE("a name in the environment that is no algorithm's is refused with those that there are") {
    const variable forced("RDMACORO_REDUCE_SCATTER", "rings");
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        const failure of = co_await failing(all.open());
        CHECK(of.code == errc::invalid_argument);
        CHECK(of.text.find("RDMACORO_REDUCE_SCATTER=rings") != std::string::npos);
        CHECK(of.text.find("recursive_halving") != std::string::npos);
    });
}

TEMPLATE_LIST_TEST_CASE("ranks that disagree are all told which of them do, and about what", "",
                        group_transports) {
    struct disagreement {
        const char* about;
        task<> (*at_two)(group& g);
        task<> (*at_others)(group& g);
    };
    static const disagreement all_of_them[] = {
        {"the operation", [](group& g) -> task<> { co_await g.barrier(); },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, std::plus<>{});
         }},
        {"the root",
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.broadcast(x, root(1));
         },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.broadcast(x, root(0));
         }},
        {"the types",
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, std::plus<>{});
         },
         [](group& g) -> task<> {
             std::vector<float> x(4);
             co_await g.allreduce(in_place, x, std::plus<>{});
         }},
        {"the types",
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, maximum{});
         },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, minimum{});
         }},
        {"the length",
         [](group& g) -> task<> {
             std::vector<int> x(5);
             co_await g.allreduce(in_place, x, std::plus<>{});
         },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, std::plus<>{});
         }},
        {"the length",
         [](group& g) -> task<> {
             std::vector<int> x(1), y(4);
             co_await g.gather(x, y, root(0));
         },
         [](group& g) -> task<> {
             std::vector<int> x(0), y(0);
             co_await g.gather(x, y, root(0));
         }},
    };
    run_nodes([]() -> task<> {
        for (const disagreement& one : all_of_them) {
            ranks<TestType> all(4);
            co_await all.open();
            std::vector<failure> how(4);
            const auto body = [&](group& g) -> task<> {
                const auto what = g.rank() == 2 ? one.at_two : one.at_others;
                how[g.rank()] = co_await failing(what(g));
            };
            for (unsigned rank = 0; rank < 4; ++rank) all.state(rank).checks = true;
            co_await all.each(body);
            for (const failure& of : how) {
                INFO(of.text);
                CHECK(of.code == group_errc::mismatch);
                CHECK(of.text.find("ranks 0 and 2 disagree about " + std::string(one.about)) !=
                      std::string::npos);
                CHECK(of.text.find("ranks 0 and 1") == std::string::npos);
            }
        }
    });
}

TEST_CASE("without the comparison a message of a wrong length ends the collective everywhere") {
    run_nodes([]() -> task<> {
        ranks<sim> all(4);
        co_await all.open();
        for (unsigned rank = 0; rank < 4; ++rank) all.state(rank).checks = false;
        for (unsigned rank = 0; rank < 4; ++rank)
            all.at(rank).use<collectives<allreduce<recursive_doubling<>>>>();
        std::vector<failure> how(4);
        const auto body = [&](group& g) -> task<> {
            std::vector<int> x(g.rank() == 2 ? 5 : 4);
            how[g.rank()] = co_await failing(g.allreduce(in_place, x, std::plus<>{}));
        };
        co_await all.each(body);
        for (const failure& of : how) {
            INFO(of.text);
            CHECK(of.code == group_errc::mismatch);
            CHECK(of.text.find("bytes") != std::string::npos);
        }
    });
}

TEST_CASE(
    "a minimum has the same bits at every rank although zeros have signs and NaNs compare with nothing") {
    run_nodes([]() -> task<> {
        for (const unsigned size : {2u, 3u, 4u, 7u}) {
            ranks<sim> all(size);
            co_await all.open();
            std::vector<std::vector<double>> results(size);
            const auto body = [&](group& g) -> task<> {
                const double nan = std::numeric_limits<double>::quiet_NaN();
                const double odd = g.rank() % 2 == 1 ? 0.0 : -0.0;
                std::vector<double> x{odd, g.rank() == 1 ? nan : 1.0 + g.rank(), -odd, 0.1 * g.rank()};
                co_await g.allreduce(in_place, x, minimum{}, reproducible);
                results[g.rank()] = x;
            };
            co_await all.each(body);
            for (const std::vector<double>& one : results)
                CHECK(std::memcmp(one.data(), results[0].data(), sizeof(double) * 4) == 0);
        }
    });
}

TEST_CASE("reproducible sums have the same bits whatever the length and the order of events") {
    for (const unsigned size : {2u, 3u, 5u, 8u, 13u}) {
        std::vector<double> wanted;
        for (const std::uint64_t seed : {1u, 2u, 3u}) {
            sim_world_options of_world;
            of_world.seed = seed;
            of_world.jitter = 5us;
            run_simulated(of_world, [&](sim_world& world) -> task<> {
                sim_options network;
                network.world = &world;
                ranks<sim> all(size, {}, ranks<sim>::usual(), network);
                co_await all.open();
                for (const std::size_t length :
                     {std::size_t{1}, std::size_t{7}, std::size_t{100}, std::size_t{20'000}}) {
                    const auto body = [&](group& g) -> task<> {
                        std::vector<double> x, block(length), parts;
                        for (std::size_t at = 0; at < length; ++at)
                            x.push_back(given_by<double>(g.rank(), at % 7));
                        for (unsigned other = 0; other < size; ++other)
                            parts.insert(parts.end(), x.begin(), x.end());
                        std::vector<double> y = x;
                        std::vector<double> z(length);
                        co_await g.allreduce(in_place, x, std::plus<>{}, reproducible);
                        co_await g.reduce(y, z, std::plus<>{}, root(size - 1), reproducible);
                        co_await g.reduce_scatter(parts, block, std::plus<>{}, reproducible);
                        if (wanted.empty()) wanted = {x[0]};
                        CHECK(x[0] == wanted[0]);
                        CHECK(x[length - 1] == x[(length - 1) % 7]);
                        if (g.rank() == size - 1) CHECK(z[length - 1] == z[(length - 1) % 7]);
                        CHECK(block[length - 1] == block[(length - 1) % 7]);
                    };
                    co_await all.each(body);
                }
            });
        }
    }
}

TEMPLATE_LIST_TEST_CASE("a user's receive of any message sees none of the collectives", "",
                        group_transports) {
    run_nodes([]() -> task<> {
        ranks<TestType> all(2);
        co_await all.open();
        node<TestType> one(101), two(102);
        co_await one.listen(fresh_url<TestType>());
        co_await two.listen(fresh_url<TestType>());
        one.add(two.card());
        two.add(one.card());
        auto heard = start(hear(two.peer(101)));
        const auto body = [](group& g) -> task<> {
            for (int n = 0; n < 20; ++n) {
                std::vector<int> x(50, 1);
                co_await g.allreduce(in_place, x, std::plus<>{});
                co_await g.barrier();
            }
        };
        co_await all.each(body);
        CHECK(!heard.done());
        co_await say(one.peer(102), "mine", 1);
        const std::string text = co_await heard;
        CHECK(text == "mine");
    });
}

namespace {

/// `taken`: the fewest allocations in a row of calls. What comes before its receive may take a block of a store now and then.
template <class F>
task<> repeat(group& g, std::size_t& taken, F what) {
    constexpr int rows = 6;
    constexpr int calls = 20;
    for (int row = 0; row < rows; ++row) {
        const std::size_t from = allocations();
        for (int n = 0; n < calls; ++n) co_await what(g);
        if (g.rank() == 0) taken = std::min(taken, allocations() - from);
    }
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a collective of a size seen before allocates nothing", "", node_transports) {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_nodes([]() -> task<> {
        ranks<TestType> all(4);
        co_await all.open();
        for (unsigned rank = 0; rank < 4; ++rank) all.state(rank).checks = false;
        struct memory {
            std::vector<double> a = std::vector<double>(8000), b = std::vector<double>(8000),
                                c = std::vector<double>(8000);
            std::vector<std::size_t> counts{100, 0, 7, 1893};
        };
        std::array<memory, 4> of;
        using operation = task<> (*)(group&, memory&);
        struct named {
            const char* name;
            operation run;
        };
        static constexpr named operations[] = {
            {"barrier", [](group& g, memory&) { return g.barrier(); }},
            {"broadcast", [](group& g, memory& m) { return g.broadcast(std::span(m.a).first(10), root(1)); }},
            {"long broadcast", [](group& g, memory& m) { return g.broadcast(m.a, root(1)); }},
            {"scatter",
             [](group& g, memory& m) {
                 return g.scatter(std::span(m.a).first(400), std::span(m.b).first(100), root(0));
             }},
            {"gather",
             [](group& g, memory& m) {
                 return g.gather(std::span(m.a).first(100), std::span(m.b).first(400), root(3));
             }},
            {"gatherv",
             [](group& g, memory& m) {
                 return g.gatherv(std::span(m.a).first(m.counts[g.rank()]), std::span(m.b).first(2000),
                                  m.counts, root(2));
             }},
            {"allgather",
             [](group& g, memory& m) {
                 return g.allgather(std::span(m.a).first(100), std::span(m.b).first(400));
             }},
            {"allgatherv",
             [](group& g, memory& m) {
                 return g.allgatherv(std::span(m.a).first(m.counts[g.rank()]), std::span(m.b).first(2000),
                                     m.counts);
             }},
            {"alltoall", [](group& g, memory& m) { return g.alltoall(m.a, m.b); }},
            {"alltoall in place",
             [](group& g, memory& m) { return g.alltoall(in_place, std::span(m.a).first(40)); }},
            {"reduce",
             [](group& g, memory& m) {
                 return g.reduce(std::span(m.a).first(10), std::span(m.b).first(10), std::plus<>{}, root(2));
             }},
            {"short allreduce",
             [](group& g, memory& m) {
                 return g.allreduce(in_place, std::span(m.a).first(1), std::plus<>{});
             }},
            {"long allreduce", [](group& g, memory& m) { return g.allreduce(m.a, m.b, std::plus<>{}); }},
            {"reduce_scatter",
             [](group& g, memory& m) {
                 return g.reduce_scatter(std::span(m.a).first(40), std::span(m.b).first(10), std::plus<>{});
             }},
            {"scan",
             [](group& g, memory& m) {
                 return g.scan(std::span(m.a).first(10), std::span(m.b).first(10), std::plus<>{});
             }},
            {"exscan", [](group& g, memory& m) { return g.exscan(m.a, m.b, std::plus<>{}); }},
            {"started allreduce",
             [](group& g, memory& m) -> task<> {
                 auto sum = start(g.allreduce(in_place, std::span(m.a).first(1), std::plus<>{}));
                 auto other = start(g.broadcast(std::span(m.c).first(100), root(0)));
                 co_await sum;
                 co_await other;
             }},
        };
        for (const named& one : operations) {
            std::size_t taken = 1000;
            const auto body = [&](group& g) -> task<> {
                const auto once = [&](group& with) { return one.run(with, of[with.rank()]); };
                co_await repeat(g, taken, once);
            };
            co_await all.each(body);
            INFO(one.name);
            CHECK(taken == 0);
        }
    });
}

namespace {

/// The sum of the ranks of a group, in the job.
task<unsigned> sum_of_ranks(group g) {
    std::vector<unsigned> sum{g.rank_in_job(g.rank())};
    co_await g.allreduce(in_place, sum, std::plus<>{});
    co_return sum[0];
}

}  // namespace

TEST_CASE("groups of the same ranks split at a time, in another order at each rank") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        sim_world_options chance;
        chance.seed = seed;
        chance.jitter = 3us;
        chance.faults.delayed = 20000;
        chance.faults.delay = 30us;
        run_simulated(chance, [](sim_world& world) -> task<> {
            sim_options network;
            network.world = &world;
            ranks<sim> all(4, {}, ranks<sim>::usual(), network);
            co_await all.open();
            const auto body = [](group& whole) -> task<> {
                const unsigned rank = whole.rank();
                const group twin = co_await whole.split(0, -static_cast<int>(rank));
                const group most = co_await whole.split(rank != 3 ? 0 : 1);
                // Each new group is used while others are being named.
                const auto one = [&](unsigned which) -> task<> {
                    group made;
                    switch (which) {
                        case 0: made = co_await whole.split(rank % 2); break;
                        case 1: made = co_await twin.split(rank / 2); break;
                        default: made = co_await most.split(0);
                    }
                    const unsigned sum = co_await sum_of_ranks(made);
                    const unsigned wanted[] = {rank % 2 == 0 ? 2u : 4u, rank / 2 == 0 ? 1u : 5u, 3u};
                    CHECK(sum == wanted[which]);
                };
                task_group splitting(on_child_error::stop_others);
                for (unsigned turn = 0; turn < 3; ++turn)
                    splitting.spawn([&one, which = (turn + rank) % 3] { return one(which); });
                co_await splitting.join();
            };
            co_await all.each(body);
        });
    }
}
