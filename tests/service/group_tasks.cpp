// Tasks that a group was asked for, and what becomes of the object that they were asked of before they are awaited.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/when_all.hpp>

#include <utility>

namespace test_service_group_tasks {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE(
    "a task is of the group that it was asked of, whatever becomes of that object before it is awaited") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        const auto part = [&all](unsigned rank) -> task<> {
            group asked = all.at(rank);
            auto ends = asked.barrier();
            auto splits = asked.split(0);
            auto shrinks = asked.shrink();
            asked = group();
            co_await timeout(std::move(ends), 10s);
            const group whole = co_await timeout(std::move(splits), 10s);
            CHECK(whole.size() == 2);
            const group left = co_await timeout(std::move(shrinks), 10s);
            CHECK(left.size() == 2);
            co_await left.barrier();
        };
        co_await when_all(part(0), part(1));
    });
}

TEST_CASE("a split of a temporary group, and a shrink of one, are of its ranks") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        const auto part = [&all](unsigned rank) -> task<> {
            auto splits = group(all.at(rank)).split(0);
            const group whole = co_await timeout(std::move(splits), 10s);
            CHECK(whole.size() == 2);
            auto shrinks = group(all.at(rank)).shrink();
            const group left = co_await timeout(std::move(shrinks), 10s);
            CHECK(left.size() == 2);
        };
        co_await when_all(part(0), part(1));
    });
}

}  // namespace test_service_group_tasks
