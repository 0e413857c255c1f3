#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>

#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/rendezvous_lists.hpp"

#include <algorithm>
#include <deque>
#include <optional>

namespace test_protocol_detail_rendezvous_engine {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::rendezvous;

TEMPLATE_TEST_CASE("messages of every length arrive in both directions at once", "", get_list, put_list) {
    with_pair<TestType>([](endpoint_pair<TestType>& pair) -> task<> {
        for (const bool later : {false, true}) {
            pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = later;
            for (const std::size_t bytes : {0u, 1u, 3u, 64u, 1000u, 70'001u}) {
                const auto there = pattern(bytes, 1);
                const auto back = pattern(bytes, 2);
                std::vector<std::byte> at_a(bytes + 1);
                std::vector<std::byte> at_b(bytes + 1);
                auto first = start(pair.a.send(there, 1));
                auto second = start(pair.b.ssend(back, 1));
                auto third = start(pair.b.recv(at_b, 1));
                const received got = co_await pair.a.recv(at_a, 1);
                CHECK(got.bytes == bytes);
                co_await third;
                co_await first;
                co_await second;
                CHECK(std::equal(there.begin(), there.end(), at_b.begin()));
                CHECK(std::equal(back.begin(), back.end(), at_a.begin()));
                CHECK(at_a[bytes] == std::byte{0});
                CHECK(at_b[bytes] == std::byte{0});
            }
        }
        CHECK(pair.a.counts().messages_received == 12);
        CHECK(pair.at_rest());
    });
}

TEMPLATE_TEST_CASE("more sends than there are streams are received in the order in which they began", "",
                   get_list, put_list) {
    with_pair<TestType>([](endpoint_pair<TestType>& pair) -> task<> {
        constexpr std::size_t count = 2 * detail::most_streams + 5;
        const auto data = pattern(count + 100);
        std::deque<send_of<TestType>> sends;
        for (std::size_t n = 0; n < count; ++n)
            sends.emplace_back(pair.a.send(std::span(data).subspan(n, 1 + n % 100), 5));
        CHECK(pair.a.counts().room_waits > 0);
        std::vector<std::byte> into(100);
        for (std::size_t n = 0; n < count; ++n) {
            const received got = co_await pair.b.recv(into, 5);
            REQUIRE(got.bytes == 1 + n % 100);
            REQUIRE(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got.bytes),
                               data.begin() + static_cast<std::ptrdiff_t>(n)));
        }
        for (auto& s : sends) co_await s;
        CHECK(pair.at_rest());
    });
}

TEMPLATE_TEST_CASE(
    "a scattered message goes in as many rounds as it takes, and touches nothing between its pieces", "",
    get_list, put_list) {
    with_pair<TestType>([](endpoint_pair<TestType>& pair) -> task<> {
        for (const bool later : {false, true}) {
            pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = later;
            scattered from(61, 131, 7);
            scattered into(85, 100, 3);
            const auto data = pattern(61 * 131, 5);
            from.fill(data);
            auto sending = start(pair.a.send(from.from(), 1));
            const received got = co_await pair.b.recv(into.into(), 1);
            co_await sending;
            CHECK(got.bytes == data.size());
            CHECK(into.gathered(data.size()) == data);
            CHECK(into.gaps_untouched());
            CHECK(from.gaps_untouched());
            // Blocks at equal distances.
            std::vector<std::byte> matrix(64 * 64);
            const auto column = pattern(64, 3);
            auto again = start(pair.a.send(column, 2));
            co_await pair.b.recv(strided(matrix.data() + 5, 1, 64, 64), 2);
            co_await again;
            bool right = true;
            for (std::size_t row = 0; row < 64; ++row) {
                for (std::size_t at = 0; at < 64; ++at)
                    right = right && matrix[row * 64 + at] == (at == 5 ? column[row] : std::byte{0});
            }
            CHECK(right);
            auto third = start(pair.a.send(strided(std::as_const(matrix).data() + 5, 1, 64, 64), 3));
            std::vector<std::byte> flat(64);
            co_await pair.b.recv(flat, 3);
            co_await third;
            CHECK(flat == column);
        }
        CHECK(pair.at_rest());
    });
}

TEMPLATE_TEST_CASE("a message too long for its receive is consumed, and its send ends well", "", get_list,
                   put_list) {
    with_pair<TestType>([](endpoint_pair<TestType>& pair) -> task<> {
        const auto data = pattern(1000);
        std::vector<std::byte> into(999, std::byte{0x11});
        for (const bool expected : {true, false}) {
            std::optional<receive_of<TestType>> receiving;
            if (expected) receiving.emplace(pair.b.recv(into, 1));
            auto sending = start(pair.a.ssend(data, 1));
            if (!expected) {
                co_await pair.b.probe(1);
                receiving.emplace(pair.b.recv(into, 1));
            }
            const auto ended = co_await as_result(*receiving);
            CHECK(ended.error() == errc::truncated);
            CHECK(ended.info() == 1000);
            co_await sending;
            CHECK(into == filled(999, 0x11));
        }
        co_await works(pair);
        CHECK(pair.at_rest());
    });
}

TEMPLATE_TEST_CASE("a receive may be lent the message, up to the limit", "", get_list, put_list) {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        mailbox_options options;
        options.lent_bytes = 5000;
        endpoint_pair<TestType> pair(on, options);
        co_await pair.open();
        for (const std::size_t bytes : {0u, 1u, 5000u}) {
            const auto data = pattern(bytes);
            auto sending = start(pair.a.send(data, bytes));
            {
                const message m = co_await pair.b.recv_lent(bytes);
                CHECK(std::equal(m.bytes().begin(), m.bytes().end(), data.begin(), data.end()));
                CHECK(m.tag() == bytes);
                co_await sending;
            }
        }
        const auto data = pattern(5001);
        auto sending = start(pair.a.send(data, 1));
        const auto ended = co_await as_result(pair.b.recv_lent(1));
        CHECK(ended.error() == errc::truncated);
        CHECK(ended.info() == 5001);
        co_await sending;
        co_await works(pair);
        CHECK(pair.at_rest());
    }(world.on));
}

TEMPLATE_TEST_CASE("unmatched messages are probed, and matched in order later", "", get_list, put_list) {
    with_pair<TestType>([](endpoint_pair<TestType>& pair) -> task<> {
        const auto one = pattern(100, 1);
        const auto two = pattern(200, 2);
        const auto three = pattern(300, 3);
        auto first = start(pair.a.send(one, 7));
        auto second = start(pair.a.send(two, 7));
        auto third = start(pair.a.send(three, 8));
        const received seen = co_await pair.b.probe(7);
        CHECK(seen.bytes == 100);
        const received other = co_await pair.b.probe(8);
        CHECK(other.bytes == 300);
        CHECK_FALSE(first.done());
        std::vector<std::byte> into(300);
        received got = co_await pair.b.recv(into, 8);
        CHECK(std::equal(three.begin(), three.end(), into.begin()));
        got = co_await pair.b.recv(into);
        CHECK(got.bytes == 100);
        CHECK(std::equal(one.begin(), one.end(), into.begin()));
        got = co_await pair.b.recv(into, 7);
        CHECK(got.bytes == 200);
        CHECK(std::equal(two.begin(), two.end(), into.begin()));
        co_await first;
        co_await second;
        co_await third;
        CHECK(pair.b.counts().unexpected == 3);
        CHECK(pair.at_rest());
    });
}

TEMPLATE_TEST_CASE("long and short messages of one tag keep their order", "", get_rendezvous<>,
                   put_rendezvous<>) {
    using list = protocols<eager<up_to<100>>, TestType>;
    with_pair<list>([](endpoint_pair<list>& pair) -> task<> {
        pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = true;
        const auto data = pattern(1000);
        std::deque<send_of<list>> sends;
        for (unsigned n = 0; n < 20; ++n)
            sends.emplace_back(pair.a.send(std::span(data).first(n % 2 == 0 ? 500 + n : n), 1));
        std::deque<std::vector<std::byte>> into;
        std::deque<receive_of<list>> receives;
        for (unsigned n = 0; n < 20; ++n) {
            into.emplace_back(1000);
            receives.emplace_back(pair.b.recv(into.back(), 1));
        }
        for (unsigned n = 0; n < 20; ++n) {
            const received got = co_await receives[n];
            CHECK(got.bytes == (n % 2 == 0 ? 500 + n : n));
            CHECK(std::equal(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(got.bytes),
                             into[n].begin()));
        }
        for (auto& s : sends) co_await s;
        CHECK(pair.at_rest());
    });
}

TEMPLATE_TEST_CASE("a rendezvous takes nothing from the heap once its streams are there", "", get_list,
                   put_list) {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    with_pair<TestType>([](endpoint_pair<TestType>& pair) -> task<> {
        const auto data = pattern(5000);
        std::vector<std::byte> into(5000);
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
    });
}

// ---- no room, no memory

TEMPLATE_TEST_CASE("whatever finds no room is said later, and every message still arrives", "", get_list,
                   put_list) {
    with_pair<TestType>([](endpoint_pair<TestType>& pair) -> task<> {
        pair.from_a().room = pair.from_b().room = 1;
        pair.from_a().one_sided_room = pair.from_b().one_sided_room = 1;
        pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = true;
        const auto data = pattern(30 * 37 + 200);
        std::deque<send_of<TestType>> sends;
        std::deque<scattered> into;
        std::deque<receive_of<TestType>> receives;
        for (std::size_t n = 0; n < 30; ++n) {
            sends.emplace_back(pair.a.send(std::span(data).subspan(n * 37, 200), n));
            sends.emplace_back(pair.b.send(std::span(data).subspan(n * 37, 200), n));
            for (auto* to : {&pair.a, &pair.b}) {
                into.emplace_back(20, 10, 3);
                receives.emplace_back(to->recv(into.back().into(), n));
            }
        }
        for (auto& r : receives) co_await r;
        for (auto& s : sends) co_await s;
        for (std::size_t n = 0; n < 60; ++n) {
            const auto part = std::span(data).subspan(n / 2 * 37, 200);
            const auto got = into[n].gathered(200);
            CHECK(std::equal(part.begin(), part.end(), got.begin()));
        }
        CHECK(pair.from_a().retries > 10);
        CHECK(pair.from_b().retries > 10);
        CHECK(pair.at_rest());
    });
}

TEST_CASE(
    "a receive whose memory cannot be exposed ends with no_resources, in the first round or a later one") {
    with_pair<put_list>([](endpoint_pair<put_list>& pair) -> task<> {
        const auto data = pattern(400);
        for (const std::size_t exposures : {0u, 16u, 20u, 32u}) {
            scattered into(40, 10, 2);
            pair.from_b().exposures = exposures;
            auto sending = start(pair.a.send(data, 1));
            const auto ended = co_await as_result(pair.b.recv(into.into(), 1));
            CHECK(ended.error() == errc::no_resources);
            co_await sending;
            CHECK(into.gaps_untouched());
            pair.from_b().exposures = loopback_lane::unlimited;
            co_await works(pair);
            CHECK(pair.at_rest());
        }
        scattered into(40, 10, 2);
        pair.from_b().exposures = 40;
        auto sending = start(pair.a.send(data, 1));
        co_await pair.b.recv(into.into(), 1);
        co_await sending;
        CHECK(into.gathered(400) == data);
    });
}

}  // namespace test_protocol_detail_rendezvous_engine
