#include <rdmacoro/service/detail/run_collective.hpp>

#include <rdmacoro/service/collectives_by_costs.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/counting_new.hpp"
#include "support/ranks.hpp"

#include <array>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace test_service_detail_run_collective {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace rc = rdmacoro;

static_assert(detail::types_of<int, void>.number != detail::types_of<unsigned, void>.number);
static_assert(detail::types_of<int, std::plus<>>.number != detail::types_of<int, std::minus<>>.number);
static_assert(detail::types_of<int, std::plus<>>.number == detail::types_of<int, std::plus<>>.number);

TEST_CASE("a rank that is short of memory gives the group up, instead of leaving the others to wait") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        for (unsigned rank = 0; rank < 3; ++rank) all.state(rank).checks = false;
        std::vector<std::string> texts(3);
        const auto body = [&](group& g) -> task<> {
            std::vector<int> mine(300'000, 1), sum(300'000);
            try {
                if (g.rank() == 1) {
                    // Of this rank alone: the others begin while it waits.
                    std::optional<failing_allocations> none(std::in_place, 1u << 20, 1u << 24);
                    auto reducing = start(g.reduce(mine, sum, std::plus<>{}, root(0)));
                    none.reset();
                    co_await reducing;
                } else {
                    co_await g.reduce(mine, sum, std::plus<>{}, root(0));
                    co_await g.barrier();
                }
            } catch (const std::exception& e) {
                texts[g.rank()] = e.what();
            }
        };
        co_await all.each(body);
        CHECK(texts[1] != "");
        for (const unsigned rank : {0u, 2u}) {
            INFO(texts[rank]);
            CHECK(texts[rank].find("rank 1") != std::string::npos);
        }
    });
}

TEST_CASE("a rank that is short of memory in a split gives the whole group up") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    // Each allocation of the split's beginning in turn, with and without the comparison, until none of them fails.
    for (const bool checks : {false, true}) {
        std::size_t failed = 0;
        for (std::size_t which = 1;; ++which) {
            CAPTURE(checks, which);
            bool came = false;
            run_simulated({}, [&](sim_world& world) -> task<> {
                ranks<sim> all(3, {}, ranks<sim>::usual(), sim_options{.world = &world});
                co_await all.open();
                for (unsigned rank = 0; rank < 3; ++rank) all.state(rank).checks = checks;
                std::vector<bool> ended_well(3);
                const auto body = [&](group& g) -> task<> {
                    try {
                        task<group> splitting = g.split(0);
                        if (g.rank() == 1) fail_allocation(which);
                        auto split = start(std::move(splitting));
                        if (g.rank() == 1) {
                            came = !allocation_is_to_fail();
                            fail_allocation(0);
                        }
                        static_cast<void>(co_await split);
                        ended_well[g.rank()] = true;
                    } catch (const std::exception&) {}
                };
                co_await all.each(body);
                if (came) {
                    for (unsigned rank = 0; rank < 3; ++rank) {
                        CHECK(ended_well[rank] == ended_well[1]);
                        CHECK(all.at(rank).failure().has_value() != ended_well[rank]);
                    }
                }
            });
            if (!came) break;
            ++failed;
        }
        CHECK(failed > 0);
    }
}

TEST_CASE("a rank that is short of memory as it gives a collective up tells the others all the same") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_simulated({}, [](sim_world& world) -> task<> {
        constexpr unsigned size = 33;
        ranks<sim> all(size, {}, ranks<sim>::usual(), sim_options{.world = &world});
        co_await all.open();
        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).checks = false;
        std::size_t ended = 0;
        const auto body = [&](group& g) -> task<> {
            if (g.rank() == 2) co_return;  // never enters
            try {
                if (g.rank() == 1) {
                    co_await timeout(g.barrier(), std::chrono::milliseconds(1));
                } else {
                    co_await g.barrier();
                }
            } catch (const std::exception&) {
                ++ended;
            }
        };
        const failing_allocations none(size * 16, size * 16);  // for the answers of the others
        co_await all.each(body);
        CHECK(ended == size - 1);
        for (unsigned rank = 0; rank < size; ++rank) CHECK(all.at(rank).failure().has_value());
    });
}

namespace {

/// Rank 1 gets a message of another length while it has no memory.
struct short_of_memory_at_one {
    static constexpr std::string_view name = "short_of_memory_at_one";
    static inline int received = 0;
    static bool admits(const collective_shape&) { return true; }
    static task<> run(collective& c) {
        const unsigned with = c.rank() ^ 1;
        std::array<std::byte, 200> memory{};
        collective::sending out(c, with, c.data());
        collective::receiving in(c, with, std::span(memory).first(c.data().size()));
        co_await out;
        while (!in.await_ready()) co_await yield();
        if (c.rank() == 1) {
            const failing_allocations none(1, std::size_t{1} << 40);
            ++received;
            in.await_resume();
        } else {
            in.await_resume();
        }
        c.check();
    }
};

}  // namespace

TEST_CASE("a message of a wrong length ends the group, not the process, where there is no memory for words") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_nodes([]() -> task<> {
        ranks<sim> all(4);
        co_await all.open();
        for (unsigned rank = 0; rank < 4; ++rank) {
            all.state(rank).checks = false;
            all.at(rank).use<collectives<allreduce<short_of_memory_at_one>>>();
        }
        std::vector<failure> how(4);
        const auto body = [&](group& g) -> task<> {
            std::vector<int> x(g.rank() == 0 ? 5 : 4);
            how[g.rank()] = co_await failing(g.allreduce(in_place, x, std::plus<>{}));
            const failure next = co_await failing(g.barrier());
            CHECK(next.code == group_errc::mismatch);
        };
        short_of_memory_at_one::received = 0;
        co_await all.each(body);
        CHECK(short_of_memory_at_one::received == 1);
        for (const unsigned rank : {0u, 1u}) {
            INFO(how[rank].text);
            CHECK(how[rank].code == group_errc::mismatch);
            CHECK_THAT(how[rank].text, contains("bytes"));
        }
    });
}

namespace {

struct thrown_by_operation : std::exception {
    [[nodiscard]] const char* what() const noexcept override { return "this sum is not one"; }
};

}  // namespace

TEST_CASE("what an operation throws while elements arrive ends the collective at all ranks") {
    run_nodes([]() -> task<> {
        ranks<shm> all(2);
        co_await all.open();
        for (unsigned rank = 0; rank < 2; ++rank) all.state(rank).checks = false;
        std::vector<std::string> texts(2);
        const auto body = [&](group& g) -> task<> {
            std::vector<std::uint32_t> mine(50'000, g.rank() + 1), sum(50'000);
            const auto op = [first = g.rank() == 0](std::uint32_t a, std::uint32_t b) {
                if (first) throw thrown_by_operation{};
                return a + b;
            };
            try {
                co_await g.allreduce(mine, sum, op);
                co_await g.barrier();
            } catch (const std::exception& e) {
                texts[g.rank()] = e.what();
            }
        };
        co_await all.each(body);
        CHECK_THAT(texts[0], contains("this sum is not one"));
        CHECK_THAT(texts[1], contains("rank 0") && contains("this sum is not one"));
    });
}

namespace {

/// Blocks of several lengths, of which one rank of three says something else.
struct other_counts {
    task<> (*what)(group&);
    const char* text;
};

// Rank 2 takes the block of rank 1 for one element longer.
[[nodiscard]] std::vector<std::size_t> counts_of_two(const group& g) {
    std::vector<std::size_t> counts{2, 0, 3};
    if (g.rank() == 2) ++counts[1];
    return counts;
}
[[nodiscard]] std::size_t sum_of(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

const other_counts all_other_counts[] = {
    {[](group& g) -> task<> {
         const std::vector<std::size_t> counts = counts_of_two(g);
         const std::vector<int> mine(counts[g.rank()], 1);
         std::vector<int> all(sum_of(counts));
         co_await g.allgatherv(mine, all, counts);
     },
     "ranks 0 and 2 disagree about the length of block 1 (0 elements; 1 elements)"},
    {[](group& g) -> task<> {
         const std::vector<std::size_t> counts = counts_of_two(g);
         std::vector<int> all(sum_of(counts));
         co_await g.allgatherv(in_place, all, counts);
     },
     "ranks 0 and 2 disagree about the length of block 1 (0 elements; 1 elements)"},
    {[](group& g) -> task<> {
         const std::vector<std::size_t> counts = counts_of_two(g);
         const std::vector<double> mine(sum_of(counts), 1);
         std::vector<double> x(counts[g.rank()]);
         co_await g.reduce_scatterv(mine, counts, x, std::plus<>{});
     },
     "ranks 0 and 2 disagree about the length of block 1 (0 elements; 1 elements)"},
    {[](group& g) -> task<> {
         const std::vector<std::size_t> counts{2, 0, 3};
         const std::vector<int> mine(g.rank() == 2 ? 4 : counts[g.rank()], 1);
         std::vector<int> all(5);
         co_await g.gatherv(mine, all, counts, root(0));
     },
     "ranks 0 and 2 disagree about the length of what rank 2 sends to 0 (3 elements; 4 elements)"},
    {[](group& g) -> task<> {
         const std::vector<std::size_t> counts{2, 0, 3};
         std::vector<double> x(g.rank() == 0 ? 5 : 3);
         co_await g.gatherv(in_place, x, counts, root(0));
     },
     "ranks 0 and 1 disagree about the length of what rank 1 sends to 0 (0 elements; 3 elements)"},
    {[](group& g) -> task<> {
         const std::vector<std::size_t> counts{2, 0, 3};
         const std::vector<double> all(5, 1);
         std::vector<double> mine(g.rank() == 2 ? 2 : counts[g.rank()]);
         co_await g.scatterv(all, counts, mine, root(1));
     },
     "ranks 1 and 2 disagree about the length of what rank 1 sends to 2 (3 elements; 2 elements)"},
    {[](group& g) -> task<> {
         // Rank 2 expects one more of rank 1 than that sends, and has as many in all.
         const std::vector<std::size_t> out_counts{2, 1, 3};
         std::vector<std::size_t> in_counts(3, out_counts[g.rank()]);
         if (g.rank() == 2) {
             --in_counts[0];
             ++in_counts[1];
         }
         const std::vector<int> out(6, 1);
         std::vector<int> in(sum_of(in_counts));
         co_await g.alltoallv(out, out_counts, in, in_counts);
     },
     "ranks 0 and 2 disagree about the length of what rank 0 sends to 2 (3 elements; 2 elements)"},
    {[](group& g) -> task<> {
         std::vector<std::size_t> counts{1, 1, 1};
         if (g.rank() == 0) counts[1] = 2;
         std::vector<int> x(sum_of(counts));
         co_await g.alltoallv(in_place, x, counts);
     },
     "ranks 1 and 0 disagree about the length of what rank 1 sends to 0 (1 elements; 2 elements), "
     "ranks 0 and 1 disagree about the length of what rank 0 sends to 1 (2 elements; 1 elements)"},
    {[](group& g) -> task<> {
         std::vector<int> mine(2), all(6);
         const std::vector<std::size_t> counts{2, 2, 2};
         if (g.rank() == 2) {
             co_await g.gather(mine, all, root(0));
         } else {
             co_await g.gatherv(mine, all, counts, root(0));
         }
     },
     "ranks 0 and 2 disagree about the length (gatherv, root 0; gather of 8 bytes, root 0)"},
};

}  // namespace

TEST_CASE("ranks that give different lengths for one block are told which ranks and which block, all alike") {
    run_nodes([]() -> task<> {
        for (const other_counts& one : all_other_counts) {
            ranks<sim> all(3);
            co_await all.open();
            for (unsigned rank = 0; rank < 3; ++rank) all.state(rank).checks = true;
            std::vector<failure> how(3);
            const auto body = [&](group& g) -> task<> { how[g.rank()] = co_await failing(one.what(g)); };
            co_await all.each(body);
            for (const failure& of : how) {
                CHECK(of.code == group_errc::mismatch);
                CHECK(of.text.substr(0, of.text.rfind(": the ranks")) == "group: " + std::string(one.text));
            }
        }
    });
}

TEST_CASE("blocks of several lengths on which all ranks agree pass the comparison") {
    run_nodes([]() -> task<> {
        ranks<sim> all(5);
        co_await all.open();
        for (unsigned rank = 0; rank < 5; ++rank) all.state(rank).checks = true;
        unsigned entered = 0;
        for (const collective_kind kind :
             {collective_kind::scatter, collective_kind::gather, collective_kind::allgather,
              collective_kind::alltoall, collective_kind::reduce_scatter}) {
            for (const collective_case& one : cases_of(kind, {0, 3}, {0, 1, 7}, true)) {
                const auto body = [&](group& g) -> task<> {
                    const std::string wrong = co_await perform<std::uint32_t>(g, one, std::plus<>{}, entered);
                    CHECK(wrong == "");
                };
                co_await all.each(body);
            }
        }
    });
}

namespace {

/// Of what it carries by default, and of lists with algorithms that group otherwise.
task<> try_left_folds(ranks<sim>& all) {
    using grouping =
        collectives<rc::reduce<ring<>, binomial<>, spanning_tree<>>,
                    rc::allreduce<recursive_doubling<>, rabenseifner<>, ring<>, by_root<>>,
                    rc::reduce_scatter<pairwise<>, recursive_halving<>, ring<>, by_root<>, hierarchical<>>,
                    rc::scan<log_step<>, hierarchical<>>, rc::exscan<log_step<>, hierarchical<>>>;
    const unsigned size = all.size();
    std::set<unsigned> roots{0, size / 2, size - 1};
    std::set<std::size_t> lengths{0, 1, size - 1, size, size + 1, 5000};
    for (const algorithm_choice by :
         {&default_collectives::choose, &grouping::choose, &collectives_by_costs<usual_costs>::choose}) {
        for (unsigned rank = 0; rank < size; ++rank) all.state(rank).choose_by(by);
        unsigned entered = 0;
        for (std::size_t which = 0; which < collective_kinds; ++which) {
            const auto kind = static_cast<collective_kind>(which);
            if (!is_reduction(kind)) continue;
            for (const collective_case& one :
                 cases_of(kind, {roots.begin(), roots.end()}, {lengths.begin(), lengths.end()}, true)) {
                const auto body = [&](group& g) -> task<> {
                    const std::string wrong = co_await perform<std::uint32_t>(g, one, mixing{}, entered);
                    INFO(one.text("", size));
                    CHECK(wrong == "");
                };
                co_await all.each(body);
            }
        }
    }
}

}  // namespace

TEST_CASE("an operation that is not associative is applied from rank 0 on, whatever algorithms are listed") {
    // Grouped in another way, or begun at another rank, it would not be the same.
    const mixing op;
    REQUIRE(op(op(1, 2), op(3, 4)) != op(op(op(1, 2), 3), 4));
    for (unsigned size = 1; size <= 9; ++size) {
        run_nodes([size]() -> task<> {
            ranks<sim> all(size);
            co_await all.open();
            co_await try_left_folds(all);
        });
    }
    run_nodes([]() -> task<> {
        ranks<sim> all(6, {0, 0, 0, 1, 1, 1});
        co_await all.open();
        co_await try_left_folds(all);
    });
}

TEST_CASE("a sum that may be grouped goes by the fast algorithm again behind one that may not") {
    run_nodes([]() -> task<> {
        ranks<sim> all(4);
        co_await all.open();
        std::vector<std::string_view> ran;
        static std::vector<std::string_view>* into;
        into = &ran;
        const algorithm_choice by = [](const collective_shape& s) {
            const algorithm* const found = default_collectives::choose(s);
            if (s.kind == collective_kind::allreduce) into->push_back(found->name);
            return found;
        };
        all.state(0).choose_by(by);
        for (unsigned rank = 0; rank < 4; ++rank) all.state(rank).checks = false;
        const auto body = [](group& g) -> task<> {
            std::vector<std::uint32_t> x(8, g.rank());
            co_await g.allreduce(in_place, x, std::plus<>{});
            co_await g.allreduce(in_place, x, mixing{});
            co_await g.allreduce(in_place, x, std::plus<>{});
        };
        co_await all.each(body);
        CHECK(ran == std::vector<std::string_view>{"recursive_doubling", "by_root", "recursive_doubling"});
    });
}

TEST_CASE("a collective of one rank moves what belongs somewhere else, and speaks to nobody") {
    run_nodes([]() -> task<> {
        ranks<sim> all(1);
        co_await all.open();
        const group& g = all.at(0);
        std::vector<int> from{1, 2, 3}, to(3);
        co_await g.allgather(from, to);
        CHECK(to == from);
        to.assign(3, 0);
        co_await g.alltoall(from, to);
        CHECK(to == from);
        to.assign(3, 0);
        co_await g.reduce_scatter(from, to, std::plus<>{});
        CHECK(to == from);
        to.assign(3, 0);
        co_await g.scatter(from, to, root(0));
        CHECK(to == from);
        CHECK(all.links(0).over().connections() == 0);
    });
}

}  // namespace test_service_detail_run_collective
