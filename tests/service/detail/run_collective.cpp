#include <rdmacoro/service/detail/run_collective.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/ranks.hpp"

#include <new>
#include <optional>
#include <string>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;

static_assert(detail::type_number<int, void>() != detail::type_number<unsigned, void>());
static_assert(detail::type_number<int, std::plus<>>() != detail::type_number<int, std::minus<>>());
static_assert(detail::type_number<int, std::plus<>>() == detail::type_number<int, std::plus<>>());

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
