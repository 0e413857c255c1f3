#include <rdmacoro/service/detail/gate_lane.hpp>

#include "support/catch.hpp"
#include "support/thread_state.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <string_view>
#include <thread>
#include <vector>

#include <unistd.h>

namespace test_service_detail_gate_lane {

using namespace rdmacoro;
using rdmacoro::test::sleeps;
using namespace rdmacoro::detail;

namespace {

const_buffers bytes(std::string_view text) { return {std::as_bytes(std::span(text.data(), text.size()))}; }
std::string_view text_of(gate_slot& slot) {
    return {reinterpret_cast<const char*>(slot.inside()), slot.bytes};
}

struct lane_world {
    scheduler on;
    task_port port{on};
    gate_lane lane;
    explicit lane_world(std::size_t messages, bool shared = true)
        : lane(port, {.messages = messages, .message_bytes = 32}, shared) {
        lane.news.call = [](posted_node&) noexcept {};  // the test takes
    }
    void give_back(gate_slot& slot, const status& failed = {}) {
        lane.give_back(slot, failed);
        lane.publish_back();
    }
    bool put(std::uint32_t peer) {
        return lane.put(lane.flow(peer), bytes("x"), 0) == gate_lane::put_result::done;
    }
};

}  // namespace

TEST_CASE("what a thread puts into a lane comes out in order, whatever is given back first") {
    lane_world w(16);
    gate_flow& to = w.lane.flow(5);
    CHECK(&w.lane.flow(5) == &to);
    CHECK(w.lane.put(to, bytes("one"), 1) == gate_lane::put_result::done);
    const std::string_view two = "tw";
    const std::span<const std::byte> pieces[] = {
        std::as_bytes(std::span(two)), {}, std::as_bytes(std::span(two))};
    const const_buffers gathered{std::span<const std::span<const std::byte>>(pieces)};
    CHECK(w.lane.put(to, gathered, 2) == gate_lane::put_result::done);
    gate_loan loan(gathered);
    CHECK(w.lane.lend(to, loan, 3) == gate_lane::put_result::done);
    gate_slot* const first = w.lane.take();
    gate_slot* const second = w.lane.take();
    gate_slot* const third = w.lane.take();
    REQUIRE(first != nullptr);
    REQUIRE(third != nullptr);
    CHECK(w.lane.take() == nullptr);
    CHECK(w.lane.rest());
    CHECK(text_of(*first) == "one");
    CHECK(text_of(*second) == "twtw");
    CHECK(third->kind == gate_slot::content::lent);
    CHECK(&third->loan->from == &gathered);
    CHECK(second->tag == 2);
    CHECK(third->tag == 3);
    CHECK(first->flow->peer == 5);
    w.give_back(*third, errc::truncated);
    CHECK(loan.back);
    CHECK(loan.failed.value == static_cast<int>(errc::truncated));
    w.give_back(*first, errc::peer_lost);
    CHECK(!w.lane.all_back());
    w.lane.give_back(*second, errc::closed);
    CHECK(!w.lane.all_back());  // not published
    w.lane.publish_back();
    CHECK(w.lane.all_back());
    std::uint32_t peer = 0;
    std::exception_ptr why;
    CHECK(w.lane.take_error(peer, why) == errc::peer_lost);  // the first; that of a loan is its owner's
    CHECK(peer == 5);
    CHECK(!w.lane.take_error(peer, why));
}

TEST_CASE("an error's own exception comes with it, to the thread or to the loan, and with no later one") {
    lane_world w(16);
    gate_flow& to = w.lane.flow(5);
    const std::exception_ptr own = std::make_exception_ptr(error(errc::peer_lost, "node 5"));
    const const_buffers text = bytes("x");
    gate_loan loan(text);
    CHECK(w.put(5));
    CHECK(w.lane.lend(to, loan, 3) == gate_lane::put_result::done);
    CHECK(w.put(5));
    gate_slot* const first = w.lane.take();
    gate_slot* const second = w.lane.take();
    gate_slot* const third = w.lane.take();
    w.lane.give_back(*first, errc::peer_lost, &own);
    w.lane.give_back(*second, errc::peer_lost, &own);
    CHECK(loan.why == own);
    std::uint32_t peer = 0;
    std::exception_ptr why;
    CHECK(w.lane.take_error(peer, why) == errc::peer_lost);
    CHECK(why == own);
    w.give_back(*third, errc::closed);
    CHECK(w.lane.take_error(peer, why) == errc::closed);
    CHECK(why == nullptr);
}

TEST_CASE("a peer that takes nothing leaves room for others in a lane") {
    lane_world w(64);
    std::vector<std::size_t> room;
    std::size_t all = 0;
    // None takes anything, and each gets something until the lane is full.
    for (std::uint32_t peer = 1; all != 64; ++peer) {
        std::size_t put = 0;
        while (w.put(peer)) ++put;
        REQUIRE(put != 0);
        room.push_back(put);
        all += put;
    }
    CHECK(std::vector<std::size_t>(room.begin(), room.begin() + 6) ==
          std::vector<std::size_t>{16, 11, 7, 5, 3, 2});
    CHECK(room.size() == 25);
    CHECK(room.back() == 1);
    CHECK(!w.put(99));
    gate_slot* const one = w.lane.take();
    REQUIRE(one != nullptr);
    CHECK(one->flow->peer == 1);
    w.give_back(*one);
    CHECK(!w.put(1));  // what is kept is for peers that have none
    CHECK(w.put(99));
    CHECK(!w.put(99));
}

TEST_CASE(
    "a thread that waits for room for a peer that takes nothing goes on when others' messages are back") {
    lane_world w(64);
    while (w.put(2)) {}
    while (w.put(1)) {}
    std::vector<gate_slot*> others;
    for (gate_slot* one = w.lane.take(); one != nullptr; one = w.lane.take()) {
        if (one->flow->peer == 2) others.push_back(one);
    }
    gate_flow& to = w.lane.flow(1);
    std::atomic<pid_t> thread{0};
    std::atomic<bool> gone{false};
    bool room = false;
    bool put = false;
    std::jthread waits([&] {
        thread = ::gettid();
        room = w.lane.wait_for_room(to, monotonic_now() + std::chrono::seconds(5));
        put = w.put(1);
        gone = true;
    });
    while (thread == 0) std::this_thread::yield();
    while (!gone && !sleeps(thread)) std::this_thread::yield();
    for (gate_slot* const one : others) w.lane.give_back(*one, {});
    w.lane.publish_back();
    waits.join();
    CHECK(room);
    CHECK(put);
    CHECK(to.back == 0);
}

TEST_CASE("one peer has all of a lane that no other shares") {
    lane_world w(64, false);
    std::size_t put = 0;
    while (w.put(0)) ++put;
    CHECK(put == 64);
}

TEST_CASE("a lane remembers the peers that have something in it, and drops others") {
    lane_world w(64);
    for (std::uint32_t peer = 1; peer <= 10000; ++peer) {
        REQUIRE(w.put(peer));
        gate_slot* const one = w.lane.take();
        REQUIRE(one->flow->peer == peer);
        if (peer % 1000 != 0) w.give_back(*one);  // ten are not given back
        REQUIRE(w.lane.flows() <= 64);
    }
    gate_flow& kept = w.lane.flow(3000);
    CHECK(kept.put == 1);
    CHECK(kept.back == 0);
}

TEST_CASE("a thread whose messages all came back before it sleeps for room does not sleep") {
    lane_world w(8);
    gate_flow& to = w.lane.flow(1);
    while (w.put(1)) {}
    while (gate_slot* const one = w.lane.take()) w.give_back(*one);
    CHECK(w.lane.wait_for_room(to, monotonic_now() + std::chrono::seconds(10)));
    CHECK(w.put(1));
}

TEST_CASE("a thread sleeps until there is room, until all is back, or until its time is over") {
    const bool shared = GENERATE(false, true);
    lane_world w(8, shared);
    gate_flow& to = w.lane.flow(1);
    constexpr std::uint32_t count = 20000;
    std::size_t wrong = 0;
    std::jthread puts([&] {
        for (std::uint32_t n = 0; n < count;) {
            const const_buffers one{std::as_bytes(std::span(&n, 1))};
            if (w.lane.put(to, one, n) == gate_lane::put_result::done) {
                ++n;
            } else {
                static_cast<void>(w.lane.wait_for_room(to, time_point::max()));
            }
        }
        static_cast<void>(w.lane.wait_until_back(time_point::max()));
    });
    for (std::uint32_t n = 0; n < count;) {
        gate_slot* const one = w.lane.take();
        if (one == nullptr) {
            std::this_thread::yield();
            continue;
        }
        std::uint32_t number = 0;
        std::memcpy(&number, one->inside(), sizeof number);
        if (number != n || one->tag != n) ++wrong;
        ++n;
        w.give_back(*one);
    }
    puts.join();
    CHECK(wrong == 0);
    CHECK(w.lane.all_back());
    while (w.put(1)) {}
    CHECK(!w.lane.wait_for_room(to, monotonic_now() + std::chrono::milliseconds(1)));
    CHECK(!w.lane.wait_until_back(monotonic_now() + std::chrono::milliseconds(1)));
    w.port.close();
    while (gate_slot* const one = w.lane.take()) w.give_back(*one);
    CHECK(w.lane.rest());
    CHECK(w.lane.put(to, bytes("x"), 0) == gate_lane::put_result::closed);
}

TEST_CASE("a thread that lends its memory is woken when that is back, whatever else is") {
    lane_world w(64);
    constexpr int rounds = 2000;
    std::size_t early = 0;
    std::jthread lends([&] {
        gate_flow& to = w.lane.flow(1);
        for (int round = 0; round < rounds; ++round) {
            while (w.lane.put(w.lane.flow(2), bytes("beside"), 0) != gate_lane::put_result::done)
                static_cast<void>(w.lane.wait_for_room(w.lane.flow(2), time_point::max()));
            const const_buffers memory = bytes("long");
            gate_loan loan(memory);
            while (w.lane.lend(to, loan, 0) != gate_lane::put_result::done)
                static_cast<void>(w.lane.wait_for_room(to, time_point::max()));
            w.lane.wait_until_back(loan);
            if (!loan.back) ++early;
        }
    });
    std::vector<gate_slot*> beside;
    for (int lent = 0; lent < rounds;) {
        gate_slot* const one = w.lane.take();
        if (one == nullptr) {
            std::this_thread::yield();
        } else if (one->kind == gate_slot::content::lent) {
            ++lent;
            w.give_back(*one);
        } else {
            beside.push_back(one);
            if (beside.size() == 4) {  // in the reverse order
                for (; !beside.empty(); beside.pop_back()) w.lane.give_back(*beside.back(), {});
                w.lane.publish_back();
            }
        }
    }
    lends.join();
    CHECK(early == 0);
}

TEST_CASE("a thread that lends its memory waits until that is back although the gate has ended") {
    lane_world w(8);
    const const_buffers memory = bytes("long");
    gate_loan loan(memory);
    REQUIRE(w.lane.lend(w.lane.flow(1), loan, 0) == gate_lane::put_result::done);
    gate_slot* const slot = w.lane.take();
    REQUIRE(slot != nullptr);
    w.port.close();
    std::atomic<pid_t> thread{0};
    std::atomic<bool> given{false};
    std::atomic<bool> gone{false};
    bool early = false;
    std::jthread waits([&] {
        thread = ::gettid();
        w.lane.wait_until_back(loan);
        early = !given;
        gone = true;
    });
    while (thread == 0) std::this_thread::yield();
    while (!gone && !sleeps(thread)) std::this_thread::yield();
    given = true;
    w.give_back(*slot, errc::closed);
    waits.join();
    CHECK(!early);
    CHECK(loan.failed.value == static_cast<int>(errc::closed));
}

TEST_CASE("what a lane accepted before its port refused the next entry is taken") {
    for (const unsigned accepted : {0U, 1U, 2U}) {
        CAPTURE(accepted);
        lane_world w(16);   // there is room for all of them
        REQUIRE(w.put(1));  // posts: what follows is accepted without, until the lane rests
        w.port.close();
        gate_slot* const first = w.lane.take();
        REQUIRE(first != nullptr);
        CHECK(w.lane.take() == nullptr);
        // The thread puts before and after the lane stops to look, and the scheduler has seen none of it.
        for (unsigned n = 0; n < accepted; ++n) REQUIRE(w.put(1));
        w.lane.stop_looking();
        CHECK(w.lane.put(w.lane.flow(1), bytes("x"), 0) == gate_lane::put_result::closed);
        CHECK(w.lane.rests() == (accepted == 0));
        unsigned taken = 0;
        while (w.lane.take() != nullptr) ++taken;
        CHECK(taken == accepted);  // and not the one that was refused
        CHECK(w.lane.rest());
    }
}

namespace {
/// Counts how often it is asked to look, and waits on until it is told not to.
struct counting_wait final : gate_wait {
    counting_wait() : gate_wait(&look) {}
    static bool look(gate_wait& at) noexcept {
        auto& self = static_cast<counting_wait&>(at);
        ++self.looks_made;
        return self.ends;
    }
    int looks_made = 0;
    bool ends = false;
};
}  // namespace

TEST_CASE("a coroutine that waits for room is woken although its thread has waited outside of its scheduler "
          "meanwhile") {
    lane_world w(8);
    scheduler of_thread;
    gate_flow& full = w.lane.flow(2);
    while (w.put(2)) {}
    counting_wait waits;
    of_thread.run([](lane_world& in, gate_flow& to, gate_wait& one) -> task<> {
        in.lane.enlist(to, one);
        co_return;
    }(w, full, waits));
    const const_buffers memory = bytes("long");
    gate_loan loan(memory);
    REQUIRE(w.lane.lend(w.lane.flow(1), loan, 0) == gate_lane::put_result::done);
    std::vector<gate_slot*> kept;
    std::jthread gives_back([&] {
        for (gate_slot* one = w.lane.take(); one != nullptr; one = w.lane.take()) kept.push_back(one);
        for (gate_slot* one : kept) {
            if (one->kind == gate_slot::content::lent) w.give_back(*one);
        }
    });
    w.lane.wait_until_back(loan);  // no scheduler runs
    gives_back.join();
    of_thread.turn();
    const int looked = waits.looks_made;
    CHECK(looked > 0);
    waits.ends = true;
    for (gate_slot* one : kept) {
        if (one->kind != gate_slot::content::lent) w.give_back(*one);
    }
    of_thread.turn();
    CHECK(waits.looks_made > looked);
    CHECK(!waits.linked());
}

}  // namespace test_service_detail_gate_lane
