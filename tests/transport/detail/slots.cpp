#include <rdmacoro/transport/detail/slots.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <set>

namespace test_transport_detail_slots {

using namespace rdmacoro;

namespace {

struct slot {
    slot* next = nullptr;
    std::byte* data = nullptr;
    int key = 0;
};

/// Counts what is registered.
struct registrar {
    struct state {
        int left = 100;  // until it fails
        int made = 0;
        int held = 0;
    };
    struct release {
        void operator()(state* of) const noexcept { --of->held; }
    };
    using registration = std::unique_ptr<state, release>;

    state* now;

    [[nodiscard]] int add(std::span<std::byte> memory, std::span<slot> slots,
                          registration& made) const noexcept {
        if (now->left-- == 0) return -EPERM;
        ++now->held;
        ++now->made;
        made.reset(now);
        memory.back() = std::byte{1};  // all of it is there
        for (slot& s : slots) s.key = now->made;
        return 0;
    }
};

using pool = detail::slabs_of_slots<slot, registrar>;

}  // namespace

TEST_CASE("a queue of slots keeps their order, from either end") {
    detail::slot_queue<slot> queue;
    slot a;
    slot b;
    slot c;
    CHECK(queue.empty());
    queue.push_back(b);
    queue.push_back(c);
    queue.push_front(a);
    CHECK(queue.pop_front() == &a);
    CHECK(queue.pop_front() == &b);
    CHECK(queue.pop_front() == &c);
    CHECK(queue.pop_front() == nullptr);
    queue.push_front(a);
    queue.push_back(b);
    CHECK(queue.pop_front() == &a);
    CHECK(queue.pop_front() == &b);
}

TEST_CASE("slots are reserved before they are taken, apart from each other, and registered") {
    registrar::state state;
    {
        pool slots(registrar{&state}, 4096);
        CHECK(slots.take() == nullptr);
        REQUIRE(slots.reserve(100) == 0);
        CHECK(slots.slots() >= 100);
        CHECK(state.held == state.made);
        std::set<std::uintptr_t> places;
        for (int i = 0; i < 100; ++i) {
            slot* s = slots.take();
            REQUIRE(s != nullptr);
            CHECK(s->key > 0);
            places.insert(reinterpret_cast<std::uintptr_t>(s->data) / 4096);
        }
        CHECK(places.size() == 100);
    }
    CHECK(state.held == 0);
}

TEST_CASE("what is given up is used again before anything is registered") {
    registrar::state state;
    pool slots(registrar{&state}, 64);
    REQUIRE(slots.reserve(60) == 0);
    const int made = state.made;
    slots.unreserve(60);
    REQUIRE(slots.reserve(60) == 0);
    CHECK(state.made == made);
    slot* s = slots.take();
    slots.give(*s);
    CHECK(slots.take() == s);
}

TEST_CASE("a registration that fails fails the reservation, and leaves what there was") {
    registrar::state state;
    pool slots(registrar{&state}, 64);
    REQUIRE(slots.reserve(1) == 0);
    const std::size_t had = slots.slots();
    state.left = 0;
    CHECK(slots.reserve(had) == -EPERM);
    CHECK(slots.slots() == had);
    CHECK(state.held == 1);
    CHECK(slots.reserve(had - 1) == 0);
}

TEST_CASE("slots survive the end of what they are registered with") {
    registrar::state state;
    pool slots(registrar{&state}, 64);
    REQUIRE(slots.reserve(100) == 0);
    const int held = state.held;
    slots.unregister();
    CHECK(state.held == 0);
    state.left = 1;
    CHECK(slots.register_again() == -EPERM);
    state.left = 100;
    REQUIRE(slots.register_again() == 0);
    CHECK(state.held == held);
    std::size_t again = 0;
    slots.for_each([&](slot& s) { again += s.key > held ? 1 : 0; });
    CHECK(again == slots.slots());
}

}  // namespace test_transport_detail_slots
