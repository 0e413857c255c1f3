#include <rdmacoro/protocol/get_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/rendezvous.hpp"

#include <array>
#include <deque>
#include <optional>

namespace test_protocol_get_rendezvous {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using list = protocols<get_rendezvous<>>;
using peer_type = basic_scripted_peer<list>;
using pair_type = endpoint_pair<list>;

}  // namespace

TEST_CASE("a message that the receiver gets is two frames: request and received") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(5000);
        auto sending = start(peer.self().send(data, 0x1122334455667788));
        const heard_message request = co_await peer.hear();
        CHECK(bytes_of(request) == raw({0x08, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}));
        const auto source = source_of(request);
        REQUIRE(source.size() == 1);
        CHECK(source[0].address == reinterpret_cast<std::uint64_t>(data.data()));
        CHECK(source[0].length == 5000);
        CHECK(request.payload == request_body(0, 5000, {source[0]}));
        const auto fixed = std::vector(request.payload.begin(), request.payload.begin() + 16);
        CHECK(fixed == raw({0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x88, 0x13, 0, 0, 0, 0, 0, 0}));
        std::vector<std::byte> got(5000);
        recording_completion done;
        CHECK(peer.link().get(source[0], got, done) == post_result::done);
        CHECK(got == data);
        co_await turns(5);
        CHECK_FALSE(sending.done());
        say(peer, rv::received, 0);
        co_await sending;
        // The region has gone with it, and the stream's next message has the other flag.
        CHECK(peer.link().get(source[0], got, done) == post_result::posted);
        auto next = start(peer.self().send(data, 1));
        const heard_message second = co_await peer.hear();
        CHECK(bytes_of(second) == raw({0x08, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(done.outcome == errc::bad_key);
        CHECK(peer.self().counts().get_sent == 2);
        say(peer, rv::received, 0);
        co_await next;
    });
}

TEST_CASE("a receiver that gets says received and nothing else") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        auto data = pattern(3000);
        std::vector<std::byte> into(4000);
        const region open = peer.link().expose(data, access_rights::remote_read);
        auto receiving = start(peer.self().recv(into, 7));
        use_streams_before(peer, 5);
        say(peer, rv::request, 7, request_body(5, 3000, {open.remote()}));
        const received got = co_await receiving;
        CHECK(got.bytes == 3000);
        CHECK(got.tag == 7);
        CHECK(std::equal(data.begin(), data.end(), into.begin()));
        CHECK(into[3000] == std::byte{0});
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x0a, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        CHECK(peer.self().counts().payload_copies == 0);
        co_await turns(3);
        CHECK(peer.heard().empty());
    });
}

TEST_CASE("a source of several pieces is got from all of them, empty ones among them") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        auto data = pattern(3000);
        std::vector<std::byte> into(3000);
        const region open = peer.link().expose(data, access_rights::remote_read);
        auto receiving = start(peer.self().recv(into, 7));
        const remote_region all = open.remote();
        say(peer, rv::request, 7,
            request_body(0, 3000,
                         {all.part(0, 1000), all.part(0, 0), all.part(1000, 1), all.part(1001, 1999),
                          all.part(3000, 0)}));
        co_await receiving;
        CHECK(into == data);
    });
}

TEST_CASE("what breaks the get's alignment at the sender is asked for and put") {
    with_pair<list>([](pair_type& pair) -> task<> {
        pair.wire->offered.get_alignment = 4;
        const auto data = pattern(4096);
        std::vector<std::byte> into(4096);
        struct cut {
            std::size_t offset;
            std::size_t bytes;
        };
        for (const cut c : {cut{1, 400}, cut{0, 401}, cut{2, 2}, cut{3, 4093}}) {
            const auto part = std::span(data).subspan(c.offset, c.bytes);
            const std::uint64_t puts = pair.from_a().puts;
            auto sending = start(pair.a.send(part, 1));
            co_await pair.b.recv(into, 1);
            co_await sending;
            CHECK(pair.from_a().puts == puts + 1);
            CHECK(std::equal(part.begin(), part.end(), into.begin()));
        }
        CHECK(pair.from_b().gets == 0);
        CHECK(pair.a.counts().get_sent == 4);
        CHECK(pair.a.counts().switched_to_put == 0);  // nothing was offered to be got
        CHECK(pair.b.counts().switched_to_put == 0);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("what breaks the get's alignment at the receiver only switches to a put, and both count it") {
    with_pair<list>([](pair_type& pair) -> task<> {
        pair.wire->offered.get_alignment = 4;
        const auto data = pattern(4096);
        std::vector<std::byte> into(4100);
        auto sending = start(pair.a.send(data, 1));
        co_await pair.b.recv(std::span(into).subspan(3, 4096), 1);
        co_await sending;
        CHECK(std::equal(data.begin(), data.end(), into.begin() + 3));
        CHECK(into[2] == std::byte{0});
        CHECK(into[4099] == std::byte{0});
        CHECK(pair.a.counts().switched_to_put == 1);
        CHECK(pair.b.counts().switched_to_put == 1);
        // A gathered destination whose cuts are odd, though its first piece is not.
        auto again = start(pair.a.send(data, 1));
        co_await pair.b.recv(scatter(std::span(into).first(102), std::span(into).subspan(102)), 1);
        co_await again;
        CHECK(std::equal(data.begin(), data.end(), into.begin()));
        CHECK(pair.b.counts().switched_to_put == 2);
        CHECK(pair.from_b().gets == 0);
        // Odd memory behind the message's end does not matter.
        auto third = start(pair.a.send(data, 1));
        co_await pair.b.recv(scatter(std::span(into).first(4096), std::span(into).subspan(4097)), 1);
        co_await third;
        CHECK(pair.b.counts().switched_to_put == 2);
        CHECK(pair.from_b().gets == 1);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("odd at both ends is put, in pieces that fit each other") {
    with_pair<list>([](pair_type& pair) -> task<> {
        pair.wire->offered.get_alignment = 4;
        const auto data = pattern(1000);
        scattered into(7, 143, 5);
        auto sending =
            start(pair.a.send(gather(std::span(data).first(333), std::span(data).subspan(333)), 1));
        co_await pair.b.recv(into.into(), 1);
        co_await sending;
        CHECK(into.gathered(1000) == data);
        CHECK(into.gaps_untouched());
        CHECK(pair.at_rest());
    });
}

TEST_CASE("memory that the sender cannot expose is put") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(3000);
        for (const std::size_t exposures : {0u, 1u, 2u}) {  // of three pieces
            std::vector<std::byte> into(3000);
            pair.from_a().exposures = exposures;
            auto sending = start(pair.a.send(gather(std::span(data).first(1), std::span(data).subspan(1, 99),
                                                    std::span(data).subspan(100)),
                                             1));
            co_await pair.b.recv(into, 1);
            co_await sending;
            CHECK(into == data);
        }
        CHECK(pair.from_b().gets == 0);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("a destination that is not needed exposed is got into, though the receiver can expose nothing") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(3000);
        std::vector<std::byte> into(3000);
        pair.from_b().exposures = 0;
        auto sending = start(pair.a.send(data, 1));
        co_await pair.b.recv(into, 1);
        co_await sending;
        CHECK(into == data);
    });
}

TEST_CASE("a source of more than 16 pieces is put") {
    with_pair<list>([](pair_type& pair) -> task<> {
        for (const std::size_t count : {16u, 17u}) {
            const auto data = pattern(count * 10);
            scattered from(count, 10, 3);
            from.fill(data);
            std::vector<std::byte> into(data.size());
            auto sending = start(pair.a.send(from.from(), 1));
            co_await pair.b.recv(into, 1);
            co_await sending;
            CHECK(into == data);
        }
        CHECK(pair.from_b().gets == 16);
        CHECK(pair.from_a().puts == 17);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("get_rendezvous admits what the link can get, and nothing where it cannot") {
    capabilities link;
    CHECK_FALSE(get_rendezvous<>::admits({10, false}, link));
    link.one_sided = true;
    CHECK(get_rendezvous<>::admits({0, true}, link));
    link.get_bytes = 1000;
    CHECK(get_rendezvous<>::longest(link) == 1000);
    CHECK(get_rendezvous<>::admits({1000, false}, link));
    CHECK_FALSE(get_rendezvous<>::admits({1001, false}, link));
    CHECK(get_rendezvous<up_to<50>>::longest(link) == 50);
    CHECK(get_rendezvous<up_to<50>>::parameter() == 50);
}

TEST_CASE("between the links' limits a list gets shorter messages and puts longer ones") {
    using both = protocols<eager<>, get_rendezvous<>, put_rendezvous<>>;
    with_pair<both>([](endpoint_pair<both>& pair) -> task<> {
        pair.wire->offered.eager_bytes = 100;
        pair.wire->offered.get_bytes = 1000;
        const auto data = pattern(1001);
        for (const std::size_t bytes : {0u, 100u, 101u, 1000u, 1001u}) {
            std::vector<std::byte> into(bytes);
            auto sending = start(pair.a.send(std::span(data).first(bytes), bytes));
            co_await pair.b.recv(into, bytes);
            co_await sending;
            CHECK(std::equal(into.begin(), into.end(), data.begin()));
        }
        CHECK(pair.a.counts().eager_sent == 2);
        CHECK(pair.a.counts().get_sent == 2);
        CHECK(pair.a.counts().put_sent == 1);
        CHECK(pair.from_b().gets == 2);
        CHECK(pair.from_a().puts == 1);
        CHECK(pair.at_rest());
    });
}

}  // namespace test_protocol_get_rendezvous
