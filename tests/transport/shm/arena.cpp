#include <rdmacoro/transport/shm/arena.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace test_transport_shm_arena {

using namespace rdmacoro;
using detail::shm::arena;
using detail::shm::page_bytes;

TEST_CASE("pieces are whole pages, zeroed, apart, and back when they go") {
    arena from(16 * page_bytes);
    shared_memory a = from.allocate(1);
    shared_memory b = from.allocate(page_bytes + 1);
    CHECK(a.bytes().size() == page_bytes);
    CHECK(b.bytes().size() == 2 * page_bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(a.bytes().data()) % page_bytes == 0);
    CHECK(std::all_of(b.bytes().begin(), b.bytes().end(), [](std::byte x) { return x == std::byte{0}; }));
    std::memset(a.bytes().data(), 1, a.bytes().size());
    std::memset(b.bytes().data(), 2, b.bytes().size());
    CHECK(a.bytes().back() == std::byte{1});
    std::byte* where = a.bytes().data();
    a.reset();
    CHECK(a.bytes().empty());
    const shared_memory c = from.allocate(10);
    CHECK(c.bytes().data() == where);
    CHECK(c.bytes()[0] == std::byte{0});  // earlier contents are not visible
    CHECK(b.bytes()[0] == std::byte{2});
}

TEST_CASE("memory that was locked as it was given back is zeroed for the next piece") {
    arena from(4 * page_bytes);
    const shared_memory before = from.allocate(page_bytes);
    shared_memory locked = from.allocate(2 * page_bytes);
    const shared_memory after = from.allocate(page_bytes);
    if (::mlock(locked.bytes().data(), page_bytes) != 0) SKIP_TEST("this process may lock no memory");
    for (const shared_memory* each : {&before, &std::as_const(locked), &after})
        std::memset(each->bytes().data(), 1, each->bytes().size());
    locked.reset();
    const shared_memory next = from.allocate(2 * page_bytes);
    CHECK(
        std::all_of(next.bytes().begin(), next.bytes().end(), [](std::byte x) { return x == std::byte{0}; }));
    for (const shared_memory* each : {&before, &after})
        CHECK(std::all_of(each->bytes().begin(), each->bytes().end(),
                          [](std::byte x) { return x == std::byte{1}; }));
}

TEST_CASE("a piece of nearly as many bytes as there are numbers is refused") {
    arena from(8 * page_bytes);
    const std::size_t most = static_cast<std::size_t>(-1);
    for (const std::size_t bytes : {most, most - page_bytes + 2, most - page_bytes + 1, most / 2})
        CHECK_THROWS_AS(from.allocate(bytes), error);
    CHECK(from.allocate(8 * page_bytes).bytes().size() == 8 * page_bytes);
}

TEST_CASE("a full arena says what to raise, and what is given back is joined again") {
    arena from(8 * page_bytes);
    std::vector<shared_memory> pieces;
    for (int n = 0; n < 8; ++n) pieces.push_back(from.allocate(page_bytes));
    try {
        pieces.push_back(from.allocate(1));
        FAIL("there was room");
    } catch (const error& full) {
        CHECK(full.code() == errc::no_resources);
        CHECK_THAT(std::string(full.what()), test::contains("arena_bytes"));
    }
    // In an order that joins on both sides.
    for (const std::size_t n : {1u, 3u, 2u, 0u, 7u, 5u, 6u, 4u}) pieces[n].reset();
    CHECK(from.allocate(8 * page_bytes).bytes().size() == 8 * page_bytes);
}

TEST_CASE("no bytes are a page") {
    arena from(page_bytes);
    const shared_memory nothing = from.allocate(0);
    CHECK(nothing.bytes().size() == page_bytes);
}

TEST_CASE("moving shared memory passes it on") {
    arena from(4 * page_bytes);
    shared_memory a = from.allocate(page_bytes);
    std::byte* where = a.bytes().data();
    shared_memory b(std::move(a));
    CHECK(a.bytes().empty());
    shared_memory c = from.allocate(page_bytes);
    c = std::move(b);
    CHECK(c.bytes().data() == where);
    shared_memory& itself = c;
    c = std::move(itself);
    CHECK(c.bytes().data() == where);
    CHECK(from.allocate(3 * page_bytes).bytes().size() == 3 * page_bytes);
}

TEST_CASE("random pieces never overlap and all of the arena comes back") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    arena from(64 * page_bytes);
    std::vector<shared_memory> pieces;
    for (int step = 0; step < 2000; ++step) {
        if (random() % 2 == 0) {
            try {
                shared_memory piece = from.allocate(1 + random() % (6 * page_bytes));
                for (const shared_memory& other : pieces) {
                    const bool apart = piece.bytes().data() + piece.bytes().size() <= other.bytes().data() ||
                                       other.bytes().data() + other.bytes().size() <= piece.bytes().data();
                    REQUIRE(apart);
                }
                REQUIRE(piece.bytes()[0] == std::byte{0});
                piece.bytes()[0] = std::byte{1};
                pieces.push_back(std::move(piece));
            } catch (const error&) {
                REQUIRE_FALSE(pieces.empty());
            }
        } else if (!pieces.empty()) {
            std::swap(pieces[random() % pieces.size()], pieces.back());
            pieces.pop_back();
        }
    }
    pieces.clear();
    CHECK(from.allocate(64 * page_bytes).bytes().size() == 64 * page_bytes);
}

namespace {

struct test_hold final : detail::shm::arena_hold {
    bool ended = false;
    int releases = 0;
    bool over() noexcept override { return ended; }
    void released() noexcept override { ++releases; }
};

}  // namespace

TEST_CASE("memory that is held is given out again when the hold is over, and other memory at once") {
    test_hold by;
    {
        arena from(8 * page_bytes);
        CHECK_FALSE(from.hold(by, {}));
        shared_memory a = from.allocate(2 * page_bytes);
        shared_memory b = from.allocate(2 * page_bytes);
        std::byte* const first = a.bytes().data();
        std::byte* const second = b.bytes().data();
        std::byte elsewhere[1] = {};
        CHECK_FALSE(from.hold(by, elsewhere));
        CHECK(from.hold(by, a.bytes().subspan(100, 200)));
        a.reset();
        b.reset();
        CHECK(from.allocate(page_bytes).bytes().data() == second);
        CHECK_THROWS_AS(from.allocate(8 * page_bytes), error);
        CHECK(by.held());
        by.ended = true;
        CHECK(from.allocate(8 * page_bytes).bytes().data() == first);
        CHECK_FALSE(by.held());
        CHECK(by.releases == 1);
        by.ended = false;
        a = from.allocate(page_bytes);
        CHECK(from.hold(by, a.bytes()));
        a.reset();
    }
    CHECK(by.releases == 2);
}

}  // namespace test_transport_shm_arena
