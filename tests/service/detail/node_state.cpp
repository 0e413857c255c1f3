#include <rdmacoro/service/detail/node_state.hpp>

#include "support/catch.hpp"
#include "support/nodes.hpp"
#include "support/run.hpp"

#include <optional>
#include <string>
#include <vector>

namespace test_service_detail_node_state {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

static_assert(rdmacoro::detail::all_differ<int, char, long>);
static_assert(!rdmacoro::detail::all_differ<int, char, int>);

TEST_CASE("a node that is full is asked again, and takes the connection when there is room") {
    run_nodes([]() -> task<> {
        node_options narrow;
        narrow.connections = 1;
        narrow.hello_limit = 20ms;
        node<shm> hub(1, narrow);
        co_await hub.listen(fresh_url<shm>());
        node<shm> first(2), second(3);
        first.add(hub.card());
        second.add(hub.card());
        co_await say(first.peer(1), "hello");
        const std::string got = co_await hear(hub.peer(2));
        CHECK(got == "hello");
        std::optional<node_hold> held(hub.peer(2).hold());
        auto waiting = start(say(second.peer(1), "a little later"));
        while (second.explain(1).find("none is idle") == std::string::npos) co_await yield();
        CHECK(!waiting.done());
        held.reset();
        co_await waiting;
        const std::string late = co_await hear(hub.peer(3));
        CHECK(late == "a little later");
        CHECK(hub.connections() == 1);
    });
}

TEMPLATE_LIST_TEST_CASE("a node connects to two hundred others at once", "", node_transports) {
    run_nodes([]() -> task<> {
        node<TestType> hub(1);
        std::vector<std::unique_ptr<node<TestType>>> others;
        for (node_id id = 2; id < 202; ++id) {
            others.push_back(std::make_unique<node<TestType>>(id));
            co_await others.back()->listen(fresh_url<TestType>());
            hub.add(others.back()->card());
        }
        task_group all;
        for (node_id id = 2; id < 202; ++id)
            all.spawn(say<node_peer<TestType>>, hub.peer(id), "hello", tag_type{1});
        co_await all.join();
        CHECK(hub.connections() == 200);
        for (auto& each : others) {
            const std::string got = co_await hear(each->peer(1));
            CHECK(got == "hello");
        }
    });
}

TEST_CASE("nodes that come to a hub of few connections in turn are all served") {
    run_nodes([]() -> task<> {
        node_options narrow;
        narrow.connections = 4;
        node<shm> hub(1, narrow);
        co_await hub.listen(fresh_url<shm>());
        std::size_t heard = 0;
        hub.on_connection([&heard](auto& peer, node_id, generation) -> task<> {
            for (;;) {
                const result<message> got = co_await as_result(peer.recv_lent());
                if (!got) break;
                ++heard;
            }
        });
        std::vector<std::unique_ptr<node<shm>>> others;
        for (node_id id = 2; id < 22; ++id) {
            others.push_back(std::make_unique<node<shm>>(id));
            others.back()->add(hub.card());
        }
        for (int round = 0; round < 3; ++round) {
            for (auto& each : others) {
                co_await each->peer(1).ssend(std::string_view("hello"));
                CHECK(hub.connections() <= 4);
            }
        }
        CHECK(heard == 60);
    });
}

}  // namespace test_service_detail_node_state
