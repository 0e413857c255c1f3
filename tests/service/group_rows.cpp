// Collectives of two rows that are one, that overlap, or of which one is a block of the other.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/coro/timeout.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace test_service_group_rows {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using row = std::vector<std::uint32_t>;

/// Other numbers at each rank and place.
row filled(unsigned rank, std::size_t elements) {
    row x(elements);
    for (std::size_t at = 0; at < elements; ++at)
        x[at] = static_cast<std::uint32_t>((rank + 1) * 2654435761u + at * 40503u);
    return x;
}

/// How often results were compared, and which differed.
struct comparison {
    std::map<std::string, unsigned> compared;
    std::string wrong;

    void add(const std::string& what, const group& g, std::size_t elements, const row& is,
             const row& wanted) {
        ++compared[what];
        if (is == wanted || wrong.size() > 2000) return;
        wrong += what + " of " + std::to_string(elements) + " elements, rank " + std::to_string(g.rank()) +
                 " of " + std::to_string(g.size()) + "\n";
    }
};

/// Elements that rank `from` gives to rank `to`: the same number as the other way.
std::size_t between(unsigned from, unsigned to, std::size_t elements) { return (from + to) % 3 * elements; }

task<> all_to_all(group& g, collective_kind, std::size_t elements, std::string_view by, comparison& found) {
    const algorithm_named how{by};
    const std::string name = " by " + std::string(by);
    const row mine = filled(g.rank(), elements * g.size());
    row x = mine, wanted = mine, other(mine.size());
    co_await g.alltoall(in_place, wanted, how);
    co_await g.alltoall(x, x, how);
    co_await g.alltoall(mine, other, how);
    found.add("alltoall" + name, g, elements, x, wanted);
    found.add("alltoall" + name, g, elements, other, wanted);

    std::vector<std::size_t> counts;
    std::size_t sum = 0;
    for (unsigned rank = 0; rank < g.size(); ++rank) {
        counts.push_back(between(g.rank(), rank, elements));
        sum += counts.back();
    }
    const std::vector<std::size_t> same_counts = counts;
    x = wanted = filled(g.rank(), sum);
    co_await g.alltoallv(in_place, wanted, counts, how);
    co_await g.alltoallv(x, counts, x, same_counts, how);
    found.add("alltoallv" + name, g, elements, x, wanted);

    // A row of blocks without gaps is the row; with gaps, each side has memory of its own.
    const std::size_t size = g.size();
    x = wanted = mine;
    co_await g.alltoall(in_place, wanted, how);
    co_await g.alltoall(strided(x, 0, elements, elements, size), x, how);
    found.add("alltoall of blocks" + name, g, elements, x, wanted);
    x = wanted = filled(g.rank(), 2 * elements * size);
    const auto in_blocks = [&](row& of) { return strided(of, 0, elements, 2 * elements, size); };
    co_await g.alltoall(in_place, in_blocks(wanted), how);
    co_await g.alltoall(in_blocks(x), in_blocks(x), how);
    found.add("alltoall of blocks" + name, g, elements, x, wanted);
}
task<> reductions(group& g, collective_kind kind, std::size_t elements, std::string_view by,
                  comparison& found) {
    const algorithm_named how{by};
    const std::string name = std::string(name_of(kind)) + " by " + std::string(by);
    const row mine = filled(g.rank(), elements);
    const std::plus<> op;
    row x = mine, wanted = mine;
    const root last{g.size() - 1};
    switch (kind) {
        case collective_kind::reduce:
            co_await g.reduce(in_place, wanted, op, last, how);
            co_await g.reduce(x, x, op, last, how);
            break;
        case collective_kind::allreduce:
            co_await g.allreduce(in_place, wanted, op, how);
            co_await g.allreduce(x, x, op, how);
            break;
        case collective_kind::scan:
            co_await g.scan(in_place, wanted, op, how);
            co_await g.scan(x, x, op, how);
            break;
        default:
            co_await g.exscan(in_place, wanted, op, how);
            co_await g.exscan(x, x, op, how);
            if (g.rank() == 0) co_return;
    }
    found.add(name, g, elements, x, wanted);
}
/// This rank's block lies where it belongs among all.
task<> own_blocks(group& g, collective_kind kind, std::size_t elements, std::string_view by,
                  comparison& found) {
    const algorithm_named how{by};
    const std::string name = std::string(name_of(kind)) + " by " + std::string(by);
    row x = filled(g.rank(), elements * g.size());
    row wanted = x;
    const auto own = [&](row& of) { return std::span(of).subspan(g.rank() * elements, elements); };
    const root last{g.size() - 1};
    row rest = filled(g.rank(), elements), wanted_rest = rest;
    const bool is_root = g.rank() == last.rank;
    switch (kind) {
        case collective_kind::scatter:
            co_await g.scatter(in_place, is_root ? wanted : wanted_rest, last, how);
            if (!is_root) wanted_rest.swap(rest);
            if (is_root) {
                co_await g.scatter(x, own(x), last, how);
            } else {
                // What only the root uses may lie anywhere at the others.
                row one = filled(g.rank(), elements + 1);
                co_await g.scatter(one, std::span(one).first(elements), last, how);
                one.pop_back();
                found.add(name, g, elements, one, rest);
            }
            break;
        case collective_kind::gather:
            if (is_root) {
                co_await g.gather(in_place, wanted, last, how);
                co_await g.gather(own(x), x, last, how);
            } else {
                co_await g.gather(in_place, rest, last, how);
                co_await g.gather(rest, std::span(rest).first(elements / 2), last, how);
                CHECK(rest == wanted_rest);
            }
            break;
        case collective_kind::allgather:
            co_await g.allgather(in_place, wanted, how);
            co_await g.allgather(own(x), x, how);
            break;
        default:
            co_await g.reduce_scatter(in_place, wanted, std::plus<>{}, how);
            co_await g.reduce_scatter(x, own(x), std::plus<>{}, how);
    }
    found.add(name, g, elements, x, wanted);
}

template <class F>
void by_each_algorithm(std::vector<collective_kind> kinds, comparison& found, F body) {
    std::size_t algorithms = 0;
    for (const collective_kind kind : kinds) algorithms += algorithms_of(kind).size();
    for (const unsigned size : {1u, 2u, 3u, 4u, 5u, 8u}) {
        run_simulated({}, [&](sim_world& world) -> task<> {
            ranks<sim> all(size, {}, ranks<sim>::usual(), in(world));
            co_await open_unchecked(all);
            for (const collective_kind kind : kinds) {
                for (const algorithm& by : algorithms_of(kind)) {
                    for (const std::size_t elements : {0u, 1u, 9u, 700u, 30'000u}) {
                        const auto part = [&](group& g) -> task<> {
                            return body(g, kind, elements, by.name, found);
                        };
                        co_await all.each(part);
                    }
                }
            }
        });
    }
    CHECK(found.wrong == "");
    CHECK(found.compared.size() >= algorithms);
    for (const auto& [name, times] : found.compared) {
        INFO(name);
        CHECK(times >= 5 * 17);
    }
}

}  // namespace

TEST_CASE("an alltoall of one row that is given twice is what it is in place") {
    comparison found;
    by_each_algorithm({collective_kind::alltoall}, found, all_to_all);
}
TEST_CASE("a reduction or scan of one row that is given twice is what it is in place") {
    comparison found;
    using enum collective_kind;
    by_each_algorithm({reduce, allreduce, scan, exscan}, found, reductions);
}
TEST_CASE("a block that lies where it belongs among all is what it is in place") {
    comparison found;
    using enum collective_kind;
    by_each_algorithm({scatter, gather, allgather, reduce_scatter}, found, own_blocks);
}

TEST_CASE("rows that overlap in part are refused by each collective that has two") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        row memory(100);
        const auto at = [&](std::size_t first, std::size_t elements) {
            return std::span(memory).subspan(first, elements);
        };
        const std::vector<std::size_t> counts{4, 2}, other_counts{4, 2};
        const std::plus<> op;
        group& g = all.at(0);
        std::map<std::string, std::function<task<>()>> calls{
            {"scatter", [&] { return g.scatter(at(0, 8), at(2, 4), root(0)); }},
            {"scatterv", [&] { return g.scatterv(at(0, 6), counts, at(1, 4), root(0)); }},
            {"gather", [&] { return g.gather(at(2, 4), at(0, 8), root(0)); }},
            {"gatherv", [&] { return g.gatherv(at(1, 4), at(0, 6), counts, root(0)); }},
            {"allgather", [&] { return g.allgather(at(4, 4), at(0, 8)); }},
            {"allgatherv", [&] { return g.allgatherv(at(3, 4), at(0, 6), counts); }},
            {"alltoall", [&] { return g.alltoall(at(0, 6), at(5, 6)); }},
            {"alltoallv", [&] { return g.alltoallv(at(5, 6), counts, at(0, 6), other_counts); }},
            {"reduce", [&] { return g.reduce(at(0, 6), at(1, 6), op, root(0)); }},
            {"allreduce", [&] { return g.allreduce(at(1, 6), at(0, 6), op); }},
            {"reduce_scatter", [&] { return g.reduce_scatter(at(0, 6), at(3, 3), op); }},
            {"reduce_scatterv", [&] { return g.reduce_scatterv(at(0, 6), counts, at(2, 4), op); }},
            {"scan", [&] { return g.scan(at(0, 6), at(3, 6), op); }},
            {"exscan", [&] { return g.exscan(at(3, 6), at(0, 6), op); }},
            {"allreduce of blocks",
             [&] { return g.allreduce(strided(memory, 0, 3, 3, 2), strided(memory, 1, 6, 6, 1), op); }},
        };
        for (const auto& [name, call] : calls) {
            INFO(name);
            std::string text;
            std::error_code code;
            try {
                co_await timeout(call(), std::chrono::seconds(10));
            } catch (const std::system_error& e) {
                code = e.code();
                text = e.what();
            }
            CHECK(code == errc::invalid_argument);
            CHECK_THAT(text, Catch::Contains("group: " + name.substr(0, name.find(' ')) +
                                             ": what is given and what is gotten overlap in part"));
        }
    });
    // One row, from which other blocks are given than are gotten.
    run_nodes([]() -> task<> {
        ranks<sim> three(3);
        co_await three.open();
        row x(6);
        const std::vector<std::size_t> given{2, 3, 1}, gotten{2, 1, 3};
        const auto call = [&] { return three.at(0).alltoallv(x, given, x, gotten); };
        CHECK_THROWS_AS(static_cast<void>(call()), std::system_error);
        REQUIRE(three.at(0).failure());
        CHECK_THAT(three.at(0).failure()->text, Catch::Contains("are one, with other counts"));
    });
}

TEST_CASE("blocks of one matrix that lie between each other are two rows") {
    run_nodes([]() -> task<> {
        ranks<shm> all(3);
        co_await all.open();
        unsigned compared = 0;
        const auto body = [&](group& g) -> task<> {
            constexpr std::size_t columns = 3;
            constexpr std::size_t rows = 50;
            row matrix = filled(g.rank(), columns * rows);
            const row before = matrix;
            co_await g.allreduce(strided(matrix, 0, 1, columns, rows), strided(matrix, 2, 1, columns, rows),
                                 std::plus<>{});
            for (std::size_t at = 0; at < matrix.size(); ++at) {
                std::uint32_t wanted = before[at];
                if (at % columns == 2) {
                    wanted = 0;
                    for (unsigned rank = 0; rank < 3; ++rank) wanted += filled(rank, matrix.size())[at - 2];
                }
                CHECK(matrix[at] == wanted);
                ++compared;
            }
        };
        co_await all.each(body);
        CHECK(compared == 450);
    });
}

}  // namespace test_service_group_rows
