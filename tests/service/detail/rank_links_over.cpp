#include <rdmacoro/service/detail/rank_links_over.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <string>
#include <vector>

namespace test_service_detail_rank_links_over {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEMPLATE_LIST_TEST_CASE("connections between ranks come about when they are needed, and say how", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        ranks<TestType> all(3);
        co_await all.open();
        CHECK(all.links(0).over().connections() == 0);
        const auto body = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(body);
        CHECK(all.links(0).over().connections() > 0);
        CHECK(all.links(0).explain(1).find(TestType::name) != std::string::npos);
    });
}

TEST_CASE("a rank that sends what is no word loses its connection, and is named by the group") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        const auto body = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(body);
        co_await say(all.links(1).over().peer(1), "no word at all", detail::word_tag);
        co_await until([&] { return all.at(0).failure().has_value(); });
        CHECK(all.at(0).failure()->why == errc::protocol_violation);
        CHECK(all.at(0).failure()->lost == std::vector<unsigned>{1});
        const failure of = co_await failing(all.at(0).barrier());
        CHECK(of.code == errc::protocol_violation);
        // There is no second connection.
        CHECK(all.links(0).peer(1).lost);
        co_await until([&] { return all.at(1).failure().has_value(); });
    });
}

TEST_CASE("a node that is no rank of the job is cut off and disturbs no collective") {
    run_nodes([]() -> task<> {
        for (const node_id id : {node_id{77}, node_id{3}, node_id{2}}) {  // 2: of rank 1, in another life
            ranks<sim> all(2);
            co_await all.open();
            sim::domain network(detail::running_scheduler());
            node<sim> stranger(id, ranks<sim>::usual(), network);
            stranger.add(all.links(0).over().card());
            static_cast<void>(co_await failing(say(stranger.peer(1), "hello", 5)));
            const failure of = co_await failing(receive_any(stranger.peer(1)));
            CHECK(of.code);
            co_await until([&] { return all.links(0).over().connections() == 0; });
            CHECK(!all.at(0).failure());
            const auto body = [](group& g) -> task<> { co_await g.barrier(); };
            co_await all.each(body);
        }
    });
}

}  // namespace test_service_detail_rank_links_over
