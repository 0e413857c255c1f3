#include <rdmacoro/service/detail/rank_links_over.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/ranks.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace test_service_detail_rank_links_over {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {
task<> within(task<> what, duration most) { co_await timeout(std::move(what), most); }
}  // namespace

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

TEST_CASE("a word that memory is short for ends the connection to its rank, which the groups hear of") {
    if (!counts_allocations) return;
    unsigned short_of_it = 0;
    for (std::size_t number = 1; number < 30; ++number) {
        CAPTURE(number);
        run_nodes([&]() -> task<> {
            ranks<sim> all(2);
            co_await all.open();
            const auto body = [](group& g) -> task<> { co_await g.barrier(); };
            co_await all.each(body);
            detail::group_word ask;
            ask.kind = static_cast<std::uint8_t>(detail::word_kind::shrink_ask);
            ask.context = 1;
            ask.by = 1;
            const std::vector<std::byte> bytes = detail::encode_word(ask);
            co_await all.links(1).over().peer(1).send(bytes, detail::word_tag);
            fail_allocation(number);
            for (int turn = 0; turn < 200; ++turn) co_await yield();
            const bool has_failed = !allocation_is_to_fail();
            fail_allocation(0);
            for (int turn = 0; turn < 1000; ++turn) co_await yield();
            if (!has_failed) co_return;
            ++short_of_it;
            CHECK(all.links(0).over().connections() == 0);
            CHECK(all.links(0).peer(1).link == nullptr);
            REQUIRE(all.at(0).failure());
            CHECK(all.at(0).failure()->why == errc::no_resources);
            const failure of = co_await failing(within(all.at(0).barrier(), 5s));
            CHECK(of.code == group_errc::revoked);
        });
    }
    CHECK(short_of_it > 0);
}

TEST_CASE("strangers take no places of ranks") {
    run_nodes([]() -> task<> {
        node_options few = ranks<sim>::usual();
        few.connections = 1;  // two for each rank, at least
        ranks<sim> all(2, {}, few);
        co_await all.open();
        const auto body = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(body);
        std::vector<std::unique_ptr<sim::domain>> networks;
        std::vector<std::unique_ptr<node<sim>>> strangers;
        unsigned refused = 0;
        for (node_id id = 100; id < 110; ++id) {
            networks.push_back(std::make_unique<sim::domain>(detail::running_scheduler()));
            strangers.push_back(std::make_unique<node<sim>>(id, ranks<sim>::usual(), *networks.back()));
            strangers.back()->add(all.links(0).over().card());
            const failure of = co_await failing(within(say(strangers.back()->peer(1), "hello", 5), 5s));
            if (of.code == errc::address_invalid) ++refused;
        }
        CHECK(refused == 10);
        CHECK(!all.at(0).failure());
        CHECK(all.links(0).over().connections() == 1);
        co_await all.each(body);
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
