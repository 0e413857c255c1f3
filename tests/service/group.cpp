#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/counted_rows.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/service/collectives_by_costs.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace test_service_group {

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
                        (of.is_reproducible &&
                         (!is_reduction(of.kind) || (of.in_place && of.kind > collective_kind::allreduce))))
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

TEST_CASE(
    "a collective that is awaited on another scheduler ends the process with a message, and fails where "
    "its own is gone") {
    const auto await_elsewhere = [](bool own_lives) {
        std::optional<scheduler> own(std::in_place);
        group kept;
        own->run([](group& keeps) -> task<> {
            ranks<shm> all(2);
            co_await all.open();
            keeps = all.at(0);
            co_await when_all(all.at(0).barrier(), all.at(1).barrier());
            co_await when_all(all.links(0).close(), all.links(1).close());
        }(kept));
        if (!own_lives) own.reset();
        scheduler other;
        std::error_code why;
        other.run([](group& of, std::error_code& failed) -> task<> {
            const result<> ended = co_await as_result(of.barrier());
            failed = ended.error();
        }(kept, why));
        return why;
    };
    const death seen = dies([&] { static_cast<void>(await_elsewhere(true)); });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, Catch::Contains("was awaited by a coroutine of another"));
    CHECK(await_elsewhere(false) == errc::closed);
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
        std::vector<std::string> names{};  // what else the text has, of rank 0 and then of rank 2
    };
    static const disagreement all_of_them[] = {
        {"the operation", [](group& g) -> task<> { co_await g.barrier(); },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, std::plus<>{});
         }},
        {"the operation",
         [](group& g) -> task<> { co_await g.barrier(); },
         [](group& g) -> task<> { static_cast<void>(co_await g.split(0)); },
         {"(split; barrier"}},
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
         },
         {"of float with std::plus<", "of int with std::plus<"}},
        {"the types",
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, maximum{});
         },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, minimum{});
         },
         {"of int with rdmacoro::minimum", "of int with rdmacoro::maximum"}},
        {"the length",
         [](group& g) -> task<> {
             std::vector<int> x(5);
             co_await g.allreduce(in_place, x, std::plus<>{});
         },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, std::plus<>{});
         }},
        {"the algorithm",
         [](group& g) -> task<> {
             g.use<collectives<broadcast<flat_tree<>>>>();
             std::vector<int> x(4);
             co_await g.broadcast(x, root(0));
         },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.broadcast(x, root(0));
         }},
        {"the algorithm",
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, std::plus<>{}, use<by_root<any_length, spanning_tree<>>>);
         },
         [](group& g) -> task<> {
             std::vector<int> x(4);
             co_await g.allreduce(in_place, x, std::plus<>{}, use<by_root<any_length, flat_tree<>>>);
         },
         {"flat_tree", "spanning_tree"}},
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
                std::size_t at = 0;
                for (const std::string& name : one.names) {
                    at = of.text.find(name, at);
                    CHECK(at != std::string::npos);
                }
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

namespace {

/// What came of element number `at` modulo 7, of each kind at each rank; all that follow must have the same bits.
struct known_bits {
    std::map<std::pair<std::string, unsigned>, std::array<double, 7>> of;
    std::string wrong;
    std::size_t compared = 0;

    void compare(const std::string& kind, unsigned rank, const std::vector<double>& row, std::size_t length) {
        auto [at, is_new] = of.try_emplace({kind, rank});
        if (is_new) {
            REQUIRE(row.size() >= 7);
            std::copy_n(row.begin(), 7, at->second.begin());
        }
        for (std::size_t n = 0; n < row.size(); ++n) {
            ++compared;
            if (row[n] == at->second[n % 7]) continue;
            if (wrong.size() < 1000)
                wrong += kind + " of " + std::to_string(length) + " at " + std::to_string(rank) + "; ";
            return;
        }
    }
};

/// Sums of which the order is in the bits.
task<> sum_reproducibly(group& g, std::size_t length, known_bits& all) {
    std::vector<double> x, parts;
    for (std::size_t at = 0; at < length; ++at) x.push_back(given_by<double>(g.rank(), at % 7));
    for (unsigned other = 0; other < g.size(); ++other) parts.insert(parts.end(), x.begin(), x.end());
    std::vector<double> y(length);
    const unsigned rank = g.rank();
    co_await g.allreduce(x, y, std::plus<>{}, reproducible);
    all.compare("allreduce", rank, y, length);
    co_await g.reduce(x, y, std::plus<>{}, root(g.size() - 1), reproducible);
    if (rank == g.size() - 1) all.compare("reduce", rank, y, length);
    co_await g.reduce_scatter(parts, y, std::plus<>{}, reproducible);
    all.compare("reduce_scatter", rank, y, length);
    co_await g.scan(x, y, std::plus<>{}, reproducible);
    all.compare("scan", rank, y, length);
    co_await g.exscan(x, y, std::plus<>{}, reproducible);
    if (rank != 0) all.compare("exscan", rank, y, length);
}

}  // namespace

TEST_CASE("reproducible sums have the same bits whatever the length and the order of events, by the default "
          "and by costs") {
    for (const unsigned size : {2u, 3u, 4u, 6u, 8u, 13u}) {
        known_bits by_default, by_costs, by_limits;
        for (const std::uint64_t seed : {1u, 2u, 3u}) {
            sim_world_options of_world;
            of_world.seed = seed;
            of_world.jitter = 5us;
            run_simulated(of_world, [&](sim_world& world) -> task<> {
                sim_options network;
                network.world = &world;
                ranks<sim> all(size, {}, ranks<sim>::usual(), network);
                co_await all.open();
                for (const std::size_t length : {std::size_t{7}, std::size_t{1}, std::size_t{100},
                                                 std::size_t{1000}, std::size_t{8200}, std::size_t{20'000}}) {
                    const auto once = [&](algorithm_choice by, known_bits& into) -> task<> {
                        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(by);
                        const auto body = [&](group& g) -> task<> {
                            return sum_reproducibly(g, length, into);
                        };
                        co_await all.each(body);
                    };
                    co_await once(&default_collectives::choose, by_default);
                    co_await once(&collectives_by_costs<usual_costs>::choose, by_costs);
                    // Lists with limits, in which the grouping would change with the length.
                    using limited = collectives<
                        allreduce<recursive_doubling<up_to<1024>>, by_root<any_length, flat_tree<>>>,
                        reduce<spanning_tree<up_to<1024>>, flat_tree<>>,
                        reduce_scatter<recursive_halving<up_to<1024>>, by_root<>>,
                        scan<log_step<up_to<1024>>, flat_tree<>>, exscan<log_step<up_to<1024>>, flat_tree<>>>;
                    co_await once(&limited::choose, by_limits);
                }
            });
        }
        for (const known_bits* one : {&by_default, &by_costs, &by_limits}) {
            INFO(size << " ranks");
            CHECK(one->wrong == "");
            CHECK(one->compared > 3 * 29'000 * (4 * size - 2));
        }
    }
}

TEST_CASE(
    "algorithms for one call are asked without the length, too, where the result is to be reproducible") {
    run_nodes([]() -> task<> {
        ranks<sim> all(6);
        co_await all.open();
        known_bits bits;
        for (const std::size_t length : {std::size_t{7}, std::size_t{2000}}) {
            const auto body = [&](group& g) -> task<> {
                std::vector<double> x, y(length);
                for (std::size_t at = 0; at < length; ++at) x.push_back(given_by<double>(g.rank(), at % 7));
                co_await g.allreduce(x, y, std::plus<>{}, reproducible,
                                     use<recursive_doubling<up_to<1024>>, by_root<any_length, flat_tree<>>>);
                bits.compare("allreduce", g.rank(), y, length);
            };
            co_await all.each(body);
        }
        CHECK(bits.wrong == "");
        CHECK(bits.compared == 6 * 2007);
    });
}

TEMPLATE_LIST_TEST_CASE("a receive of any message at other nodes of the process sees none of the collectives",
                        "", group_transports) {
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

/// Rows of calls; in the first one all memory is found that calls of this size need. So that few messages come before their receive, no rank
/// is ahead of others by a call.
template <class F>
task<> repeat(group& g, counted_rows& counted, F what) {
    constexpr int calls = 10;
    for (int row = 0; row < counted_rows::longest && !counted.settled(); ++row) {
        co_await g.barrier();
        const bool counts = row != 0 && g.rank() == 0;
        if (counts) counted.begin();
        for (int n = 0; n < calls; ++n) {
            co_await what(g);
            co_await g.barrier();
        }
        if (counts) counted.end();
        co_await g.barrier();  // all ranks see whether another row follows
    }
}

struct operands {
    std::vector<double> a = std::vector<double>(1u << 17), b = std::vector<double>(1u << 17);
    std::vector<double> c = std::vector<double>(100);
    std::vector<std::size_t> counts;

    /// Elements of all blocks of `counts`.
    [[nodiscard]] std::size_t total() const {
        return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    }
    [[nodiscard]] std::span<double> in(std::size_t count) { return std::span(a).first(count); }
    [[nodiscard]] std::span<double> out(std::size_t count) { return std::span(b).first(count); }
};
struct repeated {
    const char* name;
    task<> (*run)(group&, operands&);
};
constexpr std::size_t doubles_in_mebibyte = 1u << 17;

const repeated repeated_operations[] = {
    {"barrier", [](group& g, operands&) { return g.barrier(); }},
    {"broadcast", [](group& g, operands& m) { return g.broadcast(m.in(10), root(1)); }},
    {"long broadcast", [](group& g, operands& m) { return g.broadcast(m.in(8000), root(1)); }},
    {"broadcast of 1 MiB",
     [](group& g, operands& m) { return g.broadcast(m.in(doubles_in_mebibyte), root(0)); }},
    {"scatter", [](group& g, operands& m) { return g.scatter(m.in(100 * g.size()), m.out(100), root(0)); }},
    {"scatterv",
     [](group& g, operands& m) {
         return g.scatterv(m.in(m.total()), m.counts, m.out(m.counts[g.rank()]), root(1));
     }},
    {"scatterv by a tree",
     [](group& g, operands& m) {
         return g.scatterv(m.in(m.total()), m.counts, m.out(m.counts[g.rank()]), root(1),
                           use<spanning_tree<>>);
     }},
    {"gather", [](group& g, operands& m) { return g.gather(m.in(100), m.out(100 * g.size()), root(2)); }},
    {"gatherv",
     [](group& g, operands& m) {
         return g.gatherv(m.in(m.counts[g.rank()]), m.out(m.total()), m.counts, root(2));
     }},
    {"gatherv by a tree",
     [](group& g, operands& m) {
         return g.gatherv(m.in(m.counts[g.rank()]), m.out(m.total()), m.counts, root(2),
                          use<spanning_tree<>>);
     }},
    {"allgather", [](group& g, operands& m) { return g.allgather(m.in(100), m.out(100 * g.size())); }},
    {"allgatherv",
     [](group& g, operands& m) {
         return g.allgatherv(m.in(m.counts[g.rank()]), m.out(m.total()), m.counts);
     }},
    {"alltoall",
     [](group& g, operands& m) { return g.alltoall(m.in(2000 * g.size()), m.out(2000 * g.size())); }},
    {"alltoall of 1 MiB",
     [](group& g, operands& m) {
         const std::size_t count = doubles_in_mebibyte / g.size() * g.size();
         return g.alltoall(m.in(count), m.out(count));
     }},
    {"alltoall in place", [](group& g, operands& m) { return g.alltoall(in_place, m.in(10 * g.size())); }},
    {"alltoallv in place",
     [](group& g, operands& m) -> task<> {
         // As many for each rank as it gives: the same number everywhere.
         const std::array<std::size_t, 4> alike{50, 50, 50, 50};
         co_await g.alltoallv(in_place, m.in(50 * g.size()), std::span(alike).first(g.size()));
     }},
    {"reduce", [](group& g, operands& m) { return g.reduce(m.in(10), m.out(10), std::plus<>{}, root(2)); }},
    {"reduce of 1 MiB",
     [](group& g, operands& m) {
         return g.reduce(m.in(doubles_in_mebibyte), m.out(doubles_in_mebibyte), std::plus<>{}, root(0));
     }},
    {"short allreduce", [](group& g, operands& m) { return g.allreduce(in_place, m.in(1), std::plus<>{}); }},
    {"long allreduce",
     [](group& g, operands& m) { return g.allreduce(m.in(8000), m.out(8000), std::plus<>{}); }},
    {"allreduce of 1 MiB",
     [](group& g, operands& m) {
         return g.allreduce(m.in(doubles_in_mebibyte), m.out(doubles_in_mebibyte), std::plus<>{});
     }},
    {"pipelined allreduce",
     [](group& g, operands& m) {
         return g.allreduce(m.in(doubles_in_mebibyte), m.out(doubles_in_mebibyte), std::plus<>{},
                            use<pipelined_ring<>>);
     }},
    {"reduce_scatter",
     [](group& g, operands& m) { return g.reduce_scatter(m.in(10 * g.size()), m.out(10), std::plus<>{}); }},
    {"reduce_scatterv",
     [](group& g, operands& m) {
         return g.reduce_scatterv(m.in(m.total()), m.counts, m.out(m.counts[g.rank()]), std::plus<>{});
     }},
    {"scan", [](group& g, operands& m) { return g.scan(m.in(10), m.out(10), std::plus<>{}); }},
    {"exscan", [](group& g, operands& m) { return g.exscan(m.in(8000), m.out(8000), std::plus<>{}); }},
    {"started allreduce",
     [](group& g, operands& m) -> task<> {
         auto sum = start(g.allreduce(in_place, m.in(1), std::plus<>{}));
         auto other = start(g.broadcast(m.c, root(0)));
         co_await sum;
         co_await other;
     }},
};

/// Every rank does it, by two levels where that can be done.
template <class T>
task<> repeat_one(const repeated& one, unsigned size, const std::vector<unsigned>& hosts) {
    const message_pool stores(message_pool::usual_bytes);
    node_options options = ranks<T>::usual();
    options.mailbox.pool = &stores;
    ranks<T> all(size, hosts, options);
    co_await all.open();
    for (unsigned rank = 0; rank < size; ++rank) all.state(rank).checks = false;
    std::vector<operands> of(size);
    for (operands& mine : of) mine.counts = {100, 0, 7, 1893};
    for (operands& mine : of) mine.counts.resize(size);
    using by_hosts =
        collectives<scatters<hierarchical<>>, gathers<hierarchical<>>, allgather<hierarchical<>>,
                    alltoall<hierarchical<>>, reduce<hierarchical<>>, allreduce<hierarchical<>>,
                    reduce_scatter<hierarchical<>>, scan<hierarchical<>>, exscan<hierarchical<>>>;
    if (!hosts.empty()) {
        for (unsigned rank = 0; rank < size; ++rank) all.at(rank).template use<by_hosts>();
    }
    counted_rows counted(stores);
    const auto body = [&](group& g) -> task<> {
        const auto once = [&](group& with) { return one.run(with, of[with.rank()]); };
        co_await repeat(g, counted, once);
    };
    co_await all.each(body);
    INFO(one.name << " of " << size << " ranks" << (hosts.empty() ? "" : " on two hosts"));
    CAPTURE(counted.last());
    CHECK(counted.settled());
    CHECK(stores.footprint() < counted_rows::most);
}
template <class T>
task<> repeat_all(unsigned size, std::vector<unsigned> hosts) {
    for (const repeated& one : repeated_operations) co_await repeat_one<T>(one, size, hosts);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a collective of a size seen before allocates nothing", "", node_transports) {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    hold_frames();
    run_nodes([]() -> task<> {
        const std::vector<unsigned> one_host;
        const std::vector<unsigned> two_hosts{0, 0, 1, 1};
        co_await repeat_all<TestType>(4, one_host);
        co_await repeat_all<TestType>(3, one_host);
        co_await repeat_all<TestType>(4, two_hosts);
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

TEST_CASE("splits and other collectives of one group run at a time, whichever of them ends first where") {
    for (const duration apart : {duration(0), duration(300ns), duration(100us)}) {
        CAPTURE(apart.count());
        run_simulated({}, [apart](sim_world& world) -> task<> {
            constexpr unsigned size = 3;
            sim_options network;
            network.world = &world;
            ranks<sim> all(size, {}, ranks<sim>::usual(), network);
            co_await all.open();
            const auto part = [&](unsigned rank) -> task<> {
                group& g = all.at(rank);
                const auto some = [&g](std::int64_t color, unsigned wanted) -> task<> {
                    const group made = co_await g.split(color);
                    CHECK(made.size() == wanted);
                    co_await made.barrier();
                };
                const auto sum = [&g]() -> task<> {
                    std::vector<int> x{1};
                    co_await g.allreduce(in_place, x, std::plus<>{});
                    CHECK(x[0] == static_cast<int>(g.size()));
                };
                for (int round = 0; round < 5; ++round) {
                    // Late, with all that it needs of the others there: what it begins first may end before the next begins.
                    co_await sleep_for(rank * apart);
                    std::vector<task<>> begun;
                    begun.push_back(some(0, size));
                    begun.push_back(some(rank == 2 ? 1 : 0, rank == 2 ? 1 : 2));
                    begun.push_back(sum());
                    begun.push_back(some(0, size));
                    co_await when_all(std::move(begun));
                }
            };
            task_group parts(on_child_error::stop_others);
            for (unsigned rank = 0; rank < size; ++rank) parts.spawn([&part, rank] { return part(rank); });
            co_await parts.join();
        });
    }
}

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

}  // namespace test_service_group
