#include <rdmacoro/service/detail/node_guards.hpp>

#include "support/bare_node.hpp"
#include "support/catch.hpp"

#include <rdmacoro/coro/start.hpp>

#include <optional>

namespace test_service_detail_node_guards {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;

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

TEST_CASE("when connecting has ended, a peer that nothing needs is forgotten") {
    bare_node f;
    f.core->peer(3)->connecting = true;
    {
        const node_connecting one(*f.core, f.core->find(3));
        CHECK(&one.to() == f.core->find(3).get());
        CHECK(one.to().connecting);
    }
    CHECK(f.core->find(3).get() == nullptr);
    const counted_ptr<node_peer> kept = f.core->peer(4);
    kept->connecting = true;
    { const node_connecting one(*f.core, kept); }
    CHECK_FALSE(kept->connecting);
    CHECK(f.core->find(4).get() == kept.get());
}

}  // namespace test_service_detail_node_guards
