#include <rdmacoro/service/detail/task_port.hpp>

#include "support/catch.hpp"

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace test_service_detail_task_port {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {
struct counting : posted_node {
    std::atomic<int>* calls = nullptr;
};
}  // namespace

TEST_CASE("each node that a port takes is called, also where it closes meanwhile") {
    for (int round = 0; round < 50; ++round) {
        scheduler on;
        task_port port(on);
        std::atomic<int> calls{0};
        std::atomic<int> taken{0};
        std::vector<counting> nodes(400);
        std::vector<std::jthread> threads;
        for (std::size_t t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                for (std::size_t n = t * 100; n < t * 100 + 100; ++n) {
                    nodes[n].calls = &calls;
                    nodes[n].call = [](posted_node& node) noexcept { ++*static_cast<counting&>(node).calls; };
                    if (port.post(nodes[n])) ++taken;
                }
            });
        }
        while (calls < round * 8) on.turn();
        port.close();
        const int at_the_end = calls;
        threads.clear();
        REQUIRE(port.closed());
        REQUIRE(calls == at_the_end);
        REQUIRE(taken == at_the_end);
        on.turn();
        REQUIRE(calls == at_the_end);
        counting late;
        REQUIRE(!port.post(late));
        port.join();
        REQUIRE(port.running() == 0);
    }
}

namespace {
task<> notes(bool& that_it_ran) {
    that_it_ran = true;
    co_return;
}
}  // namespace

TEST_CASE("what was posted to the scheduler may spawn although a port's end runs it") {
    scheduler on;
    task_group group;
    bool spawned = false;
    bool ran = false;
    {
        task_port port(on);
        on.post([&] {
            group.spawn(notes, std::ref(ran));
            spawned = true;
        });
        port.close();
        port.join();
    }
    REQUIRE(spawned);
    on.run([](task_group& all) -> task<> { co_await all.join(); }(group));
    CHECK(ran);
}

}  // namespace test_service_detail_task_port
