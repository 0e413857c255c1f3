#include <rdmacoro/service/detail/rank_links_over.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/no_spare_frames.hpp"
#include "support/ranks.hpp"

#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace test_service_detail_rank_links_over {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
namespace rc = rdmacoro;

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

TEST_CASE("a process that says that it is a rank before the ranks know each other does the group no harm") {
    // It takes the connection at once, or when the rank itself has connected.
    for (const bool takes_late : {false, true}) {
        CAPTURE(takes_late);
        run_simulated({}, [takes_late](sim_world& world) -> task<> {
            sim_options network;
            network.world = &world;
            ranks<sim> all(2, {}, ranks<sim>::usual(), network);
            sim::domain elsewhere(*scheduler::current(), network);
            co_await all.listen();
            const std::string where = all.links(0).over().card().urls.front();
            auto impostor = co_await connect<sim>(elsewhere, where);
            node_card lies;
            lies.id = 2;
            lies.born = generation{77};
            const std::vector<std::byte> hello = detail::encode_hello({1, generation{}, 1, lies});
            co_await impostor.send(hello, detail::hello_tag);
            static_cast<void>(co_await timeout(impostor.recv_lent(detail::answer_tag), 5s));
            if (!takes_late) {
                co_await impostor.send({}, detail::taken_tag);
                // Until it is one, before what attends to it has had its turn.
                for (int n = 0; n < 1000 && all.links(0).over().connections() == 0; ++n) co_await yield();
                CHECK(all.links(0).over().connections() == 1);
            }
            const auto body = [](group& g) -> task<> {
                const failure of = co_await failing(within(g.barrier(), 30s));
                INFO(of.text);
                CHECK_FALSE(of.code);
            };
            all.meet();
            auto first = start(body(all.at(0)));  // before anything else has its turn
            co_await body(all.at(1));
            co_await first;
            if (takes_late) static_cast<void>(co_await as_result(impostor.send({}, detail::taken_tag)));
            co_await sleep_for(1s);
            co_await all.each(body);
            impostor.abort();
        });
    }
}

TEST_CASE("a word that memory is short for ends the connection to its rank, which the groups hear of") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
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

namespace {
struct first_barrier {
    bool failed_one = false;  // an allocation
    bool in_time =
        false;  // each rank has ended it, well or not, or is connected and waits for one that is late
};
/// Two ranks that are not connected yet; `failing` is the number of the allocation that fails. The first `late` ones do not enter: that a
/// connection comes about is up to the other.
task<> try_first_barrier(sim_world& world, std::size_t failing, unsigned late, first_barrier& how) {
    sim_options network;
    network.world = &world;
    // The network itself has all it needs since these have talked: it is not what runs out of memory.
    ranks<sim> others(3, {}, ranks<sim>::usual(), network);
    co_await others.open();
    const auto talk = [](group& g) -> task<> {
        for (int n = 0; n < 3; ++n) co_await g.barrier(rc::use<rc::flat_tree<>>);
    };
    co_await others.each(talk);
    ranks<sim> all(2, {}, ranks<sim>::usual(), network);
    co_await all.open();
    event begin;
    unsigned ended = 0;
    const auto body = [&](group& g) -> task<> {
        co_await begin.wait();
        bool entered = false;
        while (!entered) {
            entered = true;
            try {
                co_await g.barrier();
            } catch (const std::bad_alloc&) {
                entered = g.failure()
                              .has_value();  // else it has not begun: there was no memory for the call itself
            } catch (const std::exception&) {}
        }
        ++ended;
    };
    task_group both;
    for (unsigned rank = late; rank < 2; ++rank) {
        all.state(rank).checks = false;
        both.spawn(std::cref(body), std::ref(all.at(rank)));
    }
    co_await yield();
    const no_spare_frames none;
    const time_point most = world.time().now() + 5min;
    fail_allocation(failing);
    begin.set();
    const auto is_over = [&] {
        return ended == 2 - late || (late != 0 && all.links(1).peer(0).link != nullptr);
    };
    while (!is_over() && world.time().now() < most) co_await sleep_for(1ms);
    how.in_time = is_over();
    how.failed_one = !allocation_is_to_fail();
    fail_allocation(0);
}
}  // namespace

TEST_CASE("ranks wait for no connection that memory was short for, whatever it was needed for") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    for (const unsigned late : {0u, 1u}) {
        bool failed_one = true;
        for (std::size_t number = 1; failed_one; ++number) {
            CAPTURE(late, number);
            first_barrier how;
            run_simulated({}, [&](sim_world& world) { return try_first_barrier(world, number, late, how); });
            CHECK(how.in_time);
            failed_one = how.failed_one;
            REQUIRE(number < 2000);
        }
    }
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
