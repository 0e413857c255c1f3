#include <rdmacoro/service/detail/gate_lane.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

const_buffers bytes(std::string_view text) { return {std::as_bytes(std::span(text.data(), text.size()))}; }
std::string_view text_of(gate_slot& slot) {
    return {reinterpret_cast<const char*>(slot.inside()), slot.bytes};
}

struct world {
    scheduler on;
    task_port port{on};
    gate_lane lane;
    explicit world(std::size_t messages) : lane(port, {.messages = messages, .message_bytes = 32}) {
        lane.news.call = [](posted_node&) noexcept {};  // the test takes
    }
};

}  // namespace

TEST_CASE("what a thread puts into a lane comes out in order, whatever is given back first") {
    world w(16);
    gate_flow& to = w.lane.flow(5);
    CHECK(&w.lane.flow(5) == &to);
    CHECK(w.lane.put(to, bytes("one"), 1, false) == gate_lane::put_result::done);
    const std::string_view two = "tw";
    const std::span<const std::byte> pieces[] = {
        std::as_bytes(std::span(two)), {}, std::as_bytes(std::span(two))};
    const const_buffers gathered{std::span<const std::span<const std::byte>>(pieces)};
    CHECK(w.lane.put(to, gathered, 2, false) == gate_lane::put_result::done);
    CHECK(w.lane.put(to, gathered, 3, true) == gate_lane::put_result::done);
    gate_slot* const first = w.lane.take();
    gate_slot* const second = w.lane.take();
    gate_slot* const third = w.lane.take();
    REQUIRE(first != nullptr);
    REQUIRE(third != nullptr);
    CHECK(w.lane.take() == nullptr);
    CHECK(w.lane.rest());
    CHECK(text_of(*first) == "one");
    CHECK(text_of(*second) == "twtw");
    CHECK(third->borrowed == &gathered);
    CHECK(second->tag == 2);
    CHECK(first->flow->peer == 5);
    w.lane.give_back(*third, {});
    w.lane.give_back(*first, errc::peer_lost);
    CHECK(!w.lane.all_back());
    w.lane.give_back(*second, errc::closed);
    CHECK(w.lane.all_back());
    std::uint32_t peer = 0;
    CHECK(w.lane.take_error(peer) == errc::peer_lost);  // the first
    CHECK(peer == 5);
    CHECK(!w.lane.take_error(peer));
}

TEST_CASE("a peer that takes nothing leaves room for others in a lane") {
    world w(64);
    std::vector<std::size_t> room;
    std::vector<gate_slot*> taken;
    for (std::uint32_t peer = 1; peer <= 6; ++peer) {
        gate_flow& to = w.lane.flow(peer);
        std::size_t put = 0;
        while (w.lane.put(to, bytes("x"), 0, false) == gate_lane::put_result::done) ++put;
        room.push_back(put);
        while (gate_slot* const one = w.lane.take()) taken.push_back(one);
    }
    CHECK(room == std::vector<std::size_t>{22, 14, 10, 6, 4, 3});
    w.lane.give_back(*taken[0], {});
    w.lane.give_back(*taken[1], {});
    CHECK(w.lane.put(w.lane.flow(9), bytes("x"), 0, false) == gate_lane::put_result::done);
}

TEST_CASE("a thread whose messages all came back before it sleeps for room does not sleep") {
    world w(8);
    gate_flow& to = w.lane.flow(1);
    while (w.lane.put(to, bytes("x"), 0, false) == gate_lane::put_result::done) {}
    while (gate_slot* const one = w.lane.take()) w.lane.give_back(*one, {});
    CHECK(w.lane.wait_for_room(to, monotonic_now() + std::chrono::seconds(10)));
    CHECK(w.lane.put(to, bytes("x"), 0, false) == gate_lane::put_result::done);
}

TEST_CASE("a thread sleeps until there is room, until all is back, or until its time is over") {
    world w(8);
    gate_flow& to = w.lane.flow(1);
    constexpr std::uint32_t count = 20000;
    std::size_t wrong = 0;
    std::jthread puts([&] {
        for (std::uint32_t n = 0; n < count;) {
            const const_buffers one{std::as_bytes(std::span(&n, 1))};
            if (w.lane.put(to, one, n, false) == gate_lane::put_result::done) {
                ++n;
            } else {
                static_cast<void>(w.lane.wait_for_room(to, time_point::max()));
            }
        }
        static_cast<void>(w.lane.wait_until_back(nullptr, time_point::max()));
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
        w.lane.give_back(*one, {});
    }
    puts.join();
    CHECK(wrong == 0);
    CHECK(w.lane.all_back());
    while (w.lane.put(to, bytes("x"), 0, false) == gate_lane::put_result::done) {}
    CHECK(!w.lane.wait_for_room(to, monotonic_now() + std::chrono::milliseconds(1)));
    w.port.close();
    CHECK(!w.lane.wait_until_back(&to, time_point::max()));
    CHECK(w.lane.put(to, bytes("x"), 0, false) == gate_lane::put_result::closed);
}
