#include <rdmacoro/protocol/staged_get.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/staged.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_staged_get {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::staged;

// ---- two endpoints

TEST_CASE("staged messages of every length arrive in both directions at once") {
    with_pair<list>([](pair_type& pair) -> task<> {
        for (const bool later : {false, true}) {
            pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = later;
            for (const std::size_t bytes : {0u, 1u, 3u, 63u, 64u, 65u, 1000u, 16383u, 16384u}) {
                const auto there = pattern(bytes, 1);
                const auto back = pattern(bytes, 2);
                std::vector<std::byte> at_a(bytes + 1);
                std::vector<std::byte> at_b(bytes + 1);
                co_await pair.a.send(there, 1);
                auto third = start(pair.b.recv(at_b, 1));
                co_await pair.b.send(back, 1);
                const received got = co_await pair.a.recv(at_a, 1);
                CHECK(got.bytes == bytes);
                co_await third;
                CHECK(std::equal(there.begin(), there.end(), at_b.begin()));
                CHECK(std::equal(back.begin(), back.end(), at_a.begin()));
                CHECK(at_a[bytes] == std::byte{0});
                CHECK(at_b[bytes] == std::byte{0});
            }
        }
        CHECK(pair.a.counts().staged_sent == 18);
        CHECK(pair.a.counts().messages_received == 18);
        CHECK(at_rest(pair));
        const auto longest = pattern(16385);
        auto too_long = start(as_result(pair.a.send(longest, 1)));
        const auto ended = co_await too_long;
        CHECK(ended.error() == errc::message_too_long);
    });
}

TEST_CASE("gathered and strided messages are staged and put in their places, and nothing between") {
    with_pair<list>([](pair_type& pair) -> task<> {
        for (const bool later : {false, true}) {
            pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = later;
            scattered from(61, 131, 7);
            scattered into(85, 100, 3);
            const auto data = pattern(61 * 131, 5);
            from.fill(data);
            co_await pair.a.send(from.from(), 1);
            const received got = co_await pair.b.recv(into.into(), 1);
            CHECK(got.bytes == data.size());
            CHECK(into.gathered(data.size()) == data);
            CHECK(into.gaps_untouched());
            std::vector<std::byte> matrix(64 * 64);
            const auto column = pattern(64, 3);
            co_await pair.a.send(column, 2);
            co_await pair.b.recv(strided(matrix.data() + 5, 1, 64, 64), 2);
            bool right = true;
            for (std::size_t at = 0; at < matrix.size(); ++at)
                right = right && matrix[at] == (at % 64 == 5 ? column[at / 64] : std::byte{0});
            CHECK(right);
            co_await pair.a.send(strided(std::as_const(matrix).data() + 5, 1, 64, 64), 3);
            std::vector<std::byte> flat(64);
            co_await pair.b.recv(flat, 3);
            CHECK(flat == column);
        }
        CHECK(at_rest(pair));
    });
}

TEST_CASE("where gets ask for alignment, what is odd goes by a block of the receiver's") {
    with_pair<list>([](pair_type& pair) -> task<> {
        pair.wire->offered.get_alignment = 4;
        const auto data = pattern(4096);
        std::vector<std::byte> into(4100);
        struct cut {
            std::size_t from;
            std::size_t to;
            std::size_t bytes;
            unsigned copies;  // at the receiver
        };
        for (const cut c : {cut{0, 0, 400, 0}, cut{1, 0, 400, 0}, cut{3, 4, 4092, 0}, cut{0, 1, 400, 1},
                            cut{0, 0, 401, 1}, cut{2, 3, 1, 1}, cut{0, 3, 4096, 1}}) {
            std::fill(into.begin(), into.end(), std::byte{0x55});
            const std::uint64_t before = pair.b.counts().payload_copies;
            co_await pair.a.send(std::span(data).subspan(c.from, c.bytes), 1);
            co_await pair.b.recv(std::span(into).subspan(c.to), 1);
            CHECK(pair.b.counts().payload_copies == before + c.copies);
            const auto first = into.begin() + static_cast<std::ptrdiff_t>(c.to);
            const auto end = first + static_cast<std::ptrdiff_t>(c.bytes);
            CHECK(std::equal(first, end, data.begin() + static_cast<std::ptrdiff_t>(c.from)));
            CHECK(std::all_of(into.begin(), first, [](std::byte b) { return b == std::byte{0x55}; }));
            CHECK(std::all_of(end, into.end(), [](std::byte b) { return b == std::byte{0x55}; }));
        }
        CHECK(pair.from_b().gets == 7);
        CHECK(pair.from_a().puts == 0);
        CHECK(at_rest(pair));
    });
}

TEST_CASE("a staged message too long for its receive is consumed, and its block is free again") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(1000);
        std::vector<std::byte> into(999, std::byte{0x11});
        for (const bool expected : {true, false}) {
            std::optional<receive_type> receiving;
            if (expected) receiving.emplace(pair.b.recv(into, 1));
            co_await pair.a.send(data, 1);
            if (!expected) {
                co_await pair.b.probe(1);
                receiving.emplace(pair.b.recv(into, 1));
            }
            const auto ended = co_await as_result(*receiving);
            CHECK(ended.error() == errc::truncated);
            CHECK(ended.info() == 1000);
            CHECK(into == std::vector<std::byte>(999, std::byte{0x11}));
            co_await turns(3);
        }
        co_await works(pair);
        CHECK(pair.a.counts().regions_exposed == 1);
        CHECK(at_rest(pair));
    });
}

TEST_CASE("a receive may be lent a staged message, up to the limit") {
    for (const std::size_t alignment : {1u, 64u}) {
        CAPTURE(alignment);
        virtual_time world;
        world.run([](scheduler& on, std::size_t needed) -> task<> {
            mailbox_options options;
            options.lent_bytes = 5000;
            pair_type pair(on, options);
            pair.wire->offered.get_alignment = needed;
            co_await pair.open();
            for (const std::size_t bytes : {0u, 1u, 4992u, 5000u}) {
                const auto data = pattern(bytes);
                co_await pair.a.send(data, bytes);
                const message m = co_await pair.b.recv_lent(bytes);
                CHECK(std::equal(m.bytes().begin(), m.bytes().end(), data.begin(), data.end()));
                CHECK(m.tag() == bytes);
            }
            co_await pair.a.send(pattern(5001), 1);
            const auto ended = co_await as_result(pair.b.recv_lent(1));
            CHECK(ended.error() == errc::truncated);
            CHECK(ended.info() == 5001);
            co_await works(pair);
            CHECK(at_rest(pair));
        }(world.on, alignment));
    }
}

TEST_CASE("more messages than there are blocks wait their turn, and are received in order") {
    with_pair<list>([](pair_type& pair) -> task<> {
        constexpr std::size_t count = 3 * blocks + 5;
        const auto data = pattern(count + 100);
        std::deque<send_type> sends;
        for (std::size_t n = 0; n < count; ++n)
            sends.emplace_back(pair.a.send(std::span(data).subspan(n, 1 + n % 100), 5));
        co_await turns(5);
        const auto ended = std::count_if(sends.begin(), sends.end(), [](auto& s) { return s.done(); });
        CHECK(ended == blocks);
        CHECK(pair.a.counts().room_waits > 0);
        std::vector<std::byte> into(100);
        for (std::size_t n = 0; n < count; ++n) {
            const received got = co_await pair.b.recv(into, 5);
            REQUIRE(got.bytes == 1 + n % 100);
            REQUIRE(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got.bytes),
                               data.begin() + static_cast<std::ptrdiff_t>(n)));
        }
        for (auto& s : sends) co_await s;
        CHECK(pair.a.counts().regions_exposed == blocks);
        CHECK(at_rest(pair));
    });
}

TEST_CASE("whatever of staged messages finds no room is said later, and every message still arrives") {
    with_pair<list>([](pair_type& pair) -> task<> {
        pair.from_a().room = pair.from_b().room = 1;
        pair.from_a().one_sided_room = pair.from_b().one_sided_room = 1;
        pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = true;
        const auto data = pattern(30 * 37 + 200);
        std::deque<send_type> sends;
        std::deque<scattered> into;
        std::deque<receive_type> receives;
        for (std::size_t n = 0; n < 30; ++n) {
            for (auto* from : {&pair.a, &pair.b})
                sends.emplace_back(from->send(std::span(data).subspan(n * 37, 200), n));
            for (auto* to : {&pair.a, &pair.b}) {
                into.emplace_back(n % 2 == 0 ? 20 : 1, n % 2 == 0 ? 10 : 200, 3);
                receives.emplace_back(to->recv(into.back().into(), n));
            }
        }
        for (auto& s : sends) co_await s;
        for (std::size_t n = 0; n < receives.size(); ++n) {
            co_await receives[n];
            const auto got = into[n].gathered(200);
            CHECK(std::equal(got.begin(), got.end(), data.begin() + static_cast<std::ptrdiff_t>(n / 2 * 37)));
        }
        CHECK(pair.from_a().retries > 0);
        CHECK(at_rest(pair));
    });
}

TEST_CASE("staged messages take nothing from the heap once their blocks are there") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(5001);
        std::vector<std::byte> into(5001);
        pair.wire->offered.get_alignment = 4;
        std::size_t during = 0;
        for (int n = 0; n < 220; ++n) {
            auto receiving = start(pair.b.recv(into, 1));
            const std::size_t sent_at = allocations();
            auto sending = start(pair.a.send(data, 1));
            if (n >= 200) during += allocations() - sent_at;
            co_await receiving;
            co_await sending;
        }
        // The in-memory link's own: each request's bytes, and now and then a node of its deque.
        CHECK(during <= 20 + 20 / 2);
        CHECK(pair.b.counts().payload_copies == 220);
    });
}

// ---- a list with others

TEST_CASE("staged_get admits what is not synchronous, up to its limit, where blocks can be got") {
    capabilities link;
    CHECK_FALSE(staged_get<>::admits({10, false}, link));
    link.one_sided = true;
    CHECK(staged_get<>::admits({0, false}, link));
    CHECK_FALSE(staged_get<>::admits({0, true}, link));
    CHECK(staged_get<>::longest(link) == 16384);
    CHECK(staged_get<>::admits({16384, false}, link));
    CHECK_FALSE(staged_get<>::admits({16385, false}, link));
    CHECK(staged_get<up_to<50>>::longest(link) == 50);
    CHECK(staged_get<up_to<50>>::parameter() == 50);
    link.get_alignment = 64;
    CHECK(staged_get<>::admits({10, false}, link));
    link.get_alignment = 128;
    CHECK_FALSE(staged_get<>::admits({10, false}, link));
}

TEST_CASE("between short and long a list stages, and its messages of one tag keep their order") {
    using mixed = protocols<eager<up_to<100>>, staged_get<up_to<1000>>, get_rendezvous<>>;
    with_pair<mixed>([](endpoint_pair<mixed>& pair) -> task<> {
        pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = true;
        const auto data = pattern(2000);
        std::deque<started<send_operation<endpoint<loopback, mixed>::connection_type>>> sends;
        for (const std::size_t bytes : {50u, 500u, 1500u, 100u, 101u, 1001u, 1000u})
            sends.emplace_back(pair.a.send(std::span(data).first(bytes), 1));
        for (const std::size_t bytes : {50u, 500u, 1500u, 100u, 101u, 1001u, 1000u}) {
            std::vector<std::byte> into(2000);
            const received got = co_await pair.b.recv(into, 1);
            CHECK(got.bytes == bytes);
            into.resize(bytes);
            CHECK(std::equal(into.begin(), into.end(), data.begin()));
        }
        for (auto& s : sends) co_await s;
        CHECK(pair.a.counts().eager_sent == 2);
        CHECK(pair.a.counts().staged_sent == 3);
        CHECK(pair.a.counts().get_sent == 2);
        auto synchronous = start(pair.a.ssend(std::span(data).first(500), 1));
        std::vector<std::byte> into(500);
        co_await pair.b.recv(into, 1);
        co_await synchronous;
        CHECK(pair.a.counts().get_sent == 3);
    });
}

}  // namespace test_protocol_staged_get
