#include <rdmacoro/messaging/connect.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/loopback.hpp"
#include "support/run.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/coro/describe.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/resource.h>

namespace test_messaging_connect {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("without a domain of their own, connect and listen use the scheduler's") {
    virtual_time world;
    world.run([]() -> task<> {
        auto listening = co_await listen<loopback>("here");
        CHECK(listening.address() == "here");
        auto a = co_await connect<loopback>("loopback://here");
        auto b = co_await listening.accept();
        co_await a.send({}, 1);
        co_await b.recv({}, 1);
    }());
}

TEST_CASE("the address is copied before the first suspension") {
    virtual_time world;
    world.run([]() -> task<> {
        std::optional<std::string> name("short-lived");
        auto listening_task = listen<loopback>(*name);
        name.reset();
        auto listening = co_await std::move(listening_task);
        name.emplace("short-lived");
        auto connecting = connect<loopback>(*name);
        name.reset();
        auto a = co_await std::move(connecting);
        CHECK(a.is_open());
    }());
}

TEST_CASE("connect and listen need a scheduler") {
    virtual_time world;
    CHECK_THROWS_AS(world.run([]() -> task<> { co_await connect<loopback>("nobody"); }()), error);
}

TEST_CASE("a client that takes too long is dropped after the limit, and the others are served meanwhile") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        mailbox_options options;
        options.handshake_limit = 3s;
        auto listening = co_await listen<loopback>(domain, "limited", options);
        auto silent = co_await domain.connect("limited");
        auto a = co_await connect<loopback>(domain, "limited");
        auto b = co_await listening.accept();
        CHECK(listening.refused() == 0);
        co_await sleep_for(2s);
        CHECK(listening.refused() == 0);
        co_await sleep_for(2s);
        CHECK(listening.refused() == 1);
        CHECK(silent.wire()->lanes[1].closed);
    }(world.on));
}

TEST_CASE("destroying a listener drops connections that wait to be accepted and keeps accepted ones") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        std::optional<listener<loopback>> listening(co_await listen<loopback>(domain, "short"));
        auto a = co_await connect<loopback>(domain, "short");
        auto b = co_await listening->accept();
        auto c = co_await connect<loopback>(domain, "short");
        listening.reset();
        const auto dropped = co_await as_result(c.recv({}));
        CHECK(dropped.error() == errc::peer_lost);
        co_await a.send({}, 1);
        co_await b.recv({}, 1);
    }(world.on));
}

TEST_CASE("a thousand clients may wait to be accepted, and more wait to shake hands") {
    // Places are a quarter of the descriptors at most.
    struct all_descriptors {
        all_descriptors() {
            REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
            const rlimit all{before.rlim_max, before.rlim_max};
            REQUIRE(::setrlimit(RLIMIT_NOFILE, &all) == 0);
        }
        ~all_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
        rlimit before{};
    };
    const all_descriptors raised;
    if (raised.before.rlim_max < 4096) SKIP_TEST("needs more descriptors");
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        auto listening = co_await listen<loopback>(domain, "crowd");
        std::vector<endpoint<loopback>> clients;
        for (int n = 0; n < 1024; ++n) clients.push_back(co_await connect<loopback>(domain, "crowd"));
        auto late = start(connect<loopback>(domain, "crowd"));
        for (int n = 0; n < 20; ++n) co_await yield();
        CHECK_FALSE(late.done());
        std::vector<endpoint<loopback>> served;
        for (int n = 0; n < 1025; ++n) served.push_back(co_await listening.accept());
        auto last = co_await late;
        CHECK(last.is_open());
    }(world.on));
}

TEST_CASE(
    "an accept that is canceled takes no peer, and the others get theirs in the order in which they began") {
    virtual_time world;
    world.run([]() -> task<> {
        auto listening = co_await listen<loopback>("in order");
        const auto canceled = co_await as_result(timeout(listening.accept(), 1s));
        CHECK(canceled.error() == errc::timed_out);
        auto earlier = start(listening.accept());
        auto later = start(listening.accept());
        auto a = co_await connect<loopback>("in order");
        auto b = co_await connect<loopback>("in order");
        auto of_a = co_await earlier;
        auto of_b = co_await later;
        co_await a.send({}, 1);
        co_await b.send({}, 2);
        co_await timeout(of_a.recv({}, 1), 1s);
        co_await timeout(of_b.recv({}, 2), 1s);
    }());
}

TEST_CASE("connect may wait for its listener, and is there soon after it") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        const time_point begun = on.now();
        auto connecting = start(connect<loopback>(domain, "late", {.retry_for = 5s}));
        co_await sleep_for(100ms);
        CHECK_FALSE(connecting.done());
        auto listening = co_await listen<loopback>(domain, "late", {.unexpected_bytes = 1});
        auto a = co_await connecting;
        auto b = co_await listening.accept();
        CHECK(on.now() - begun < 300ms);
        co_await a.send({}, 1);
        co_await b.recv({}, 1);
        connect_options once;
        once.mailbox.unexpected_bytes = 1 << 20;
        auto c = co_await connect<loopback>(domain, "late", once);
        CHECK(c.connection().mailbox().options().unexpected_bytes == 1 << 20);
    }(world.on));
}

TEST_CASE("connect that tries again is described as one step, between its attempts, too") {
    virtual_time world;
    world.run([](virtual_time& w) -> task<> {
        loopback_domain domain(w.on);
        auto connecting = start(as_result(connect<loopback>(domain, "later", {.retry_for = 10s})));
        int pauses = 0;
        std::optional<listener<loopback>> listening;
        for (int look = 0; !connecting.done(); ++look) {
            const description all = w.on.describe();
            INFO(all.text());
            REQUIRE(all.operations().size() == 1);
            const pending_operation& one = all.operations()[0];
            CHECK(one.what == "connect");
            CHECK(one.peer == "later");
            if (one.next == next_actor::time) {
                ++pauses;
                CHECK(one.stage == "the last attempt failed, the next one is to come");
                REQUIRE(one.left.has_value());
                CHECK(*one.left <= 250ms);
            } else {
                CHECK(one.next == next_actor::peer_accept);
                CHECK(one.stage == "the listener has not answered");
            }
            if (look == 20) listening.emplace(co_await listen<loopback>(domain, "later"));
            co_await (look % 2 == 0 ? sleep_for(3ms) : sleep_for(0s));
        }
        CHECK(pauses > 5);
        const auto made = co_await connecting;
        CHECK(made.has_value());
        CHECK(w.on.describe().operations().empty());
    }(world));
}

TEST_CASE("connect gives up in time, and throws what the last attempt said") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        const time_point begun = on.now();
        std::string text;
        errc code{};
        try {
            co_await connect<loopback>("nobody", {.retry_for = 2s});
        } catch (const error& why) {
            text = why.what();
            if (why.code() == errc::connection_refused) code = errc::connection_refused;
        }
        CHECK(code == errc::connection_refused);
        CHECK(on.now() - begun >= 2s);
        CHECK(on.now() - begun < 2100ms);
        CHECK_THAT(text, contains("nobody"));
        CHECK_THAT(text, contains("attempts in 2000 ms"));
    }(world.on));
}

TEST_CASE("connect tries again after a handshake that was cut off, and the last error before the end of the "
          "time counts") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        auto raw = co_await domain.listen("silent");  // accepts, and never says anything
        const time_point begun = on.now();
        connect_options options;
        options.retry_for = 1s;
        options.mailbox.handshake_limit = 300ms;
        const auto outcome = co_await as_result(connect<loopback>(domain, "silent", options));
        CHECK(outcome.error() == errc::timed_out);
        CHECK(on.now() - begun >= 1s);
        CHECK(on.now() - begun < 1100ms);
    }(world.on));
}

TEST_CASE("a stop ends connect at once, between two attempts and in the middle of one") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        auto raw = co_await domain.listen("silent");
        for (const char* name : {"nobody", "silent"}) {
            local_stop_source stop;
            auto connecting = start(
                as_result(with_stop(connect<loopback>(domain, name, {.retry_for = 1h}), stop.get_token())));
            co_await sleep_for(3s);
            const time_point stopped = on.now();
            stop.request_stop();
            const auto outcome = co_await connecting;
            CHECK(outcome.error() == errc::canceled);
            CHECK(on.now() == stopped);
        }
    }(world.on));
}

TEST_CASE("with a token that is stopped already nothing listens and nothing connects") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        std::stop_source stop;
        stop.request_stop();
        const auto listening =
            co_await as_result(with_stop(listen<loopback>(domain, "stopped"), stop.get_token()));
        CHECK(listening.error() == errc::canceled);
        auto there = co_await listen<loopback>(domain, "stopped");  // the address is free
        const auto connecting =
            co_await as_result(with_stop(connect<loopback>(domain, "stopped"), stop.get_token()));
        CHECK(connecting.error() == errc::canceled);
        CHECK(there.refused() == 0);
    }(world.on));
}

TEST_CASE("errors that do not pass end connect at once") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        auto listening = co_await listen<loopback, protocols<segmented<>>>(domain, "other list");
        const time_point begun = on.now();
        const auto outcome = co_await as_result(connect<loopback>(domain, "other list", {.retry_for = 1h}));
        CHECK(outcome.error() == errc::protocol_mismatch);
        CHECK(on.now() - begun < 1s);
    }(world.on));
}

TEST_CASE("a listener tells why it refused the last peer, and what both sides have") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        mailbox_options options;
        options.handshake_limit = 3s;
        auto listening = co_await listen<loopback>(domain, "told", options);
        CHECK_FALSE(listening.last_refusal().why);
        const auto other = co_await as_result(connect<loopback, protocols<segmented<>>>(domain, "told"));
        CHECK(other.error() == errc::protocol_mismatch);
        while (listening.refused() < 1) co_await yield();
        CHECK(listening.last_refusal().why == errc::protocol_mismatch);
        CHECK_THAT(listening.last_refusal().text,
                   contains("has \"segmented\"") && contains("this side has the protocols \"eager, "));
        auto silent = co_await domain.connect("told");
        while (listening.refused() < 2) co_await sleep_for(1s);
        CHECK(listening.last_refusal().why == errc::timed_out);
        CHECK(listening.last_refusal().text == "loopback");
    }(world.on));
}

TEST_CASE("a listener that finds no memory for a peer refuses that one and accepts the next") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        using accepted_one = rdmacoro::detail::endpoint_state<loopback, default_protocols<loopback>>;
        loopback_domain domain(on);
        auto listening = co_await listen<loopback>(domain, "here");
        const auto without = co_await domain.connect("here");
        {
            const failing_allocations none(sizeof(accepted_one), sizeof(accepted_one));
            for (int turn = 0; turn < 10; ++turn) co_await yield();
        }
        CHECK(listening.refused() == 1);
        CHECK(listening.last_refusal().why == errc::no_resources);
        auto connecting = start(connect<loopback>(domain, "here"));
        const auto accepted = co_await as_result(timeout(listening.accept(), 10s));
        CHECK(accepted);
        static_cast<void>(co_await as_result(connecting));
    }(world.on));
}

}  // namespace test_messaging_connect
