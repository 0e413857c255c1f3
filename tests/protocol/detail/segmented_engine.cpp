#include <rdmacoro/protocol/detail/segmented_engine.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/named_in_sequence.hpp"
#include "support/scripted_peer.hpp"

#include <deque>
#include <initializer_list>
#include <optional>

namespace test_protocol_detail_segmented_engine {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

constexpr std::size_t unasked = detail::unasked_bytes(detail::least_budget);  // 64 KiB

std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}
mailbox_options little() {
    mailbox_options o;
    o.unexpected_bytes = 1;
    return o;
}
task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}
bool is(const heard_message& m, wire_kind kind) { return m.header.kind == static_cast<std::uint8_t>(kind); }
/// Tells the sender of pieces that they are taken, where it asks, for some turns. How many bytes of pieces have come in all.
task<std::size_t> take_pieces(scripted_peer& peer, std::uint64_t& told) {
    std::size_t came = 0;
    for (int n = 0; n < 20; ++n) {
        co_await yield();
        came = 0;
        std::uint64_t asked = 0;
        for (const heard_message& m : peer.heard()) {
            if (!is(m, wire_kind::piece)) continue;
            came += m.payload.size();
            asked += m.header.flags;
        }
        if (asked != told) peer.say(wire_kind::taken, asked - told);
        told = asked;
    }
    co_return came;
}

void with_peer(task<> (*body)(scripted_peer&)) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(scripted_peer&)) -> task<> {
        scripted_peer peer(on, little());
        co_await peer.open();
        co_await run(peer);
    }(world.on, body));
}

}  // namespace

// ---- what the sender says

TEST_CASE("a long message is these frames: an announcement and its pieces") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = filled(5000, 7);
        peer.wire().offered.segment_bytes = 4096;
        peer.wire().offered.eager_bytes = 1000;
        co_await peer.self().send(data, 0x1122334455667788);
        const heard_message announce = co_await peer.hear();
        const auto header = announce.header.store();
        const auto golden_header = raw({0x09, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11});
        CHECK(std::equal(header.begin(), header.end(), golden_header.begin()));
        CHECK(announce.payload == raw({0, 0, 0, 0, 0, 0, 0, 0, 0x88, 0x13, 0, 0, 0, 0, 0, 0}));
        const heard_message first = co_await peer.hear();
        const auto first_header = first.header.store();
        const auto golden_piece = raw({0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});  // names stream 0
        CHECK(std::equal(first_header.begin(), first_header.end(), golden_piece.begin()));
        CHECK(first.payload == filled(4096, 7));
        const heard_message second = co_await peer.hear();
        CHECK(is(second, wire_kind::piece));
        CHECK(second.payload == filled(904, 7));
        CHECK(peer.heard().empty());
    });
}

TEST_CASE("a synchronous message's announcement says so, and its number is the lowest free one") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = filled(10, 1);
        auto first = start(peer.self().ssend(data, 1));
        auto second = start(peer.self().ssend(data, 2));
        auto heard = co_await peer.hear();
        CHECK(heard.payload == announcement(0, 1, 10));
        co_await peer.hear();
        heard = co_await peer.hear();
        CHECK(heard.payload == announcement(1, 1, 10));
        co_await peer.hear();
        CHECK_FALSE(first.done());
        peer.say(wire_kind::proceed, 1);
        co_await second;
        CHECK_FALSE(first.done());
        peer.say(wire_kind::proceed, 0);
        co_await first;
        auto third = start(peer.self().ssend({}, 3));
        heard = co_await peer.hear();
        CHECK(heard.payload == announcement(0, 1, 0));
        peer.say(wire_kind::proceed, 0);
        co_await third;
    });
}

TEST_CASE("of a message above a quarter of the budget only that much comes unasked") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = filled(unasked + 5000, 1);
        auto sending = start(peer.self().send(data, 1));
        std::uint64_t told = 0;
        std::size_t came = co_await take_pieces(peer, told);
        CHECK(came == unasked);
        CHECK_FALSE(sending.done());
        peer.say(wire_kind::proceed, 0);
        came = co_await take_pieces(peer, told);
        co_await sending;
        CHECK(came == data.size());
        // Exactly a quarter needs no credit message.
        co_await peer.self().send(std::span(data).first(unasked), 1);
    });
}

TEST_CASE(
    "a long piece that comes, and one that goes out because others were taken, leave the rest of a poll to "
    "everything else") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::vector<std::byte> into(41'000);
        auto receiving = start(peer.self().recv(into, 1));
        peer.say(wire_kind::announce, 1, announcement(0, 0, into.size()));
        for (const std::size_t bytes : {20'000u, 1'000u, 20'000u})
            peer.say(wire_kind::piece, 0, filled(bytes, 7));
        co_await receiving;
        CHECK(into == filled(41'000, 7));
        CHECK(peer.from_peer().paused == 2);  // not the short one

        const auto data = filled(unasked + 5000, 1);
        auto sending = start(peer.self().send(data, 1));
        co_await turns(20);
        peer.say(wire_kind::proceed, 0);
        co_await turns(20);
        CHECK_FALSE(sending.done());  // its window is full
        CHECK(peer.from_peer().paused == 2);
        peer.say(wire_kind::taken, 1);
        co_await sending;
        CHECK(peer.from_peer().paused == 3);
        peer.say(wire_kind::taken, 1);
        co_await turns(20);
        CHECK(peer.from_peer().paused == 3);  // nothing went out
    });
}

TEST_CASE("a sender that gives up says abandon once and frees its number at gone") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = filled(unasked + 1, 1);
        local_stop_source stop;
        auto sending = start(as_result(with_stop(peer.self().send(data, 1), stop.get_token())));
        co_await turns(10);
        peer.heard().clear();
        stop.request_stop();
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::canceled);
        const heard_message abandon = co_await peer.hear();
        const auto header = abandon.header.store();
        const auto golden = raw({0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
        CHECK(std::equal(header.begin(), header.end(), golden.begin()));
        CHECK(abandon.payload.empty());
        // A proceed that crossed it is no violation.
        peer.say(wire_kind::proceed, 0);
        auto other = start(peer.self().ssend({}, 2));
        heard_message announce = co_await peer.hear();
        CHECK(announce.payload == announcement(1, 1, 0));
        peer.say(wire_kind::gone, 0);
        peer.say(wire_kind::proceed, 1);
        co_await other;
        auto third = start(peer.self().ssend({}, 3));
        announce = co_await peer.hear();
        CHECK(announce.payload == announcement(1, 1, 0));
        auto fourth = start(peer.self().ssend({}, 3));
        announce = co_await peer.hear();
        CHECK(announce.payload == announcement(0, 1, 0));
        peer.say(wire_kind::proceed, 1);
        peer.say(wire_kind::proceed, 0);
        co_await third;
        co_await fourth;
    });
}

TEST_CASE("more streams than there are numbers wait for one to be free, in order") {
    with_peer([](scripted_peer& peer) -> task<> {
        using connection = typename scripted_peer::endpoint_type::connection_type;
        std::deque<started<send_operation<connection>>> sends;
        for (unsigned n = 0; n < segmented<>::most_streams + 3; ++n)
            sends.emplace_back(peer.self().ssend({}, n));
        while (peer.heard().size() < segmented<>::most_streams) co_await yield();
        co_await turns(10);
        REQUIRE(peer.heard().size() == segmented<>::most_streams + 1);
        CHECK(is(peer.heard().back(), wire_kind::starved));
        CHECK(peer.self().counts().room_waits > 0);
        check_stage("ssend", "waits for credit", next_actor::credit);
        // Giving the credit back is not all that they wait for.
        peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(detail::message_cost(0)));
        co_await turns(3);
        check_stage("ssend", "waits for a free stream", next_actor::peer_receive);
        check_stage("ssend", "waits behind other sends", next_actor::peer_receive);
        peer.heard().clear();
        peer.say(wire_kind::proceed, 700, {}, 30);
        heard_message next = co_await peer.hear();
        if (is(next, wire_kind::starved)) next = co_await peer.hear();  // the answer came before its credit
        CHECK(next.payload == announcement(700, 1, 0));
        CHECK(next.header.tag == segmented<>::most_streams);
        CHECK(sends[700].done());
        peer.self().abort();
        for (auto& s : sends) static_cast<void>(co_await as_result(s));
    });
}

// ---- what the receiver says

TEST_CASE("a receiver says proceed when a message that needs it is matched, and not otherwise") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::vector<std::byte> into(unasked + 100);
        // Streams are named in order: those before belong to messages that nothing waits for.
        for (std::uint32_t n = 0; n < 5; ++n) peer.say(wire_kind::announce, 2, announcement(n, 0, 0));
        // Short and not synchronous: no word.
        auto receiving = start(peer.self().recv(into, 1));
        peer.say(wire_kind::announce, 1, announcement(5, 0, 100));
        peer.say(wire_kind::piece, 5, filled(60, 1));
        peer.say(wire_kind::piece, 5, filled(40, 2));
        const received got = co_await receiving;
        CHECK(got.bytes == 100);
        CHECK(into[59] == std::byte{1});
        CHECK(into[60] == std::byte{2});
        co_await turns(5);
        CHECK(peer.heard().empty());
        // Synchronous.
        peer.say(wire_kind::announce, 1, announcement(5, 1, 10));
        peer.say(wire_kind::piece, 5, filled(10, 3));
        const received seen = co_await peer.self().probe(1);
        CHECK(seen.bytes == 10);
        co_await turns(5);
        CHECK(peer.heard().empty());
        co_await peer.self().recv(into, 1);
        const heard_message proceed = co_await peer.hear();
        const auto header = proceed.header.store();
        const auto golden = raw({0x0b, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0});
        CHECK(header[0] == golden[0]);
        CHECK(std::equal(header.begin() + 4, header.end(), golden.begin() + 4));
        // Long.
        auto long_one = start(peer.self().recv(into, 1));
        peer.say(wire_kind::announce, 1, announcement(6, 0, unasked + 100));
        const heard_message asks = co_await peer.hear();
        CHECK(is(asks, wire_kind::proceed));
        CHECK(asks.header.tag == 6);
        for (std::size_t left = unasked + 100; left > 0;) {
            const std::size_t now = std::min<std::size_t>(left, 16384);
            peer.say(wire_kind::piece, 6, filled(now, 4));
            left -= now;
        }
        const received all = co_await long_one;
        CHECK(all.bytes == unasked + 100);
    });
}

TEST_CASE("abandoning ends a matched receive with peer_canceled and takes an unmatched message away") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::vector<std::byte> into(1000);
        auto receiving = start(peer.self().recv(into, 1));
        auto lent = start(peer.self().recv_lent(2));
        peer.say(wire_kind::announce, 1, announcement(0, 0, 1000));
        peer.say(wire_kind::piece, 0, filled(500, 1));
        peer.say(wire_kind::abandon, 0);
        peer.say(wire_kind::announce, 2, announcement(1, 0, 1000));
        peer.say(wire_kind::abandon, 1);
        const auto ended = co_await as_result(receiving);
        CHECK(ended.error() == errc::peer_canceled);
        const auto ended_lent = co_await as_result(lent);
        CHECK(ended_lent.error() == errc::peer_canceled);
        heard_message gone = co_await peer.hear();
        CHECK(is(gone, wire_kind::gone));
        CHECK(gone.header.tag == 0);
        gone = co_await peer.hear();
        CHECK(gone.header.tag == 1);
        // Unmatched.
        peer.say(wire_kind::announce, 3, announcement(0, 1, 10));
        co_await peer.self().probe(3);
        peer.say(wire_kind::abandon, 0);
        gone = co_await peer.hear();
        CHECK(is(gone, wire_kind::gone));
        CHECK(peer.self().connection().mailbox().matching().unexpected() == 0);
        CHECK(peer.self().connection().mailbox().store().live() == 0);
    });
}

TEST_CASE("words that find no room are said later, in order, and once") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::vector<std::byte> into(10);
        peer.to_peer().room = 0;
        auto first = start(peer.self().recv(into, 1));
        peer.say(wire_kind::announce, 1, announcement(0, 1, 0));
        co_await first;
        // Announced again before the first answer could be said would be a violation; another number is not.
        auto second = start(peer.self().recv(into, 1));
        peer.say(wire_kind::announce, 1, announcement(1, 1, 0));
        co_await second;
        peer.say(wire_kind::announce, 7, announcement(2, 1, 0));
        co_await peer.self().probe(7);
        peer.say(wire_kind::abandon, 2);
        std::vector<std::byte> large(unasked + 100);
        auto third = start(peer.self().recv(large, 8));
        peer.say(wire_kind::announce, 8, announcement(3, 0, large.size()));
        co_await turns(5);
        CHECK(peer.heard().empty());
        check_stage("recv", "met, no room to ask for the rest", next_actor::device);
        peer.to_peer().room = loopback_lane::unlimited;
        heard_message said = co_await peer.hear();
        CHECK(is(said, wire_kind::proceed));
        CHECK(said.header.tag == 0);
        said = co_await peer.hear();
        CHECK(is(said, wire_kind::proceed));
        CHECK(said.header.tag == 1);
        said = co_await peer.hear();
        CHECK(is(said, wire_kind::gone));
        CHECK(said.header.tag == 2);
        said = co_await peer.hear();
        CHECK(is(said, wire_kind::proceed));
        CHECK(said.header.tag == 3);
        co_await turns(5);
        CHECK(peer.heard().empty());
        check_stage("recv", "is being filled", next_actor::peer_poll);
        peer.say(wire_kind::abandon, 3);
        const auto given_up = co_await as_result(third);
        CHECK(given_up.error() == errc::peer_canceled);
    });
}

TEST_CASE("a sender without room goes on where it was when room comes") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.wire().offered.segment_bytes = 1000;
        const auto data = filled(50000, 9);
        peer.to_peer().room = 3;
        co_await peer.self().send(data, 1);
        co_await turns(5);
        std::size_t came = 0;
        while (!peer.heard().empty()) {
            came += is(peer.heard().front(), wire_kind::piece) ? peer.heard().front().payload.size() : 0;
            peer.heard().pop_front();
        }
        CHECK(came == data.size());
        CHECK(peer.to_peer().retries > 10);
    });
}

TEST_CASE("pieces that the transport finishes later are waited for, and taken back when canceled") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.to_peer().defers = true;
        peer.to_peer().held = true;
        auto data = filled(50000, 9);
        local_stop_source stop;
        auto sending = start(as_result(with_stop(peer.self().send(data, 1), stop.get_token())));
        co_await turns(5);
        CHECK_FALSE(sending.done());
        stop.request_stop();
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::canceled);
        std::fill(data.begin(), data.end(), std::byte{0});  // ours again: the piece was copied
        peer.to_peer().held = false;
        heard_message said = co_await peer.hear();
        CHECK(is(said, wire_kind::announce));
        said = co_await peer.hear();
        CHECK(is(said, wire_kind::piece));
        CHECK(said.payload == filled(said.payload.size(), 9));
        said = co_await peer.hear();
        CHECK(is(said, wire_kind::abandon));
        peer.say(wire_kind::gone, 0);
        const auto again = filled(50000, 8);
        co_await peer.self().send(again, 1);
    });
}

TEST_CASE("pieces whose payload comes in parts go straight to their place") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.from_peer().announces_above = 100;
        peer.from_peer().piece = 77;
        for (const bool expected : {true, false}) {
            std::vector<std::byte> into(3000);
            std::optional<started<receive_operation<typename scripted_peer::endpoint_type::connection_type>>>
                receiving;
            if (expected) receiving.emplace(peer.self().recv(into, 1));
            const std::uint64_t copies = peer.self().counts().payload_copies;
            peer.say(wire_kind::announce, 1, announcement(0, 0, 3000));
            peer.say(wire_kind::piece, 0, filled(2000, 1));
            peer.say(wire_kind::piece, 0, filled(1000, 2));
            if (!expected) {
                co_await peer.self().probe(1);
                co_await turns(3);  // half of it is there
                receiving.emplace(peer.self().recv(into, 1));
            }
            co_await *receiving;
            CHECK(into[1999] == std::byte{1});
            CHECK(into[2000] == std::byte{2});
            CHECK(into[2999] == std::byte{2});
            if (expected) CHECK(peer.self().counts().payload_copies == copies);
        }
        // Too short, canceled, lent.
        std::vector<std::byte> small(10);
        auto receiving = start(peer.self().recv(small, 1));
        peer.say(wire_kind::announce, 1, announcement(0, 0, 3000));
        peer.say(wire_kind::piece, 0, filled(3000, 1));
        const auto ended = co_await as_result(receiving);
        CHECK(ended.error() == errc::truncated);
        CHECK(ended.info() == 3000);
        auto lent = start(peer.self().recv_lent(2));
        peer.say(wire_kind::announce, 2, announcement(1, 0, 3000));
        peer.say(wire_kind::piece, 1, filled(3000, 5));
        const message whole = co_await lent;
        CHECK(whole.size() == 3000);
        CHECK(whole.bytes()[2999] == std::byte{5});
        // The same stream number again, once the piece that was thrown away has come to its end.
        local_stop_source stop;
        std::vector<std::byte> canceled(3000, std::byte{0x11});
        auto stopped = start(as_result(with_stop(peer.self().recv(canceled, 3), stop.get_token())));
        peer.say(wire_kind::announce, 3, announcement(0, 0, 3000));
        peer.say(wire_kind::piece, 0, filled(3000, 6));
        co_await turns(10);
        stop.request_stop();
        const auto outcome = co_await stopped;
        CHECK(outcome.error() == errc::canceled);
        std::fill(canceled.begin(), canceled.end(), std::byte{0x11});
        co_await turns(60);
        CHECK(canceled == filled(3000, 0x11));
    });
}

// ---- violations

namespace {
/// Sends something that the protocol forbids; the link ends with protocol_violation, and what is pending with it.
struct forbidden {
    const char* what;
    void (*say)(scripted_peer&);
};
}  // namespace

TEST_CASE("whatever makes no sense ends the link with protocol_violation") {
    const forbidden all[] = {
        {"an announcement too short", [](scripted_peer& p) { p.say(wire_kind::announce, 1, filled(15, 0)); }},
        {"an announcement too long", [](scripted_peer& p) { p.say(wire_kind::announce, 1, filled(17, 0)); }},
        {"an empty announcement", [](scripted_peer& p) { p.say(wire_kind::announce, 1); }},
        {"a stream number too high",
         [](scripted_peer& p) {
             p.say(wire_kind::announce, 1, announcement(segmented<>::most_streams, 0, 10));
         }},
        {"the highest stream number",
         [](scripted_peer& p) { p.say(wire_kind::announce, 1, announcement(~0u, 0, 10)); }},
        {"flags that do not exist",
         [](scripted_peer& p) { p.say(wire_kind::announce, 1, announcement(0, 2, 10)); }},
        {"an impossible length",
         [](scripted_peer& p) {
             p.say(wire_kind::announce, 1, announcement(0, 0, (std::uint64_t{1} << 62) + 1));
         }},
        {"a stream announced twice",
         [](scripted_peer& p) {
             p.say(wire_kind::announce, 1, announcement(0, 0, 10));
             p.say(wire_kind::announce, 1, announcement(0, 0, 10));
         }},
        {"a piece of no stream", [](scripted_peer& p) { p.say(wire_kind::piece, 0, filled(1, 0)); }},
        {"a piece of a stream far away",
         [](scripted_peer& p) { p.say(wire_kind::piece, ~std::uint64_t{0}, filled(1, 0)); }},
        {"an empty piece",
         [](scripted_peer& p) {
             p.say(wire_kind::announce, 1, announcement(0, 0, 10));
             p.say(wire_kind::piece, 0);
         }},
        {"a piece longer than the message",
         [](scripted_peer& p) {
             p.say(wire_kind::announce, 1, announcement(0, 0, 10));
             p.say(wire_kind::piece, 0, filled(11, 0));
         }},
        {"a piece after the last",
         [](scripted_peer& p) {
             p.say(wire_kind::announce, 1, announcement(0, 0, 10));
             p.say(wire_kind::piece, 0, filled(10, 0));
             p.say(wire_kind::piece, 0, filled(1, 0));
         }},
        {"more than a quarter of the budget, unasked",
         [](scripted_peer& p) {
             p.say(wire_kind::announce, 1, announcement(0, 0, unasked + 1));
             for (std::size_t left = unasked; left > 0; left -= 16384)
                 p.say(wire_kind::piece, 0, filled(16384, 0));
             p.say(wire_kind::piece, 0, filled(1, 0));
         }},
        {"more announcements than the budget pays for",
         [](scripted_peer& p) {
             for (std::uint32_t n = 0; n < 4; ++n) p.say(wire_kind::announce, 1, announcement(n, 0, unasked));
         }},
        {"proceed for no stream", [](scripted_peer& p) { p.say(wire_kind::proceed, 0); }},
        {"proceed for a stream far away",
         [](scripted_peer& p) { p.say(wire_kind::proceed, ~std::uint64_t{0}); }},
        {"abandon for no stream", [](scripted_peer& p) { p.say(wire_kind::abandon, 0); }},
        {"abandon with a payload",
         [](scripted_peer& p) {
             p.say(wire_kind::announce, 1, announcement(0, 0, 10));
             p.say(wire_kind::abandon, 0, filled(1, 0));
         }},
        {"gone for no stream", [](scripted_peer& p) { p.say(wire_kind::gone, 0); }},
        {"gone for a stream far away",
         [](scripted_peer& p) { p.say(wire_kind::gone, std::uint64_t{1} << 63); }},
        {"a piece that comes in parts, of no stream",
         [](scripted_peer& p) {
             p.from_peer().announces_above = 10;
             p.say(wire_kind::piece, 0, filled(100, 0));
         }},
        {"a piece that comes in parts, longer than the message",
         [](scripted_peer& p) {
             p.from_peer().announces_above = 10;
             p.say(wire_kind::announce, 1, announcement(0, 0, 99));
             p.say(wire_kind::piece, 0, filled(100, 0));
         }},
        {"an announcement that comes in parts",
         [](scripted_peer& p) {
             p.from_peer().announces_above = 10;
             p.say(wire_kind::announce, 1, announcement(0, 0, 10));
         }},
    };
    for (const forbidden& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden& what) -> task<> {
            scripted_peer peer(on, little());
            co_await peer.open();
            std::byte into[4];
            auto receiving = start(peer.self().recv(into, 99));
            what.say(peer);
            const auto ended = co_await as_result(receiving);
            CHECK(ended.error() == errc::protocol_violation);
            const auto later = co_await as_result(peer.self().send(into));
            CHECK(later.error() == errc::protocol_violation);
        }(world.on, f));
    }
}

TEST_CASE("a peer names its streams in order, and one beyond the next ends the link and makes none") {
    check_named_in_sequence<scripted_peer>(segmented<>::most_streams, [](scripted_peer& p, std::uint32_t id) {
        p.say(wire_kind::announce, 1, announcement(id, 0, 10));
    });
}

TEST_CASE("answers that make no sense to the sender of pieces end the link with protocol_violation") {
    const forbidden all[] = {
        {"proceed with a payload", [](scripted_peer& p) { p.say(wire_kind::proceed, 0, filled(1, 0)); }},
        {"proceed twice",
         [](scripted_peer& p) {
             p.to_peer().held = true;  // so that the stream is not over after the first
             p.to_peer().defers = true;
             p.say(wire_kind::proceed, 0);
             p.say(wire_kind::proceed, 0);
         }},
        {"proceed for the next stream", [](scripted_peer& p) { p.say(wire_kind::proceed, 1); }},
        {"gone for a stream that was not abandoned", [](scripted_peer& p) { p.say(wire_kind::gone, 0); }},
    };
    for (const forbidden& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden& what) -> task<> {
            scripted_peer peer(on, little());
            co_await peer.open();
            const auto data = filled(unasked + 20000, 1);
            auto sending = start(peer.self().send(data, 1));
            while (peer.heard().empty()) co_await yield();
            co_await turns(10);
            what.say(peer);
            const auto ended = co_await as_result(sending);
            CHECK(ended.error() == errc::protocol_violation);
        }(world.on, f));
    }
}

TEST_CASE("proceed for a message that needs none is a violation") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.to_peer().held = true;
        peer.to_peer().defers = true;
        const auto data = filled(20000, 1);
        auto sending = start(peer.self().send(data, 1));
        peer.say(wire_kind::proceed, 0);
        const auto ended = co_await as_result(sending);
        CHECK(ended.error() == errc::protocol_violation);
    });
}

TEST_CASE("an announcement beyond the budget that a receive waits for ends that receive, too") {
    with_peer([](scripted_peer& peer) -> task<> {
        const std::size_t count = detail::least_budget / detail::message_cost(1000);
        for (std::size_t n = 0; n < count; ++n) peer.say(wire_kind::eager, n, filled(1000, 0));
        auto& matching = peer.self().connection().mailbox().matching();
        while (matching.unexpected() < count) co_await yield();
        std::vector<std::byte> into(5000);
        auto receiving = start(peer.self().recv(into, 1'000'000));
        peer.say(wire_kind::announce, 1'000'000, announcement(0, 0, 5000));
        const auto ended = co_await as_result(receiving);
        CHECK(ended.error() == errc::protocol_violation);
        CHECK(matching.posted() == 0);
    });
}

}  // namespace test_protocol_detail_segmented_engine
