#include <rdmacoro/service/collective_options.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace test_service_collective_options {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace rc = rdmacoro;

namespace {

/// Carries everything by the first algorithm of its kind, and counts.
template <int Number>
struct spy {
    static constexpr std::string_view name = Number == 0 ? "spy" : "other_spy";
    static inline std::array<int, collective_kinds> runs{};
    static bool admits(const collective_shape&) { return true; }
    static task<> run(collective& c) {
        ++runs[static_cast<std::size_t>(c.kind())];
        return algorithms_of(c.kind())[0].run(c);
    }
};

/// Takes part in one collective of each kind.
template <class... Options>
task<> all_kinds(group& g, Options... options) {
    const std::vector<int> mine(4, 1), many(16, 1);
    const std::vector<std::size_t> counts(4, 4);
    std::vector<int> x(4), all(16);
    co_await g.barrier(options...);
    co_await g.broadcast(x, root(1), options...);
    co_await g.scatter(many, x, root(1), options...);
    co_await g.scatterv(many, counts, x, root(1), options...);
    co_await g.gather(mine, all, root(1), options...);
    co_await g.gatherv(mine, all, counts, root(1), options...);
    co_await g.allgather(mine, all, options...);
    co_await g.allgather(in_place, all, options...);
    co_await g.allgatherv(mine, all, counts, options...);
    co_await g.alltoall(many, all, options...);
    co_await g.alltoall(in_place, all, options...);
    co_await g.alltoallv(many, counts, all, counts, options...);
    CHECK(all == std::vector<int>(16, 1));
    co_await g.reduce(mine, x, std::plus<>{}, root(1), options...);
    if (g.rank() == 1) CHECK(x == std::vector<int>(4, 4));
    co_await g.reduce(in_place, x, std::plus<>{}, root(1), options...);
    co_await g.allreduce(mine, x, std::plus<>{}, options...);
    CHECK(x == std::vector<int>(4, 4));
    co_await g.allreduce(in_place, x, std::plus<>{}, options...);
    CHECK(x == std::vector<int>(4, 16));
    co_await g.reduce_scatter(many, x, std::plus<>{}, options...);
    co_await g.reduce_scatterv(many, counts, x, std::plus<>{}, options...);
    CHECK(x == std::vector<int>(4, 4));
    co_await g.scan(mine, x, std::plus<>{}, options...);
    CHECK(x[0] == static_cast<int>(g.rank()) + 1);
    co_await g.exscan(mine, x, std::plus<>{}, options...);
    if (g.rank() != 0) CHECK(x[0] == static_cast<int>(g.rank()));
}

constexpr std::array<int, collective_kinds> calls_of_each{1, 1, 2, 2, 3, 3, 2, 2, 2, 1, 1};

}  // namespace

TEST_CASE("an algorithm that a call names carries that call, of every kind, and no other") {
    run_nodes([]() -> task<> {
        ranks<sim> all(4);
        co_await all.open();
        const auto body = [](group& g) -> task<> { co_await all_kinds(g, rc::use<spy<0>>); };
        const auto plain = [](group& g) -> task<> { co_await all_kinds(g); };
        co_await all.each(plain);
        for (const int runs : spy<0>::runs) CHECK(runs == 0);
        co_await all.each(body);
        co_await all.each(plain);
        for (std::size_t kind = 0; kind < collective_kinds; ++kind)
            CHECK(spy<0>::runs[kind] == 4 * calls_of_each[kind]);
    });
}

TEST_CASE("the algorithm of a call is an entry of the program's data: no function is compiled for it") {
    constexpr auto asked = detail::asked_algorithms<collective_kind::allreduce>(rc::use<rc::ring<>>);
    STATIC_REQUIRE(asked.size() == 1);
    STATIC_REQUIRE(asked[0].name == "ring");
    CHECK(asked[0].run == find_algorithm(collective_kind::allreduce, "ring")->run);
}

TEST_CASE("of a call's algorithms the first that admits it carries it, and where none does the group's") {
    run_nodes([]() -> task<> {
        ranks<sim> all(4);
        co_await all.open();
        for (unsigned rank = 0; rank < 4; ++rank) all.at(rank).use<collectives<rc::allreduce<spy<1>>>>();
        spy<0>::runs = {};
        spy<1>::runs = {};
        const auto body = [](group& g) -> task<> {
            std::vector<int> lengthy(8, 1), brief(2, 1);
            co_await g.allreduce(in_place, lengthy, std::plus<>{}, rc::use<rc::ring<>, spy<0>>);
            CHECK(lengthy == std::vector<int>(8, 4));
            // Too short for a ring.
            co_await g.allreduce(in_place, brief, std::plus<>{}, rc::use<rc::ring<>, spy<0>>);
            CHECK(brief == std::vector<int>(2, 4));
            co_await g.allreduce(in_place, brief, std::plus<>{}, rc::use<rc::ring<>>);
            CHECK(brief == std::vector<int>(2, 16));
            // A ring has another grouping for each length.
            co_await g.allreduce(in_place, lengthy, std::plus<>{}, rc::reproducible, rc::use<rc::ring<>>);
            CHECK(lengthy == std::vector<int>(8, 16));
        };
        co_await all.each(body);
        const auto of = static_cast<std::size_t>(collective_kind::allreduce);
        CHECK(spy<0>::runs[of] == 4);
        CHECK(spy<1>::runs[of] == 8);
    });
}

TEST_CASE("the environment's algorithm of a run comes before a call's") {
    ::setenv("RDMACORO_ALLREDUCE", "by_root", 1);
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        spy<0>::runs = {};
        const auto body = [](group& g) -> task<> {
            std::vector<int> x(8, 1);
            co_await g.allreduce(in_place, x, std::plus<>{}, rc::use<spy<0>>);
            CHECK(x[0] == 2);
        };
        co_await all.each(body);
        CHECK(spy<0>::runs[static_cast<std::size_t>(collective_kind::allreduce)] == 0);
    });
    ::unsetenv("RDMACORO_ALLREDUCE");
}

TEST_CASE("every algorithm of every kind can be named when the program runs") {
    for (std::size_t kind = 0; kind < collective_kinds; ++kind) {
        for (const algorithm& one : algorithms_of(static_cast<collective_kind>(kind))) {
            const algorithm* const found = find_algorithm(static_cast<collective_kind>(kind), one.name);
            REQUIRE(found != nullptr);
            CHECK(found->run == one.run);
        }
    }
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const auto body = [](group& g) -> task<> {
            std::vector<int> x(8, 1);
            int tripled = 1;
            for (const algorithm& one : algorithms_of(collective_kind::allreduce)) {
                co_await g.allreduce(in_place, x, std::plus<>{}, rc::algorithm_named{one.name});
                tripled *= 3;
            }
            CHECK(tripled > 1);
            CHECK(x[0] == tripled);
            co_await g.allreduce(in_place, x, std::plus<>{}, rc::use<rc::ring<>>);
            co_await g.barrier(rc::algorithm_named{"spanning_tree"});
            CHECK(x[0] == 3 * tripled);
        };
        co_await all.each(body);
    });
}

TEST_CASE("a name that is no algorithm's is refused with those that there are, and the others are told") {
    const auto named = GENERATE(std::string_view("ring"), std::string_view());
    run_nodes([named]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        auto other = start(all.at(1).barrier());
        const failure own = co_await failing(all.at(0).barrier(rc::algorithm_named{named}));
        CHECK(own.code == errc::invalid_argument);
        CHECK_THAT(own.text, Catch::Contains("barrier has no algorithm \"") &&
                                 Catch::Contains("\"; it has dissemination, spanning_tree"));
        const auto heard = co_await as_result(other);
        CHECK(heard.error() == group_errc::revoked);
        REQUIRE(all.at(1).failure());
        CHECK(all.at(1).failure()->by == 0);
        CHECK_THAT(all.at(1).failure()->text, Catch::Contains("barrier has no algorithm"));
    });
    // Of one rank, too.
    run_nodes([]() -> task<> {
        ranks<sim> all(1);
        co_await all.open();
        const failure own = co_await failing(all.at(0).barrier(rc::algorithm_named{"ring"}));
        CHECK(own.code == errc::invalid_argument);
    });
}

TEST_CASE("ranks whose calls name different algorithms are told which of them do") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        for (unsigned rank = 0; rank < 3; ++rank) all.state(rank).checks = true;
        std::vector<failure> how(3);
        const auto body = [&](group& g) -> task<> {
            std::vector<int> x(8, 1);
            if (g.rank() == 1) {
                how[1] = co_await failing(g.allreduce(in_place, x, std::plus<>{}, rc::use<rc::ring<>>));
            } else {
                how[g.rank()] = co_await failing(g.allreduce(in_place, x, std::plus<>{}));
            }
        };
        co_await all.each(body);
        for (const failure& of : how) {
            INFO(of.text);
            CHECK(of.code == group_errc::mismatch);
            CHECK(of.text.find("ranks 0 and 1 disagree about the algorithm") != std::string::npos);
        }
    });
}

}  // namespace test_service_collective_options
