#include <rdmacoro/messaging/connect.hpp>

#include "support/catch.hpp"
#include "support/loopback.hpp"
#include "support/run.hpp"

#include <rdmacoro/coro/coro.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

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

TEST_CASE("destroying a listener drops those who wait to be accepted and keeps those who were") {
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
