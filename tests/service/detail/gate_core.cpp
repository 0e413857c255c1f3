#include <rdmacoro/service/detail/gate_core.hpp>

#include "support/catch.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace test_service_detail_gate_core {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {
/// Keeps what comes.
struct keeping final : gate_core {
    explicit keeping(scheduler& on, const gate_options& limits) : gate_core(on, limits, true) {}
    unsigned serve(gate_lane& lane, unsigned most) noexcept override {
        ++served;
        for (unsigned n = 0; n < most; ++n) {
            gate_slot* const one = lane.take();
            if (one == nullptr) return n;
            kept.push_back(one);
        }
        return most;
    }
    /// As a send that waited and has ended.
    void give_back(gate_slot& slot, const status& failed = {}) {
        began();
        slot.lane->give_back(slot, failed);
        ended(*slot.lane);
    }
    std::vector<gate_slot*> kept;
    std::size_t served = 0;
    std::uint64_t taken = 0;
};
const const_buffers nothing{};
bool put_tag(gate_lane& in, std::uint32_t to, tag_type tag) {
    return in.put(in.flow(to), nothing, tag) == gate_lane::put_result::done;
}
}  // namespace

TEST_CASE("lanes of threads that have left are taken again once they are empty") {
    scheduler on;
    keeping core(on, {.messages = 8});
    gate_lane& one = core.enter();
    gate_lane& two = core.enter();
    CHECK(core.lanes() == 2);
    CHECK(put_tag(one, 1, 0));
    core.leave(one);
    core.leave(two);
    CHECK(&core.enter() == &two);  // the other is not empty
    gate_lane& third = core.enter();
    CHECK(core.lanes() == 3);
    on.turn();
    REQUIRE(core.kept.size() == 1);
    core.give_back(*core.kept[0], errc::peer_lost);
    on.turn();
    CHECK(&core.enter() == &one);
    std::uint32_t peer = 0;
    std::exception_ptr why;
    CHECK(!one.take_error(peer, why));  // it was the former thread's
    core.leave(third);
    core.end();
    CHECK_THROWS_AS(core.enter(), error);
}

TEST_CASE("no more lanes are made than may be also where threads leave what is not sent") {
    scheduler on;
    keeping core(on, {.messages = 8, .passes = 3});
    for (int n = 0; n < 3; ++n) {
        gate_lane& one = core.enter();
        CHECK(put_tag(one, 1, 0));
        core.leave(one);
    }
    std::error_code refused;
    try {
        static_cast<void>(core.enter());
    } catch (const error& why) {
        refused = why.code();
    }
    CHECK(refused == errc::no_resources);
    CHECK(core.lanes() == 3);
    while (on.turn()) {}  // the news of three lanes, as many in a turn as its time allows
    REQUIRE(core.kept.size() == 3);
    core.give_back(*core.kept[1]);
    on.turn();
    static_cast<void>(core.enter());
    CHECK(core.lanes() == 3);
    core.end();
}

TEST_CASE("lanes come in turns, so many of each, and of all so many in one turn of the scheduler") {
    scheduler on;
    keeping core(on, {.messages = 2048});
    std::vector<gate_lane*> lanes;
    for (int n = 0; n < 3; ++n) lanes.push_back(&core.enter());
    for (std::uint32_t n = 0; n < 400; ++n) REQUIRE(put_tag(*lanes[0], n % 10, 0));
    for (std::uint32_t n = 0; n < 400; ++n) REQUIRE(put_tag(*lanes[1], n % 10, 1));
    for (std::uint32_t n = 0; n < 10; ++n) REQUIRE(put_tag(*lanes[2], n % 10, 2));
    on.turn();
    CHECK(core.kept.size() <= 256);
    CHECK(core.kept.size() >= 64);
    while (on.turn()) {}
    REQUIRE(core.kept.size() == 810);
    std::vector<tag_type> runs;
    std::size_t last_of_third = 0;
    for (std::size_t n = 0; n < core.kept.size(); ++n) {
        if (runs.empty() || runs.back() != core.kept[n]->tag) runs.push_back(core.kept[n]->tag);
        if (core.kept[n]->tag == 2) last_of_third = n;
    }
    CHECK(runs.size() > 15);     // 32 at a time
    CHECK(last_of_third < 400);  // two that have much leave it its turn
    for (gate_slot* const one : std::exchange(core.kept, {})) core.give_back(*one);
    CHECK(!lanes[0]->all_back());
    while (on.turn()) {}
    CHECK(lanes[0]->all_back());
    CHECK(lanes[1]->all_back());
    CHECK(lanes[2]->all_back());
    core.end();
}

TEST_CASE("a lane that was emptied is looked at once more, and then its thread says that there is news") {
    scheduler on;
    keeping core(on, {});
    gate_lane& one = core.enter();
    CHECK(put_tag(one, 1, 1));
    on.turn();
    CHECK(core.kept.size() == 1);
    CHECK(put_tag(one, 1, 2));  // without a word
    on.turn();
    CHECK(core.kept.size() == 2);
    while (on.turn()) {}
    const std::size_t looks = core.served;
    CHECK(!on.turn());  // it rests, and costs nothing
    CHECK(core.served == looks);
    CHECK(put_tag(one, 1, 3));
    on.turn();
    CHECK(core.kept.size() == 3);
    for (gate_slot* const slot : core.kept) core.give_back(*slot);
    core.end();
    CHECK(one.all_back());
    while (on.turn()) {}
}

TEST_CASE("the end of a gate takes what threads have put until then, and refuses the rest") {
    scheduler on;
    keeping core(on, {.messages = 1024});
    gate_lane& one = core.enter();
    for (std::uint32_t n = 0; n < 700; ++n) REQUIRE(put_tag(one, n, 0));
    core.end();
    CHECK(core.kept.size() == 700);
    CHECK(!put_tag(one, 1, 0));
    CHECK(one.put(one.flow(1), nothing, 0) == gate_lane::put_result::closed);
}

TEST_CASE("what a thread put whose news find the gate closed is taken, or was refused, and never both") {
    // The thread is about to post the news of its last entry, when the lane rests, and the gate ends.
    scheduler on;
    keeping core(on, {.messages = 8});
    gate_lane& lane = core.enter();
    REQUIRE(lane.asks_to_look());
    CHECK(put_tag(lane, 1, 5));  // accepted: the scheduler is taken to look still
    CHECK(put_tag(lane, 1, 6));
    REQUIRE(lane.rests());
    core.end();
    CHECK(lane.post_news() == gate_lane::put_result::done);
    REQUIRE(core.kept.size() == 2);
    CHECK(core.kept[0]->tag == 5);
    CHECK(core.kept[1]->tag == 6);
    CHECK(!put_tag(lane, 1, 7));
    CHECK_THROWS_AS(static_cast<void>(core.enter()), error);
}

TEST_CASE("what was taken before the gate ended is not refused by its news, which come later") {
    scheduler on;
    keeping core(on, {.messages = 8});
    gate_lane& lane = core.enter();
    REQUIRE(lane.asks_to_look());
    CHECK(put_tag(lane, 1, 5));
    CHECK(core.serve(lane, 8) == 1);
    CHECK(lane.rest());
    core.end();
    CHECK(lane.asks_to_look());
    CHECK(lane.post_news() == gate_lane::put_result::done);
    CHECK(core.kept.size() == 1);
}

TEST_CASE("of what threads put as their gate ends each is taken or refused") {
    std::uint64_t rounds_with_some = 0;
    for (int round = 0; round < 300; ++round) {
        scheduler on;
        keeping core(on, {.messages = 512});
        constexpr unsigned threads = 3;
        std::atomic<unsigned> putting{0};
        std::array<std::uint64_t, threads> accepted{};
        std::vector<std::jthread> all;
        for (unsigned n = 0; n < threads; ++n) {
            all.emplace_back([&core, &putting, &mine = accepted[n], n] {
                gate_lane& lane = core.enter();
                gate_flow& to = lane.flow(n);
                ++putting;
                for (;;) {
                    const auto put = lane.put(to, nothing, 0);
                    if (put == gate_lane::put_result::closed) return;
                    if (put == gate_lane::put_result::done) ++mine;
                    for (std::uint64_t pause = mine * 7 % 32; pause != 0; --pause) std::this_thread::yield();
                }
            });
        }
        while (putting != threads) std::this_thread::yield();
        for (int turn = round % 7; turn != 0; --turn) {
            on.turn();
            for (gate_slot* const one : std::exchange(core.kept, {})) {
                ++core.taken;
                core.give_back(*one);
            }
        }
        core.end();
        all.clear();
        core.taken += core.kept.size();
        const std::uint64_t sum = accepted[0] + accepted[1] + accepted[2];
        CHECK(core.taken == sum);
        rounds_with_some += sum != 0 ? 1 : 0;
    }
    CHECK(rounds_with_some > 100);
}

}  // namespace test_service_detail_gate_core
