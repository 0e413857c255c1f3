#include <rdmacoro/service/detail/node_guards.hpp>

#include "support/bare_node.hpp"
#include "support/catch.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/with_stop.hpp>

#include <chrono>
#include <optional>
#include <utility>

namespace test_service_detail_node_guards {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("a stranger is counted until its guard ends, and then there is room for another") {
    bare_node f;
    f.world.run([](bare_core& core) -> task<> {
        ++core.strangers;
        std::optional<node_stranger> one(std::in_place, core);
        auto waiting = start(core.stranger_gone.wait());
        CHECK(core.strangers == 1);
        CHECK_FALSE(waiting.done());
        one.reset();
        CHECK(core.strangers == 0);
        co_await waiting;
    }(*f.core));
}

TEST_CASE("the stranger that has been silent for the longest time gives way to another after a tenth of the "
          "limit") {
    bare_node f;
    f.core->options.unnamed_connections = 2;
    f.core->options.hello_limit = 10s;
    f.world.run([](bare_core& core) -> task<> {
        struct silent {
            explicit silent(bare_core& of) : guard(std::in_place, (++of.strangers, of)) {}
            task<> hello() {
                const auto got = co_await as_result(with_stop(arrives.wait(), guard->token()));
                canceled = !got && got.error() == errc::canceled;
                guard.reset();
            }
            std::optional<node_stranger> guard;
            event arrives;
            bool canceled = false;
        };
        const time_point begun = core.owner.now();
        silent first(core);
        auto of_first = start(first.hello());
        co_await sleep_for(300ms);
        silent second(core);
        auto of_second = start(second.hello());
        auto third_comes = start(room_for_stranger(core));
        co_await sleep_for(699ms);
        CHECK_FALSE(third_comes.done());
        co_await third_comes;
        CHECK(core.owner.now() - begun == 1s);
        co_await of_first;
        CHECK(first.canceled);
        CHECK(core.strangers == 1);
        CHECK_FALSE(of_second.done());  // one goes for one that comes
        silent third(core);
        auto of_third = start(third.hello());

        // One that has spoken does not go, and is not waited for beyond the next one.
        second.guard->spoke();
        auto fourth_comes = start(room_for_stranger(core));
        co_await fourth_comes;
        CHECK(core.owner.now() - begun == 2s);
        co_await of_third;
        CHECK(third.canceled);
        CHECK_FALSE(of_second.done());

        // Where all have spoken, the next one waits for the first that goes.
        silent fourth(core);
        fourth.guard->spoke();
        auto of_fourth = start(fourth.hello());
        auto fifth_comes = start(room_for_stranger(core));
        co_await sleep_for(30s);
        CHECK_FALSE(fifth_comes.done());
        second.arrives.set();
        co_await fifth_comes;
        co_await of_second;
        CHECK_FALSE(second.canceled);
        fourth.arrives.set();
        co_await of_fourth;
    }(*f.core));
}

TEST_CASE(
    "while a connection of the peer's is accepted the peer says so, and what waits looks again afterwards") {
    bare_node f;
    f.world.run([](bare_core& core) -> task<> {
        const counted_ptr<node_peer> peer = core.peer(3);
        std::optional<node_accepting> one(std::in_place, peer);
        const node_accepting other(peer);
        CHECK(peer->accepting == 2);
        auto waiting = start(peer->changed.wait());
        one.reset();
        CHECK(peer->accepting == 1);
        co_await waiting;
    }(*f.core));
}

TEST_CASE("the peer's attempt is the latest one, which it can end") {
    bare_node f;
    const counted_ptr<node_peer> peer = f.core->peer(3);
    std::optional<node_attempt> first(std::in_place, *peer);
    local_stop_source* const of_first = peer->attempt;
    REQUIRE(of_first != nullptr);
    std::optional<node_attempt> second(std::in_place, *peer);
    CHECK(peer->attempt != of_first);
    peer->attempt->request_stop();
    CHECK(second->token().stop_requested());
    CHECK_FALSE(first->token().stop_requested());
    first.reset();
    CHECK(peer->attempt != nullptr);
    second.reset();
    CHECK(peer->attempt == nullptr);
}

TEST_CASE("an attempt that has ended has said no hello any more") {
    bare_node f;
    const counted_ptr<node_peer> peer = f.core->peer(3);
    {
        const node_hello_said one(*peer);
        CHECK_FALSE(peer->hello_sent);
        peer->hello_sent = true;
    }
    CHECK_FALSE(peer->hello_sent);
}

TEST_CASE("when connecting has ended, a peer that nothing needs is forgotten") {
    bare_node f;
    {
        const node_connecting one(f.core->peer(3));
        f.core->find(3)->connecting = true;
        CHECK(&one.to() == f.core->find(3).get());
        CHECK(one.to().connecting);
    }
    CHECK(f.core->find(3).get() == nullptr);
    const counted_ptr<node_peer> kept = f.core->peer(4);
    kept->connecting = true;
    { const node_connecting one(kept); }
    CHECK_FALSE(kept->connecting);
    CHECK(f.core->find(4).get() == kept.get());
}

}  // namespace test_service_detail_node_guards
