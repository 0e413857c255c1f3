#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <numeric>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEMPLATE_LIST_TEST_CASE("ranks add their numbers", "", node_transports) {
    run_nodes([]() -> task<> {
        ranks<TestType> all(3);
        co_await all.open();
        int ended = 0;
        const auto body = [&ended](group& g) -> task<> {
            std::vector<int> mine(5, static_cast<int>(g.rank()) + 1);
            co_await g.allreduce(in_place, mine, std::plus<>{});
            CHECK(mine == std::vector<int>(5, 6));
            co_await g.barrier();
            ++ended;
        };
        co_await all.each(body);
        CHECK(ended == 3);
    });
}
