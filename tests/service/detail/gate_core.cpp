#include <rdmacoro/service/detail/gate_core.hpp>

#include "support/catch.hpp"

#include <memory>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {
/// Keeps what comes.
struct keeping final : gate_core {
    using gate_core::gate_core;
    gate_target* make_target(std::uint32_t peer) noexcept override {
        made.push_back(peer);
        return &target;
    }
    gate_target target;
    std::vector<std::uint32_t> made;
};
const const_buffers nothing{};
}  // namespace

TEST_CASE("lanes of threads that have left are taken again once they are empty") {
    scheduler on;
    keeping core(on, {.messages = 8});
    gate_lane& one = core.enter();
    gate_lane& two = core.enter();
    CHECK(core.lanes() == 2);
    CHECK(one.put(one.flow(1), nothing, 0, false) == gate_lane::put_result::done);
    core.leave(one);
    core.leave(two);
    CHECK(&core.enter() == &two);  // the other is not empty
    gate_lane& third = core.enter();
    CHECK(core.lanes() == 3);
    on.turn();
    gate_slot* const left = core.target.pop();
    REQUIRE(left != nullptr);
    one.give_back(*left, errc::peer_lost);
    CHECK(&core.enter() == &one);
    std::uint32_t peer = 0;
    CHECK(!one.take_error(peer));  // it was the former thread's
    core.leave(third);
    core.end();
    CHECK_THROWS_AS(core.enter(), error);
}

TEST_CASE("messages of lanes come in turns, a target is made once, and none is left at one that has ended") {
    scheduler on;
    keeping core(on, {.messages = 2048});
    gate_lane& one = core.enter();
    gate_lane& two = core.enter();
    for (int n = 0; n < 400; ++n) static_cast<void>(one.put(one.flow(1), nothing, 1, false));
    for (int n = 0; n < 10; ++n) static_cast<void>(two.put(two.flow(1), nothing, 2, false));
    while (on.turn()) {}
    std::vector<tag_type> order;
    while (gate_slot* const slot = core.target.pop()) {
        order.push_back(slot->tag);
        slot->lane->give_back(*slot, {});
    }
    CHECK(order.size() == 410);
    CHECK(order[255] == 1);
    CHECK(order[256] == 2);
    CHECK(order[266] == 1);
    CHECK(core.made == std::vector<std::uint32_t>{1});
    core.target.over = errc::peer_lost;
    CHECK(one.put(one.flow(1), nothing, 1, false) == gate_lane::put_result::done);
    while (on.turn()) {}
    std::uint32_t peer = 0;
    CHECK(one.all_back());
    CHECK(one.take_error(peer) == errc::peer_lost);
    core.end();
}
