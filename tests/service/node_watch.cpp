#include <rdmacoro/service/node_watch.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"
#include "support/run.hpp"

#include <optional>
#include <utility>

namespace test_service_node_watch {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("each watcher is told of each change, in order, until the node stops") {
    scheduler on{impatient{}};
    on.run([]() -> task<> {
        std::optional<node<shm>> one(std::in_place, 1);
        CHECK_THROWS_AS(one->watch(0), error);
        node_watch first = one->watch();
        node_watch second = one->watch(1);
        co_await one->listen(fresh_url<shm>());
        node<shm> two(2), three(3);
        two.add(one->card());
        three.add(one->card());
        auto waiting = start(first.next());
        co_await say(two.peer(1), "hello");
        co_await say(three.peer(1), "hello");
        const node_event early = co_await waiting;
        CHECK(early.id == 2);
        const node_event late = co_await first.next();
        CHECK(late.id == 3);
        CHECK(late.what == node_change::came);
        const node_event newest = co_await second.next();  // of a queue of one
        CHECK(newest.id == 3);
        CHECK(newest.missed == 1);
        node_watch moved = std::move(first);
        const auto in_time = co_await as_result(timeout(moved.next(), 5ms));
        CHECK(in_time.error() == errc::timed_out);
        one.reset();
        const auto over = co_await as_result(moved.next());
        CHECK(over.error() == errc::closed);
        const auto again = co_await as_result(moved.next());
        CHECK(again.error() == errc::closed);
    }());
}

}  // namespace test_service_node_watch
