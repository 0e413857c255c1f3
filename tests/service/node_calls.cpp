#include <rdmacoro/service/node_calls.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/nodes.hpp"
#include "support/over/fresh_name.hpp"
#include "support/shop.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace test_service_node_calls {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
constexpr method<"kv.load", std::uint64_t(stream<row>)> load{};
constexpr method<"kv.ten", std::array<float, 10>()> ten{};
constexpr method<"kv.slow", std::uint64_t(std::uint64_t)> slow{};
constexpr method<"kv.bulk", std::uint64_t(remote_region)> bulk_sum{};

/// Sums memory of its caller's.
task<std::uint64_t> sum_of_caller(call_context& c, remote_region from) {
    std::vector<std::byte> room(from.length);
    co_await c.get(from, room);
    std::uint64_t sum = 0;
    for (const std::byte one : room) sum += std::to_integer<std::uint64_t>(one);
    co_return sum;
}

/// A node with calls, and a service for others.
template <class T>
struct participant {
    explicit participant(node_id id, const node_options& options = {}) {
        here.emplace(id, options);
        peers.emplace(*here);
        there.store.on(load, [this](call_context&, stream_reader<row>& in) -> task<std::uint64_t> {
            while (co_await in.next()) ++loaded;
            co_return loaded;
        });
        there.store.on(
            ten, [](call_context&) -> task<std::array<float, 10>> { co_return std::array<float, 10>{1.0F}; });
        there.store.on(slow, [](call_context&, std::uint64_t n) -> task<std::uint64_t> {
            co_await sleep_for(20ms);
            co_return n + 1;
        });
        there.store.on(bulk_sum, sum_of_caller);
        peers->serve(there.store);
    }
    /// The node first: its connections end then, and with them what `peers` has.
    ~participant() { here.reset(); }
    shop there;
    std::uint64_t loaded = 0;
    std::optional<node_calls<T>> peers;
    std::optional<node<T>> here;
};

template <class Body>
void run_limited(Body body) {
    scheduler on;
    on.run([](Body run) -> task<> { co_await timeout(run(), nodes_limit); }(std::move(body)));
}
}  // namespace

TEMPLATE_LIST_TEST_CASE("nodes call each other by their ids, over one connection", "", node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        participant<TestType> nine(9);
        const std::string url = co_await nine.here->listen(fresh_url<TestType>());
        one.here->add({.id = 9, .urls = {url}});
        const std::string colour = co_await one.peers->call(9, kv::get, "colour");
        CHECK(colour == "red");
        const std::uint64_t sum = co_await nine.peers->call(1, kv::add, 1U, 2U);
        CHECK(sum == 3);
        co_await one.peers->cast(9, kv::note, "a note");
        while (nine.there.notes.empty()) co_await yield();
        std::vector<float> place(200);
        const std::size_t length = co_await one.peers->call_into(9, std::span(place), kv::fill, 150U);
        CHECK(length == 150);
        CHECK(place[149] == 149.0F);
        const auto refused = co_await as_result(one.peers->call_into(9, std::span(place), kv::fill, 201U));
        CHECK(refused.error() == errc::truncated);
        {
            auto rows = co_await nine.peers->open(1, kv::scan, 100U);
            std::size_t read = 0;
            while (co_await rows.next()) ++read;
            CHECK(read == 100);
        }
        {
            auto rows = co_await one.peers->open(9, load);
            for (std::uint32_t n = 0; n < 100; ++n) co_await rows.write(n, 0.5F);
            const std::uint64_t loaded = co_await rows.finish();
            CHECK(loaded == 100);
        }
        CHECK(one.here->connections() == 1);
        co_await one.here->close();
        co_await nine.here->close();
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a call to a node that stops ends with an error that names it, and the next goes to its next life", "",
    node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        std::optional<participant<TestType>> nine(std::in_place, 9);
        const std::string url = co_await nine->here->listen(fresh_url<TestType>());
        one.here->add({.id = 9, .urls = {url}});
        auto waiting = start(one.peers->call(9, kv::wait));
        while (nine->there.waiting == 0) co_await yield();
        nine.reset();
        std::string said;
        try {
            co_await waiting;
        } catch (const error& failed) {
            CHECK((failed.code() == errc::peer_lost || failed.code() == errc::closed ||
                   failed.code() == call_errc::stopped));
            said = failed.what();
        }
        CHECK_THAT(said, Catch::Contains("kv.wait") && Catch::Contains("node 9"));
        nine.emplace(9);
        co_await nine->here->listen(url);
        const std::uint64_t sum = co_await one.peers->call(9, kv::add, 1U, 2U);
        CHECK(sum == 3);
        co_await one.here->close();
    });
}

TEMPLATE_LIST_TEST_CASE(
    "an exception that leaves the scope of a node and its calls is the one that is caught", "",
    node_transports) {
    constexpr static method<"kv.refuse", void()> refuse{};
    std::string said;
    run_limited([&]() -> task<> {
        try {
            // In the order that everybody writes: the calls are destroyed before the node, while connections last.
            service failing;
            failing.on(refuse, [](call_context&) { throw std::runtime_error("no such key"); });
            node<TestType> nine(9);
            node_calls served(nine);
            served.serve(failing);
            const std::string url = co_await nine.listen(fresh_url<TestType>());
            node<TestType> one(1);
            node_calls peers(one);
            one.add({.id = 9, .urls = {url}});
            co_await peers.call(9, refuse);
        } catch (const error& failed) {
            said = failed.what();
        }
    });
    CHECK_THAT(said, contains("node 9") && contains("kv.refuse") && contains("no such key"));
}

TEMPLATE_LIST_TEST_CASE("a node whose calls are destroyed makes no connection any more", "",
                        node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> nine(9);
        const std::string url = co_await nine.here->listen(fresh_url<TestType>());
        node<TestType> one(1);
        one.add({.id = 9, .urls = {url}});
        { node_calls peers(one); }
        const auto sent = co_await as_result(one.peer(9).send(std::span<const std::byte>()));
        CHECK(sent.error() == errc::closed);
        CHECK(one.connections() == 0);
    });
}

TEMPLATE_LIST_TEST_CASE("memory that is registered for a node is open to it, and makes the connection", "",
                        node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        participant<TestType> nine(9);
        const std::string url = co_await nine.here->listen(fresh_url<TestType>());
        one.here->add({.id = 9, .urls = {url}});
        std::vector<std::byte> bulk(100'000, std::byte{2});
        {
            const region open = co_await one.here->peer(9).register_memory(bulk, access_rights::remote_read);
            CHECK(one.here->connections() == 1);
            CHECK(open.remote().rights == access_rights::remote_read);
            const std::uint64_t sum = co_await one.peers->call(9, bulk_sum, open.remote());
            CHECK(sum == 200'000);
            // The side that has accepted knows its domain as well.
            const region back = co_await nine.here->peer(1).register_memory(bulk, access_rights::remote_read);
            const std::uint64_t same = co_await nine.peers->call(1, bulk_sum, back.remote());
            CHECK(same == 200'000);
        }
        const auto nowhere = co_await as_result(one.here->peer(4).register_memory(bulk));
        CHECK(nowhere.error() == errc::address_invalid);
        co_await one.here->close();
        co_await nine.here->close();
    });
}

#if RDMACORO_WITH_TCP
TEST_CASE("memory is registered with the transport that carries the connection, of several") {
    run_limited([]() -> task<> {
        service sums;
        sums.on(bulk_sum, sum_of_caller);
        std::optional<node<shm, tcp>> one(std::in_place, 1), nine(std::in_place, 9);
        node_calls peers(*one);
        node_calls served(*nine, sums);
        const std::string url = co_await nine->listen(fresh_url<tcp>());
        one->add({.id = 9, .urls = {url}});
        std::vector<std::byte> bulk(1000, std::byte{3});
        {
            const region open = co_await one->peer(9).register_memory(bulk, access_rights::remote_read);
            const std::uint64_t sum = co_await peers.call(9, bulk_sum, open.remote());
            CHECK(sum == 3000);
        }
        one.reset();
        nine.reset();
    });
}
#endif

TEMPLATE_LIST_TEST_CASE("requests that may be done twice go on in the next life of their node", "",
                        node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        std::optional<participant<TestType>> nine(std::in_place, 9);
        const std::string url = co_await nine->here->listen(fresh_url<TestType>());
        one.here->add({.id = 9, .urls = {url}});
        std::size_t begun = 0;
        bool waits = true;
        auto asking = start(one.peers->repeat_if_lost([&]() -> task<std::uint64_t> {
            ++begun;
            if (waits) co_await one.peers->call(9, kv::wait);
            co_return co_await one.peers->call(9, kv::add, 1U, 2U);
        }));
        while (nine->there.waiting == 0) co_await yield();
        CHECK(begun == 1);
        waits = false;
        nine.reset();
        nine.emplace(9);
        co_await nine->here->listen(url);
        const std::uint64_t sum = co_await asking;
        CHECK(sum == 3);
        CHECK(begun >= 2);
        // Another error, and a cancellation, are its end.
        begun = 0;
        const auto refused = co_await as_result(one.peers->repeat_if_lost([&]() -> task<> {
            ++begun;
            co_await one.peers->call(9, kv::fail, 0);
        }));
        CHECK(refused.error() == errc::access_denied);
        CHECK(begun == 1);
        // An error of the handler's is its answer, also one of a loss, which is that of another peer.
        for (const int how : {12, 13}) {
            begun = 0;
            const auto met = co_await as_result(timeout(one.peers->repeat_if_lost([&]() -> task<> {
                ++begun;
                co_await one.peers->call(9, kv::fail, how);
            }),
                                                        10s));
            CHECK(met.error() == (how == 12 ? errc::peer_lost : errc::closed));
            CHECK(begun == 1);
        }
        const auto late = co_await as_result(timeout(
            one.peers->repeat_if_lost([&]() -> task<> { co_await one.peers->call(9, kv::wait); }), 5ms));
        CHECK(late.error() == errc::timed_out);
        // And so is the end of this side's node.
        auto last =
            start(one.peers->repeat_if_lost([&]() -> task<> { co_await one.peers->call(9, kv::wait); }));
        while (nine->there.waiting == 0) co_await yield();
        co_await one.here->close();
        const auto closed = co_await as_result(last);
        CHECK((closed.error() == errc::closed || closed.error() == call_errc::stopped));
    });
}

TEMPLATE_LIST_TEST_CASE("a message that ends the calls of a connection ends the connection", "",
                        node_transports) {
    run_limited([]() -> task<> {
        node_options small;
        small.mailbox.lent_bytes = 10000;
        participant<TestType> one(1);
        participant<TestType> nine(9, small);
        const std::string url = co_await nine.here->listen(fresh_url<TestType>());
        one.here->add({.id = 9, .urls = {url}});
        const std::string back = co_await one.here->listen(fresh_url<TestType>());
        nine.here->add({.id = 1, .urls = {back}});
        auto waits = start(one.peers->call(9, kv::wait));
        while (nine.there.waiting == 0) co_await yield();
        // No node sends with that tag; this is longer than its receiver takes.
        const std::vector<std::byte> much(100000);
        auto sending = start(one.here->peer(9).send(much, detail::no_message));
        while (nine.there.stopped == 0) co_await yield();
        static_cast<void>(co_await as_result(sending));
        const auto called =
            co_await as_result(timeout(nine.peers->repeat_if_lost([&]() -> task<std::uint64_t> {
                co_return co_await nine.peers->call(1, kv::add, 1U, 2U);
            }),
                                       20s));
        CHECK(called);
        const auto lost = co_await as_result(timeout(waits, 20s));
        CHECK((lost.error() == errc::peer_lost || lost.error() == errc::closed));
        co_await one.here->close();
        co_await nine.here->close();
    });
}

TEST_CASE("a call whose time is over names its method and its node, connected or not") {
    run_limited([]() -> task<> {
        const auto text_of = [](auto what) -> task<std::string> {
            try {
                static_cast<void>(co_await std::move(what));
            } catch (const error& ended) {
                CHECK(ended.code() == errc::timed_out);
                co_return ended.what();
            }
            co_return "the call has ended well";
        };
        participant<shm> one(1);
        const std::string missing = "shm://" + fresh_name();
        one.here->add({.id = 9, .urls = {missing}});
        // The first attempt is refused before the time is over.
        const std::string apart = co_await text_of(timeout(one.peers->call(9, kv::add, 1U, 2U), 300ms));
        CHECK_THAT(apart, Catch::Contains("call of kv.add: node 9") && Catch::Contains("is not connected") &&
                              Catch::Contains(missing));
        std::vector<node_id> ids(1, 9);
        const auto all = co_await timeout(one.peers->call_all(std::move(ids), kv::add, 1U, 2U), 300ms);
        REQUIRE(all.size() == 1);
        CHECK(all[0].ended.error() == errc::timed_out);
        CHECK_THAT(all[0].why, Catch::Contains("call of kv.add: node 9") && Catch::Contains(missing));
        participant<shm> seven(7);
        const std::string url = co_await seven.here->listen(fresh_url<shm>());
        one.here->add({.id = 7, .urls = {url}});
        const std::uint64_t sum = co_await one.peers->call(7, kv::add, 1U, 2U);
        CHECK(sum == 3);
        const std::string met = co_await text_of(timeout(one.peers->call(7, kv::wait), 5ms));
        CHECK_THAT(met, Catch::Contains("node 7") && Catch::Contains("call of kv.wait"));
    });
}

TEMPLATE_LIST_TEST_CASE("a stream to a node that stops ends with an error, and nothing waits for it", "",
                        node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        std::optional<participant<TestType>> nine(std::in_place, 9);
        const std::string url = co_await nine->here->listen(fresh_url<TestType>());
        one.here->add({.id = 9, .urls = {url}});
        {
            auto rows = co_await one.peers->open(9, load);
            for (std::uint32_t n = 0; n < 100; ++n) co_await rows.write(n, 0.5F);
            nine.reset();
            std::error_code code;
            while (!code) {
                const row late{};
                const auto wrote = co_await as_result(rows.write(late));
                code = wrote.error();
                co_await yield();
            }
            CHECK((code == errc::peer_lost || code == errc::closed || code == call_errc::reader_left));
            const auto result = co_await as_result(rows.finish());
            CHECK((result.error() == errc::peer_lost || result.error() == errc::closed ||
                   result.error() == call_errc::stopped));
        }
        co_await one.here->close();
    });
}

TEMPLATE_LIST_TEST_CASE("a limit of one connection is enough for calls to three nodes, and cuts none off", "",
                        node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1, {.connections = 1});
        std::vector<std::unique_ptr<participant<TestType>>> others;
        for (node_id id = 7; id <= 9; ++id) {
            others.push_back(std::make_unique<participant<TestType>>(id));
            const std::string url = co_await others.back()->here->listen(fresh_url<TestType>());
            one.here->add({.id = id, .urls = {url}});
        }
        for (unsigned round = 0; round < 10; ++round) {
            for (node_id id = 7; id <= 9; ++id) {
                const std::uint64_t sum = co_await one.peers->call(id, kv::add, round, id);
                CHECK(sum == round + id);
                CHECK(one.here->connections() <= 1);
            }
        }
        co_await one.here->close();
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a limit of one connection is enough for calls to three nodes at once, also where a handler takes long",
    "", node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1, {.connections = 1});
        std::vector<std::unique_ptr<participant<TestType>>> others;
        for (node_id id = 7; id <= 9; ++id) {
            others.push_back(std::make_unique<participant<TestType>>(id));
            const std::string url = co_await others.back()->here->listen(fresh_url<TestType>());
            one.here->add({.id = id, .urls = {url}});
        }
        const std::uint64_t first = co_await one.peers->call(7, kv::add, 1U, 2U);
        CHECK(first == 3);
        std::vector<std::string> failed;
        std::size_t answered = 0;
        std::size_t most = 0;
        task_group calling;
        for (unsigned n = 0; n < 10; ++n) {
            for (node_id id = 7; id <= 9; ++id) {
                calling.spawn([&, n, id]() -> task<> {
                    try {
                        std::uint64_t sum = 0;
                        // Over the connection that is open; under way while the calls to the others wait for theirs.
                        if (n == 0 && id == 7) {
                            sum = co_await one.peers->call(id, slow, std::uint64_t{id} - 1);
                        } else {
                            sum = co_await one.peers->call(id, kv::add, n, id);
                        }
                        if (sum == n + id) ++answered;
                    } catch (const error& why) {
                        failed.emplace_back(why.what());
                    }
                    most = std::max(most, one.here->connections());
                });
            }
        }
        co_await calling.join();
        CHECK(failed == std::vector<std::string>{});
        CHECK(answered == 30);
        CHECK(most == 1);
        co_await one.here->close();
    });
}

/// A node that calls node 1 there, sends it a message beside that, and leaves.
template <class T>
task<> call_say_and_leave(std::string where, std::string what) {
    participant<T> seven(7);
    seven.here->add({.id = 1, .urls = {std::move(where)}});
    const std::uint64_t sum = co_await seven.peers->call(1, kv::add, 1U, 2U);
    CHECK(sum == 3);
    co_await say(seven.here->peer(1), std::move(what));
    co_await seven.here->close();
}

TEMPLATE_LIST_TEST_CASE("messages beside calls are received of a node that has left, too", "",
                        node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        const std::string where = co_await one.here->listen(fresh_url<TestType>());
        {
            // By a receive that waits for the node, and by one that comes later.
            auto hearing = start(hear(one.here->peer(7), 1));
            co_await call_say_and_leave<TestType>(where, "first");
            const std::string got = co_await hearing;
            CHECK(got == "first");
        }
        auto seven = one.here->peer(7);
        co_await call_say_and_leave<TestType>(where, "second");
        co_await until([&] { return one.here->connections() == 0; });
        const std::string got = co_await hear(seven, 1);
        CHECK(got == "second");
    });
}

TEMPLATE_LIST_TEST_CASE("messages beside calls that nothing receives do not keep their node from coming back",
                        "", node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        const std::string where = co_await one.here->listen(fresh_url<TestType>());
        auto seven = one.here->peer(7);
        for (unsigned life = 0; life < 6; ++life) {
            co_await call_say_and_leave<TestType>(where, std::to_string(life));
            co_await until([&] { return one.here->connections() == 0; });
        }
        // A call that connects does not make it forgotten.
        participant<TestType> back(7);
        const std::string url = co_await back.here->listen(fresh_url<TestType>());
        one.here->add({.id = 7, .urls = {url}});
        const std::uint64_t sum = co_await one.peers->call(7, kv::add, 1U, 2U);
        CHECK(sum == 3);
        // The last three are kept, and it is told that there were more.
        std::string got;
        for (unsigned n = 0; n < 3; ++n) got += co_await hear(seven, 1);
        CHECK(got == "345");
        const auto more = co_await as_result(seven.recv_lent(1));
        CHECK(more.error() == errc::no_resources);
    });
}

TEMPLATE_LIST_TEST_CASE("messages beside calls of a node outside the book without a handle leave nothing", "",
                        node_transports) {
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        const std::string where = co_await one.here->listen(fresh_url<TestType>());
        for (unsigned life = 0; life < 6; ++life) {
            co_await call_say_and_leave<TestType>(where, "nothing hears this");
            co_await until([&] { return one.here->connections() == 0; });
        }
        co_await until([&] { return one.here->explain(7).find("never met") != std::string::npos; });
    });
}

TEMPLATE_LIST_TEST_CASE(
    "once warm, calls between nodes allocate nothing, also with a deadline and many at a time", "",
    node_transports) {
    if (!counts_allocations) {
        SUCCEED("allocations are not counted here");
        return;
    }
    run_limited([]() -> task<> {
        participant<TestType> one(1);
        participant<TestType> nine(9);
        const std::string url = co_await nine.here->listen(fresh_url<TestType>());
        one.here->add({.id = 9, .urls = {url}});
        auto& peers = *one.peers;
        std::uint64_t sum = 0;
        std::size_t made = 1;
        std::vector<float> place(64 * 10);
        using pending = decltype(peers.call(9, kv::add, 1U, 2U));
        window<decltype(timeout(std::declval<pending>(), 20s))> many(64);
        window<decltype(peers.call_into(9, std::span(place), ten))> rows(64);
        // Warm when there is room for as much as was under way at a time.
        int rounds = 0;
        for (; rounds < 10 && made != 0; ++rounds) {
            const std::size_t before = allocations();
            for (unsigned i = 0; i < 300; ++i) {
                sum += co_await peers.call(9, kv::add, i, 1U);
                sum += co_await timeout(peers.call(9, kv::add, i, 1U), 20s);
                sum += co_await peers.call_into(9, std::span(place), ten);
            }
            for (unsigned i = 0; i < 600; ++i) {
                if (many.full()) sum += co_await many.next();
                many.start(timeout(peers.call(9, kv::add, unsigned{i}, 1U), 20s));
            }
            while (!many.empty()) sum += co_await many.next();
            for (std::size_t i = 0; i < 600; ++i) {
                if (rows.full()) sum += co_await rows.next();
                rows.start(peers.call_into(9, std::span(place).subspan(i % 64 * 10, 10), ten));
            }
            while (!rows.empty()) sum += co_await rows.next();
            made = allocations() - before;
        }
        CHECK(made == 0);
        const std::uint64_t of_300 = 299 * 300 / 2 + 300;
        const std::uint64_t of_600 = 599 * 600 / 2 + 600;
        CHECK(sum == static_cast<unsigned>(rounds) * (2 * of_300 + 10 * 300 + of_600 + 10 * 600));
        co_await one.here->close();
        co_await nine.here->close();
    });
}

}  // namespace test_service_node_calls
