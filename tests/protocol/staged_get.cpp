#include <rdmacoro/protocol/staged_get.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/rendezvous.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using list = protocols<staged_get<>>;
using peer_type = basic_scripted_peer<list>;
using pair_type = endpoint_pair<list>;
using send_type = started<send_operation<endpoint<loopback, list>::connection_type>>;
using receive_type = started<receive_operation<endpoint<loopback, list>::connection_type>>;

constexpr std::uint32_t blocks = detail::most_staged;

/// The policy's kinds when it is the first of its list.
constexpr std::uint8_t request = 8;
constexpr std::uint8_t received_kind = 9;
constexpr std::uint8_t leaving = 10;

std::vector<std::byte> raw(std::initializer_list<int> bytes) {
    std::vector<std::byte> made;
    for (const int b : bytes) made.push_back(static_cast<std::byte>(b));
    return made;
}
/// A header without its credits, which depend on what came before.
std::vector<std::byte> bytes_of(const heard_message& m) {
    detail::wire_header h = m.header;
    h.credits = 0;
    const auto header = h.store();
    return {header.begin(), header.end()};
}
std::vector<std::byte> body(std::uint32_t block, std::uint32_t bytes, const remote_region& where) {
    const auto stored = detail::staged_request_body{block, bytes, where.address, where.key}.store();
    return {stored.begin(), stored.end()};
}
/// The block that a request names, as far as it may be got.
remote_region block_of(const heard_message& m) {
    return {detail::load_number<std::uint64_t>(m.payload.data() + 8),
            detail::staged_bytes(detail::load_number<std::uint32_t>(m.payload.data() + 4)),
            detail::load_number<std::uint64_t>(m.payload.data() + 16)};
}

/// What a peer sends from: aligned, and open.
struct peer_block {
    explicit peer_block(peer_type& peer, std::size_t bytes = 16_KiB)
        : pool(bytes, 1, 1), memory(pool.take(), bytes) {
        const auto data = pattern(bytes);
        std::copy(data.begin(), data.end(), memory.begin());
        open = peer.link().expose(memory, access_rights::remote_read);
    }
    [[nodiscard]] bool holds(std::span<const std::byte> other) const {
        return std::equal(other.begin(), other.end(), memory.begin());
    }
    void ask(peer_type& peer, std::uint32_t block, std::uint32_t bytes, tag_type tag) const {
        peer.say_raw(request, tag, body(block, bytes, open.remote()));
    }

    slab_pool pool;
    std::span<std::byte> memory;
    region open;
};

/// Whether neither end keeps anything of a message, but for the blocks that stay.
bool at_rest(pair_type& pair) {
    for (auto* end : {&pair.a, &pair.b}) {
        auto& box = end->connection().box();
        if (box.store().live() != 0 || box.matching().unexpected() != 0) return false;
    }
    return true;
}

task<> works(pair_type& pair) {
    const auto data = pattern(2000, 9);
    std::vector<std::byte> into(2000);
    auto receiving = start(pair.b.recv(into, 77));
    co_await pair.a.send(data, 77);
    co_await receiving;
    CHECK(into == data);
}

}  // namespace

// ---- what is on the wire

TEST_CASE("a staged message is one frame of 36 bytes, and its send has ended when that is said") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        auto data = pattern(5000);
        const auto kept = data;
        co_await peer.self().send(data, 0x1122334455667788);
        std::fill(data.begin(), data.end(), std::byte{0});  // the caller's again
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x08, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}));
        REQUIRE(said.payload.size() == 24);
        CHECK(std::vector(said.payload.begin(), said.payload.begin() + 8) ==
              raw({0, 0, 0, 0, 0x88, 0x13, 0, 0}));
        const remote_region block = block_of(said);
        CHECK(block.address % 64 == 0);
        CHECK(block.length == 5056);
        std::vector<std::byte> got(5056);
        completion none;
        CHECK(peer.link().get(block, got, none) == post_result::done);
        got.resize(5000);
        CHECK(got == kept);
        // The next message has the next block, and the first is used again when it is free.
        co_await peer.self().send(std::span(kept).first(10), 1);
        const heard_message second = co_await peer.hear();
        CHECK(std::vector(second.payload.begin(), second.payload.begin() + 8) ==
              raw({1, 0, 0, 0, 10, 0, 0, 0}));
        peer.say_raw(received_kind, 0, {});
        co_await turns(3);
        co_await peer.self().send(std::span(kept).first(1), 2);
        const heard_message third = co_await peer.hear();
        CHECK(third.payload == body(0, 1, block));
        const metrics& counts = peer.self().counts();
        CHECK(counts.staged_sent == 3);
        CHECK(counts.messages_sent == 3);
        CHECK(counts.bytes_sent == 5011);
        CHECK(counts.payload_copies == 3);
        CHECK(counts.bytes_copied == 5011);
        CHECK(counts.regions_exposed == 2);
    });
}

TEST_CASE("a receiver gets straight to the destination, says received, and nothing else") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const peer_block from(peer);
        std::vector<std::byte> into(4000);
        auto receiving = start(peer.self().recv(into, 7));
        from.ask(peer, 5, 3001, 7);
        const received got = co_await receiving;
        CHECK(got.bytes == 3001);
        CHECK(got.tag == 7);
        CHECK(from.holds(std::span(into).first(3001)));
        CHECK(into[3001] == std::byte{0});
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x09, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        CHECK(peer.self().counts().payload_copies == 0);
        CHECK(peer.self().counts().bytes_received == 3001);
        co_await turns(3);
        CHECK(peer.heard().empty());
    });
}

TEST_CASE("what nobody wants stays at the sender, and costs no more than an empty message") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const peer_block from(peer);
        const std::uint64_t gets = peer.to_peer().gets;
        for (std::uint32_t n = 0; n < blocks; ++n) from.ask(peer, n, 16384, n);
        co_await peer.self().probe(blocks - 1);
        CHECK(peer.to_peer().gets == gets);
        auto& box = peer.self().connection().box();
        CHECK(box.store().live() == blocks);
        CHECK(box.store().footprint() <= 64 * 1024);
        const received seen = co_await peer.self().probe(3);
        CHECK(seen.bytes == 16384);
        CHECK(peer.heard().empty());
        std::vector<std::byte> into(16384);
        co_await peer.self().recv(into, 3);
        CHECK(from.holds(into));
        const heard_message said = co_await peer.hear();
        CHECK(said.header.kind == received_kind);
        CHECK(said.header.tag == 3);
        CHECK(said.header.credits == detail::message_cost(0));
    });
}

TEST_CASE("a staged request is paid for, and waits when the peer gives no credit back") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        peer_type peer(on);
        co_await peer.open();  // the least budget there is
        constexpr unsigned paid = detail::least_budget / detail::message_cost(0);
        const auto data = pattern(16384);
        for (unsigned n = 0; n < paid; ++n) {
            co_await peer.self().send(data, n);
            co_await peer.hear();
            peer.say_raw(received_kind, 0, {});
            co_await turns(2);
        }
        CHECK(peer.self().counts().credit_waits == 0);
        auto next = start(peer.self().send(data, 1));
        co_await turns(5);
        CHECK(peer.heard().empty());
        CHECK_FALSE(next.done());
        peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(detail::message_cost(0)));
        co_await next;
        CHECK(peer.self().counts().credit_waits == 1);
        CHECK(peer.self().counts().regions_exposed == 1);
    }(world.on));
}

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
        auto too_long = start(as_result(pair.a.send(pattern(16385), 1)));
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

TEST_CASE("as many blocks as can be opened are enough; none at all are not") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(100);
        pair.from_a().exposures = 0;
        const auto ended = co_await as_result(pair.a.send(data, 1));
        CHECK(ended.error() == errc::no_resources);
        pair.from_a().exposures = 2;
        std::deque<send_type> sends;
        for (std::size_t n = 0; n < 10; ++n) sends.emplace_back(pair.a.send(std::span(data).first(n), 1));
        co_await turns(3);
        CHECK(sends[1].done());
        CHECK_FALSE(sends[2].done());
        std::vector<std::byte> into(100);
        for (std::size_t n = 0; n < 10; ++n) {
            const received got = co_await pair.b.recv(into, 1);
            CHECK(got.bytes == n);
        }
        for (auto& s : sends) co_await s;
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
    if (!counts_allocations) return;
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

// ---- closing

TEST_CASE("frames of a side that closes: leaving, and goodbye behind the last received") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(100);
        co_await peer.self().send(data, 1);
        co_await peer.self().send(data, 2);
        co_await peer.hear();
        co_await peer.hear();
        peer.say_raw(received_kind, 0, {});
        co_await turns(3);
        auto closing = start(peer.self().close());
        heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        co_await turns(5);
        CHECK(peer.heard().empty());
        peer.say_raw(received_kind, 1, {});
        said = co_await peer.hear();
        CHECK(said.header.kind == static_cast<std::uint8_t>(wire_kind::goodbye));
        CHECK_FALSE(closing.done());
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
    });
}

TEST_CASE("a side that closes with nothing in its blocks says goodbye at once") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        co_await peer.self().send(pattern(100), 1);
        co_await peer.hear();
        peer.say_raw(received_kind, 0, {});
        co_await turns(3);
        auto closing = start(peer.self().close());
        const heard_message said = co_await peer.hear();
        CHECK(said.header.kind == static_cast<std::uint8_t>(wire_kind::goodbye));
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
    });
}

TEST_CASE("what nobody wants yet when its sender closes is got then, and received later in order") {
    for (const bool later : {false, true}) {
        CAPTURE(later);
        virtual_time world;
        world.run([](scheduler& on, bool deferred) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            pair.from_b().defers_one_sided = deferred;
            pair.wire->offered.get_alignment = 4;
            const auto data = pattern(1001);
            // More than there are blocks: those behind follow while it closes.
            constexpr std::size_t count = blocks + 20;
            std::deque<send_type> sends;
            for (std::size_t n = 0; n < count; ++n)
                sends.emplace_back(pair.a.send(std::span(data).subspan(n, n % 3 == 0 ? 0 : 900), n % 2));
            while (pair.b.counts().unexpected < blocks) co_await yield();
            co_await turns(20);
            CHECK(pair.b.counts().unexpected == blocks);
            CHECK(pair.from_b().gets == 0);
            co_await pair.a.close();
            CHECK(pair.b.counts().unexpected == count);
            for (auto& s : sends) co_await s;
            const received seen = co_await pair.b.probe(1);
            CHECK(seen.bytes == 900);
            std::vector<std::byte> into(1000);
            for (std::size_t n = 1; n < count; n += 2) {
                const received got = co_await pair.b.recv(into, 1);
                REQUIRE(got.bytes == (n % 3 == 0 ? 0 : 900));
                REQUIRE(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got.bytes),
                                   data.begin() + static_cast<std::ptrdiff_t>(n)));
            }
            for (std::size_t n = 0; n < count; n += 2) {
                if (n == 4) {
                    const message m = co_await pair.b.recv_lent();
                    REQUIRE(m.bytes().size() == 900);
                    REQUIRE(std::equal(m.bytes().begin(), m.bytes().end(), data.begin() + 4));
                    continue;
                }
                const received got = co_await pair.b.recv(into);
                REQUIRE(got.bytes == (n % 3 == 0 ? 0 : 900));
            }
            const auto none = co_await as_result(pair.b.recv(into));
            CHECK(none.error() == errc::closed);
            CHECK(at_rest(pair));
        }(world.on, later));
    }
}

TEST_CASE("what comes behind leaving is paid for like a message that is kept whole") {
    const auto cost = detail::message_cost(16384);
    virtual_time world;
    world.run([](scheduler& on, std::uint32_t each) -> task<> {
        peer_type peer(on);
        co_await peer.open();  // the least budget there is
        const auto data = pattern(16384);
        std::deque<send_type> sends;
        const std::uint32_t more = (detail::least_budget - blocks * detail::message_cost(0)) / each;
        for (std::uint32_t n = 0; n < blocks + more + 1; ++n) sends.emplace_back(peer.self().send(data, n));
        auto closing = start(peer.self().close());
        std::uint32_t asked = 0;
        for (int n = 0; n < 2000; ++n) {
            co_await yield();
            while (!peer.heard().empty()) {
                const heard_message said = co_await peer.hear();
                if (said.header.kind != request) continue;
                ++asked;
                const auto block = detail::load_number<std::uint32_t>(said.payload.data());
                peer.say_raw(received_kind, block, {});
            }
        }
        CHECK(asked == blocks + more);
        CHECK_FALSE(sends.back().done());
        peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(each));
        co_await sends.back();
        const heard_message last = co_await peer.hear();
        CHECK(last.header.kind == request);
        CHECK_FALSE(closing.done());
        peer.self().abort();
        co_await closing;
        for (auto& s : sends) co_await s;
    }(world.on, cost));
}

TEST_CASE("a peer that leaves cannot have more kept than it was granted") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        mailbox_options options;
        options.unexpected_bytes = 256_KiB;
        peer_type peer(on, options);
        co_await peer.open();
        const peer_block from(peer);
        peer.say_raw(leaving, 0, {});
        const std::uint32_t most = detail::least_budget / detail::message_cost(16384);
        for (std::uint32_t n = 0; n < most; ++n) {
            from.ask(peer, 0, 16384, 1);
            const heard_message said = co_await peer.hear();
            REQUIRE(said.header.kind == received_kind);
        }
        auto& box = peer.self().connection().box();
        CHECK(box.matching().unexpected() == most);
        CHECK(peer.self().is_open());
        from.ask(peer, 0, 16384, 1);
        while (peer.self().is_open()) co_await yield();
        const auto later = co_await as_result(peer.self().send({}, 1));
        CHECK(later.error() == errc::protocol_violation);
        // What was kept whole is there all the same.
        std::vector<std::byte> into(16384);
        for (std::uint32_t n = 0; n < most; ++n) {
            co_await peer.self().recv(into, 1);
            CHECK(from.holds(into));
        }
    }(world.on));
}

TEST_CASE("both sides may close with messages that nobody wants") {
    with_pair<list>([](pair_type& pair) -> task<> {
        co_await pair.a.send(pattern(1000), 1);
        co_await pair.b.send(pattern(1000), 1);
        pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = true;
        pair.from_a().room = pair.from_b().room = 1;
        auto first = start(pair.a.close());
        auto second = start(pair.b.close());
        co_await first;
        co_await second;
    });
}

TEST_CASE("receives that come while a leaving sender's message is being got are served all the same") {
    enum class what { whole, short_, canceled, none };
    for (const what w : {what::whole, what::short_, what::canceled, what::none}) {
        CAPTURE(static_cast<int>(w));
        virtual_time world;
        world.run([](scheduler& on, int then) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            pair.from_b().defers_one_sided = true;
            pair.from_b().one_sided_steps = 0;
            const auto data = pattern(1000);
            co_await pair.a.send(data, 1);
            co_await pair.b.probe(1);
            auto closing = start(pair.a.close());
            co_await turns(5);
            CHECK(pair.from_b().gets == 1);
            std::vector<std::byte> into(then == static_cast<int>(what::short_) ? 999 : 1000);
            local_stop_source stop;
            if (then == static_cast<int>(what::none)) {
                pair.from_b().one_sided_steps = loopback_lane::unlimited;
                co_await closing;
                co_await pair.b.recv(into, 1);
                CHECK(into == data);
                co_return;
            }
            auto receiving = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
            co_await turns(2);
            if (then == static_cast<int>(what::canceled)) {
                stop.request_stop();
                co_await turns(1);
                CHECK(receiving.done());
            }
            CHECK_FALSE(closing.done());
            pair.from_b().one_sided_steps = loopback_lane::unlimited;
            co_await closing;
            const auto ended = co_await receiving;
            if (then == static_cast<int>(what::whole)) {
                CHECK(ended);
                CHECK(into == data);
            } else {
                CHECK(ended.error() ==
                      (then == static_cast<int>(what::short_) ? errc::truncated : errc::canceled));
                CHECK(into == std::vector<std::byte>(into.size()));
            }
            CHECK(at_rest(pair));
        }(world.on, static_cast<int>(w)));
    }
}

// ---- giving up

TEST_CASE("a send that waits for a block can be canceled, and those behind it go on") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(100);
        for (std::uint32_t n = 0; n < blocks; ++n) co_await pair.a.send(data, n);
        local_stop_source stop;
        auto waiting = start(as_result(with_stop(pair.a.send(data, 1000), stop.get_token())));
        auto behind = start(pair.a.send(data, 1001));
        co_await turns(3);
        stop.request_stop();
        const auto ended = co_await waiting;
        CHECK(ended.error() == errc::canceled);
        CHECK_FALSE(behind.done());
        std::vector<std::byte> into(100);
        for (std::uint32_t n = 0; n < blocks; ++n) co_await pair.b.recv(into, n);
        co_await behind;
        const received got = co_await pair.b.recv(into);
        CHECK(got.tag == 1001);
        CHECK(at_rest(pair));
    });
}

TEST_CASE("a receive may be canceled at any moment, and its memory is free when it has ended") {
    unsigned canceled = 0;
    for (int turn = 0; turn < 6; ++turn) {
        for (unsigned bits = 0; bits < 64; ++bits) {
            CAPTURE(turn, bits);
            virtual_time world;
            world.run([](scheduler& on, int when, unsigned ways, unsigned& ended_so) -> task<> {
                pair_type pair(on);
                co_await pair.open();
                const bool gathered = (ways & 1) != 0;
                const bool at_once = (ways & 2) != 0;
                const bool lent = (ways & 4) != 0;
                pair.wire->offered.revokes_at_once = at_once;
                pair.from_b().defers_one_sided = true;
                pair.from_b().one_sided_steps = (ways & 8) != 0 ? 0 : 1;
                pair.from_b().one_sided_room = (ways & 16) != 0 ? 0 : loopback_lane::unlimited;
                pair.from_b().room = (ways & 32) != 0 ? 0 : loopback_lane::unlimited;
                auto into = std::make_unique<scattered>(gathered ? 20 : 1, gathered ? 20 : 400, 4);
                local_stop_source stop;
                std::optional<decltype(start(as_result(with_stop(pair.b.recv({}, 1), stop.get_token()))))>
                    receiving;
                std::optional<decltype(start(as_result(with_stop(pair.b.recv_lent(1), stop.get_token()))))>
                    lending;
                if (lent)
                    lending.emplace(as_result(with_stop(pair.b.recv_lent(1), stop.get_token())));
                else
                    receiving.emplace(as_result(with_stop(pair.b.recv(into->into(), 1), stop.get_token())));
                co_await turns(1);
                co_await pair.a.send(pattern(400), 1);
                co_await turns(when);
                stop.request_stop();
                co_await turns(2);
                if (!lent && receiving->done()) {
                    const auto ended = co_await *receiving;
                    CHECK(into->gaps_untouched());
                    if (!ended) {
                        CHECK(ended.error() == errc::canceled);
                        ++ended_so;
                    } else {
                        CHECK(into->gathered(400) == pattern(400));
                    }
                    receiving.reset();
                    into.reset();  // an address sanitizer sees who still touches it
                }
                co_await turns(2);
                pair.from_b().room = pair.from_b().one_sided_room = pair.from_b().one_sided_steps =
                    loopback_lane::unlimited;
                if (receiving) {
                    CHECK_FALSE(at_once);
                    CHECK_FALSE(gathered);
                    const auto ended = co_await *receiving;
                    CHECK(ended.error() == errc::canceled);
                    ++ended_so;
                }
                if (lending) {
                    const auto ended = co_await *lending;
                    if (!ended) CHECK(ended.error() == errc::canceled);
                }
                lending.reset();
                co_await turns(5);
                if (pair.b.connection().box().matching().unexpected() != 0) {
                    std::vector<std::byte> left(400);  // canceled before the message came
                    co_await pair.b.recv(left, 1);
                }
                for (int n = 0; n < 4; ++n) co_await works(pair);
                CHECK(pair.a.counts().regions_exposed <= 2);
                CHECK(at_rest(pair));
            }(world.on, turn, bits, canceled));
        }
    }
    CHECK(canceled > 50);
}

TEST_CASE("a get to the receiver's own block goes on when its receive has been canceled") {
    for (const bool at_once : {false, true}) {
        virtual_time world;
        world.run([](scheduler& on, bool revokes) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            pair.wire->offered.revokes_at_once = revokes;
            pair.from_b().defers_one_sided = true;
            pair.from_b().one_sided_steps = 0;
            scattered into(20, 20, 4);
            local_stop_source stop;
            auto receiving = start(as_result(with_stop(pair.b.recv(into.into(), 1), stop.get_token())));
            co_await pair.a.send(pattern(400), 1);
            co_await turns(5);
            stop.request_stop();
            const auto ended = co_await receiving;
            CHECK(ended.error() == errc::canceled);
            auto closing = start(pair.a.close());
            co_await turns(5);
            CHECK_FALSE(closing.done());  // its block is still being read
            pair.from_b().one_sided_steps = loopback_lane::unlimited;
            co_await closing;
            CHECK(into.gathered(400) == std::vector<std::byte>(400, std::byte{0xee}));
        }(world.on, at_once));
    }
}

// ---- the end of the link

TEST_CASE("the end of the link ends every receive and frees every block, whatever they were doing") {
    for (unsigned bits = 0; bits < 32; ++bits) {
        CAPTURE(bits);
        virtual_time world;
        world.run([](scheduler& on, unsigned ways) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            pair.wire->offered.revokes_at_once = (ways & 1) != 0;
            pair.from_b().defers_one_sided = true;
            pair.from_b().one_sided_steps = 0;
            pair.from_b().one_sided_room = (ways & 8) != 0 ? 0 : loopback_lane::unlimited;
            scattered one(1, 400, 4);
            scattered several(20, 20, 4);
            local_stop_source stop;
            auto first = start(as_result(with_stop(pair.b.recv(one.into(), 1), stop.get_token())));
            auto second = start(as_result(pair.b.recv(several.into(), 2)));
            auto third = start(as_result(pair.b.recv_lent(3)));
            for (tag_type tag = 1; tag < 5; ++tag) co_await pair.a.send(pattern(400), tag);
            co_await turns(4);
            if ((ways & 2) != 0) stop.request_stop();
            auto closing = start(pair.b.probe(4));
            co_await closing;
            if ((ways & 16) != 0) {
                auto leaving_now = start(pair.a.close());
                co_await turns(4);
                pair.b.abort();
                co_await leaving_now;
            }
            ((ways & 4) != 0 ? pair.a : pair.b).abort();
            const auto ended = co_await first;
            CHECK_FALSE(ended);
            const auto other = co_await second;
            CHECK_FALSE(other);
            const auto lent = co_await third;
            CHECK_FALSE(lent);
            CHECK(one.gathered(400) == std::vector<std::byte>(400, std::byte{0xee}));
            while (pair.a.is_open() || pair.b.is_open()) co_await yield();
            CHECK(pair.at_rest());
            CHECK(pair.domain.regions().registered() == 0);
        }(world.on, bits));
    }
}

TEST_CASE("the blocks' regions go with the link") {
    with_pair<list>([](pair_type& pair) -> task<> {
        co_await works(pair);
        co_await turns(2);
        CHECK(pair.domain.regions().registered() == 1);
        co_await pair.a.close();
        while (pair.b.is_open()) co_await yield();
        CHECK(pair.at_rest());
    });
}

TEST_CASE("a source that was refused ends the link after its time, and its receive may be canceled before") {
    for (const bool canceled : {false, true}) {
        CAPTURE(canceled);
        virtual_time world;
        world.run([](virtual_time& w, bool cancels) -> task<> {
            peer_type peer(w.on);
            co_await peer.open(1u << 20);
            std::byte into[100];
            local_stop_source stop;
            auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
            peer.say_raw(request, 1, body(0, 100, {0x1000, 100, 0x1234567890}));
            const duration before = w.now();
            co_await turns(5);
            CHECK_FALSE(receiving.done());
            if (cancels) {
                stop.request_stop();
                const auto ended = co_await receiving;
                CHECK(ended.error() == errc::canceled);
                while (peer.self().is_open()) co_await sleep_for(std::chrono::milliseconds(100));
            } else {
                const auto ended = co_await receiving;
                CHECK(ended.error() == errc::protocol_violation);
            }
            CHECK(w.now() - before >= detail::refusal_timer<int>::grace);
            CHECK(peer.heard().empty());
        }(world, canceled));
    }
}

TEST_CASE("what a block's region does not hold is refused as well") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const peer_block from(peer, 1024);
        std::vector<std::byte> into(2000);
        auto receiving = start(as_result(peer.self().recv(into, 1)));
        from.ask(peer, 0, 1025, 1);
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::protocol_violation);
        CHECK(into == std::vector<std::byte>(2000));
    });
}

// ---- a hostile peer

namespace {
struct forbidden {
    const char* what;
    void (*say)(peer_type&);
};
constexpr remote_region somewhere{0x1000, 64, 0x1234567890};
}  // namespace

TEST_CASE("what makes no sense of staged messages ends the link with protocol_violation") {
    const forbidden all[] = {
        {"an empty request", [](peer_type& p) { p.say_raw(request, 1, {}); }},
        {"a request that is too short",
         [](peer_type& p) {
             auto b = body(0, 10, somewhere);
             b.pop_back();
             p.say_raw(request, 1, b);
         }},
        {"a request that is too long",
         [](peer_type& p) {
             auto b = body(0, 10, somewhere);
             b.push_back({});
             p.say_raw(request, 1, b);
         }},
        {"a request with a flag", [](peer_type& p) { p.say_raw(request, 1, body(0, 10, somewhere), 0, 1); }},
        {"a block that can't be", [](peer_type& p) { p.say_raw(request, 1, body(blocks, 10, somewhere)); }},
        {"a message above the limit", [](peer_type& p) { p.say_raw(request, 1, body(0, 16385, somewhere)); }},
        {"the longest length", [](peer_type& p) { p.say_raw(request, 1, body(0, 0xffffffff, somewhere)); }},
        {"a block that is not aligned",
         [](peer_type& p) { p.say_raw(request, 1, body(0, 10, {0x1020, 64, 7})); }},
        {"a block that is in use",
         [](peer_type& p) {
             p.say_raw(request, 1, body(3, 10, somewhere));
             p.say_raw(request, 2, body(3, 10, somewhere));
         }},
        {"leaving twice",
         [](peer_type& p) {
             p.say_raw(leaving, 0, {});
             p.say_raw(leaving, 0, {});
         }},
        {"leaving with a tag", [](peer_type& p) { p.say_raw(leaving, 1, {}); }},
        {"leaving with a flag", [](peer_type& p) { p.say_raw(leaving, 0, {}, 0, 1); }},
        {"leaving with a payload", [](peer_type& p) { p.say_raw(leaving, 0, raw({1})); }},
        {"received for a block that never was", [](peer_type& p) { p.say_raw(received_kind, 0, {}); }},
        {"received for no block", [](peer_type& p) { p.say_raw(received_kind, ~tag_type{0}, {}); }},
        {"a kind that is nobody's", [](peer_type& p) { p.say_raw(leaving + 1, 0, {}); }},
    };
    for (const auto& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden& what) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            std::byte into[4];
            auto receiving = start(as_result(peer.self().recv(into, 99)));
            what.say(peer);
            const auto ended = co_await receiving;
            CHECK(ended.error() == errc::protocol_violation);
        }(world.on, f));
    }
}

TEST_CASE("received for a block that is not in use ends the link with protocol_violation") {
    const forbidden all[] = {
        {"twice",
         [](peer_type& p) {
             p.say_raw(received_kind, 0, {});
             p.say_raw(received_kind, 0, {});
         }},
        {"the next block", [](peer_type& p) { p.say_raw(received_kind, 1, {}); }},
        {"with a flag", [](peer_type& p) { p.say_raw(received_kind, 0, {}, 0, 1); }},
        {"with a payload", [](peer_type& p) { p.say_raw(received_kind, 0, raw({1})); }},
    };
    for (const auto& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden& what) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            co_await peer.self().send(pattern(100), 1);
            co_await peer.hear();
            what.say(peer);
            while (peer.self().is_open()) co_await yield();
            const auto later = co_await as_result(peer.self().send(pattern(100), 1));
            CHECK(later.error() == errc::protocol_violation);
        }(world.on, f));
    }
}

TEST_CASE("a peer that leaves and names memory it has not opened is refused, too") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        peer.say_raw(request, 1, body(0, 10, somewhere));
        co_await peer.self().probe(1);
        peer.say_raw(leaving, 0, {});
        co_await turns(3);
        std::byte into[10];
        auto receiving = start(as_result(peer.self().recv(into, 1)));
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::protocol_violation);
    });
}

// ---- long programs

namespace {

class dice {
public:
    explicit dice(unsigned seed) : source_(seed) {}
    std::size_t operator()(std::size_t below) { return source_() % below; }
    bool one_in(std::size_t n) { return (*this)(n) == 0; }

private:
    std::mt19937 source_;
};

std::size_t bytes_of_tag(tag_type tag) { return tag % 7 == 0 ? 0 : (tag * 7919) % 3000; }

task<> sends(pair_type::endpoint_type& from, tag_type tag) {
    const auto data = pattern(bytes_of_tag(tag), static_cast<unsigned>(tag));
    co_await from.send(data, tag);
}
task<> receives(pair_type::endpoint_type& to, tag_type tag, std::size_t pieces, local_stop_token stop,
                const tag_type& sent, unsigned& got) {
    const std::size_t bytes = bytes_of_tag(tag);
    scattered into(pieces, bytes / pieces + 1, 4);
    const auto ended = co_await as_result(with_stop(to.recv(into.into(), tag), stop));
    CHECK(into.gaps_untouched());
    if (ended) {
        CHECK(into.gathered(bytes) == pattern(bytes, static_cast<unsigned>(tag)));
        ++got;
    } else {
        CHECK((ended.error() == errc::canceled || (ended.error() == errc::closed && tag > sent)));
    }
}

task<> random_program(scheduler& on, unsigned seed) {
    constexpr std::size_t any = loopback_lane::unlimited;
    dice roll(seed);
    pair_type pair(on);
    co_await pair.open();
    pair.wire->offered.revokes_at_once = !roll.one_in(3);
    pair.wire->offered.get_alignment = roll.one_in(3) ? 4 : 1;
    std::deque<started<task<>>> sending;
    std::deque<started<task<>>> receiving;
    std::deque<local_stop_source> stops;
    unsigned got = 0;
    tag_type sent = 0;
    tag_type wanted = 0;
    for (int step = 0; step < 200; ++step) {
        if (roll.one_in(2)) sending.emplace_back(sends(pair.a, ++sent));
        if (roll.one_in(2)) {
            stops.emplace_back();
            receiving.emplace_back(receives(pair.b, ++wanted, roll.one_in(2) ? 1 : 1 + roll(50),
                                            stops.back().get_token(), sent, got));
        }
        if (roll.one_in(3)) {
            for (loopback_lane* lane : {&pair.from_a(), &pair.from_b()}) {
                lane->held = roll.one_in(4);
                lane->room = roll.one_in(3) ? roll(3) : any;
                lane->one_sided_room = roll.one_in(3) ? roll(3) : any;
                lane->one_sided_steps = roll.one_in(3) ? roll(4) : any;
                lane->defers_one_sided = !roll.one_in(3);
            }
        }
        if (!stops.empty() && roll.one_in(4))
            stops[stops.size() - 1 - roll(std::min<std::size_t>(stops.size(), 12))].request_stop();
        co_await turns(static_cast<int>(roll(4)));
    }
    auto closing = start(pair.a.close());  // wherever everything is
    co_await turns(static_cast<int>(roll(20)));
    for (loopback_lane* lane : {&pair.from_a(), &pair.from_b()}) {
        lane->held = false;
        lane->room = lane->one_sided_room = lane->one_sided_steps = any;
    }
    while (wanted < sent) {  // those that are left
        stops.emplace_back();
        receiving.emplace_back(receives(pair.b, ++wanted, 1, stops.back().get_token(), sent, got));
        co_await turns(static_cast<int>(roll(3)));
    }
    for (auto& s : sending) co_await s;
    for (std::size_t n = static_cast<std::size_t>(sent); n < receiving.size(); ++n) stops[n].request_stop();
    co_await closing;
    std::vector<std::byte> into(3000);
    while (pair.b.connection().box().matching().unexpected() != 0)
        co_await pair.b.recv(into);  // canceled before
    for (auto& r : receiving) {
        if (!r.done()) stops[static_cast<std::size_t>(&r - &receiving.front())].request_stop();
        co_await r;
    }
    CHECK(pair.a.counts().messages_sent == sent);
    CHECK(got != 0);
    CHECK(pair.at_rest());
}

}  // namespace

TEST_CASE("long programs of staged messages with cancels lose nothing, and close wherever they are") {
    for (unsigned seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        virtual_time world;
        world.run(random_program(world.on, seed));
    }
}
