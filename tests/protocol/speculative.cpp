#include <rdmacoro/protocol/speculative.hpp>

#include <rdmacoro/messaging/mailbox.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <random>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using list = protocols<speculative<>>;
using mixed = protocols<eager<up_to<100>>, speculative<>>;
using peer_type = basic_scripted_peer<list>;
using mixed_peer = basic_scripted_peer<mixed>;
using pair_type = endpoint_pair<list>;
using mixed_pair = endpoint_pair<mixed>;

/// The kinds behind those of the fallback, where the policy is the first of its list.
enum class sp : std::uint8_t { announce = 15, claim, finish, withdraw, withdrawn, revoke };

template <class Peer>
void say(Peer& peer, sp kind, tag_type tag, std::span<const std::byte> payload = {}, std::uint8_t flags = 0) {
    peer.say_raw(static_cast<std::uint8_t>(kind), tag, payload, 0, flags);
}
bool is(const heard_message& m, sp kind) { return m.header.kind == static_cast<std::uint8_t>(kind); }

std::vector<std::byte> announce_body(std::uint32_t number, std::uint32_t ahead, std::uint64_t seen,
                                     std::initializer_list<remote_region> pieces) {
    std::vector<std::byte> raw(16);
    detail::store_number(raw.data(), number);
    detail::store_number(raw.data() + 4, ahead);
    detail::store_number(raw.data() + 8, seen);
    append(raw, pieces);
    return raw;
}
std::vector<std::byte> length(std::uint64_t bytes) {
    std::vector<std::byte> raw(8);
    detail::store_number(raw.data(), bytes);
    return raw;
}
std::vector<std::byte> raw(std::initializer_list<int> bytes) {
    std::vector<std::byte> made;
    for (const int b : bytes) made.push_back(static_cast<std::byte>(b));
    return made;
}
std::vector<std::byte> bytes_of(const heard_message& m) {
    detail::wire_header h = m.header;
    h.credits = 0;
    const auto header = h.store();
    return {header.begin(), header.end()};
}
bool all_are(std::span<const std::byte> memory, int value) {
    return std::all_of(memory.begin(), memory.end(),
                       [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

/// One message, or one put or get of the other end, goes through a lane that is held.
template <class Pair>
void step_to_a(Pair& pair) {
    pair.from_b().held = false;
    pair.a.connection().poll(1);
    pair.from_b().held = true;
}
template <class Pair>
void step_to_b(Pair& pair) {
    pair.from_a().held = false;
    pair.b.connection().poll(1);
    pair.from_a().held = true;
}

template <class Pair>
std::uint64_t ended_of(Pair& pair) {
    const metrics& m = pair.b.counts();
    return m.announcements_met + m.announcements_crossed + m.announcements_mispredicted +
           m.announcements_withdrawn;
}

}  // namespace

// ---- what is said

TEST_CASE("an announced receive is met by three frames: announce, claim and finish") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> into(800);
        auto receiving = start(peer.self().recv(into, 0x1122334455667788));
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x0f, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}));
        const auto where = pieces_of(said, 16);
        REQUIRE(where.size() == 1);
        CHECK(where[0].address == reinterpret_cast<std::uint64_t>(into.data()));
        CHECK(where[0].length == 800);
        CHECK(said.payload == announce_body(0, 0, 0, {where[0]}));
        say(peer, sp::claim, 0, length(700));
        recording_completion done;
        CHECK(peer.link().put(data, where[0].part(0, 700), done) == post_result::done);
        co_await turns(5);
        CHECK_FALSE(receiving.done());
        say(peer, sp::finish, 0);
        const received got = co_await receiving;
        CHECK(got.bytes == 700);
        CHECK(got.tag == 0x1122334455667788);
        CHECK(std::equal(data.begin(), data.end(), into.begin()));
        CHECK(peer.heard().empty());
        CHECK(peer.self().counts().announced == 1);
        CHECK(peer.self().counts().announcements_met == 1);
        CHECK(peer.self().counts().payload_copies == 0);
        // The memory is closed to the peer; the number and the count of messages go on.
        CHECK(peer.link().put(data, where[0].part(0, 700), done) == post_result::posted);
        while (done.calls == 0) co_await yield();
        CHECK(done.outcome == errc::bad_key);
        auto next = start(peer.self().recv(into, 2));
        const heard_message second = co_await peer.hear();
        CHECK(second.payload == announce_body(0, 0, 1, {pieces_of(second, 16)[0]}));
        say(peer, rv::request, 2, request_body(0, 0));
        co_await next;
    });
}

TEST_CASE("a send that meets an announcement claims it, puts and says finish") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> there(800);
        const region open = peer.link().expose(there, access_rights::remote_write);
        say(peer, sp::announce, 9,
            announce_body(3, 0, 0, {open.remote().part(0, 300), open.remote().part(300, 500)}));
        co_await turns(3);
        auto sending = start(peer.self().send(data, 9));
        CHECK(sending.done());
        co_await sending;
        CHECK(std::equal(data.begin(), data.end(), there.begin()));
        CHECK(all_are(std::span(there).subspan(700), 0));
        heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x10, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload == raw({0xbc, 0x02, 0, 0, 0, 0, 0, 0}));
        said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x11, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        CHECK(peer.self().counts().announcements_used == 1);
        CHECK(peer.self().counts().speculative_sent == 1);
        // The number may be used again, and a send may be synchronous.
        say(peer, sp::announce, 9, announce_body(3, 0, 1, {open.remote()}));
        co_await peer.self().ssend(data, 9);
        CHECK(peer.self().counts().announcements_used == 2);
    });
}

TEST_CASE("a canceled receive says withdraw, and ends with the answer") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        std::vector<std::byte> into(800);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        const remote_region where = pieces_of(co_await peer.hear(), 16)[0];
        stop.request_stop();
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(said.payload.empty());
        co_await turns(5);
        CHECK_FALSE(receiving.done());
        CHECK(peer.self().counts().announcements_withdrawn == 0);
        say(peer, sp::withdrawn, 0);
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        CHECK(peer.self().counts().announcements_withdrawn == 1);
        recording_completion done;
        CHECK(peer.link().put(into, where, done) == post_result::posted);
        co_await turns(2);
        CHECK(done.outcome == errc::bad_key);
        // The number is free again.
        auto next = start(peer.self().recv(into, 2));
        CHECK(detail::load_number<std::uint32_t>((co_await peer.hear()).payload.data()) == 0);
        say(peer, rv::request, 2, request_body(0, 0));
        co_await next;
    });
}

TEST_CASE("a receive that was claimed and is canceled says revoke; its buffer is its own at once") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(800);
        std::vector<std::byte> into(800);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        const remote_region where = pieces_of(co_await peer.hear(), 16)[0];
        say(peer, sp::claim, 0, length(800));
        co_await turns(3);
        stop.request_stop();
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        std::fill(into.begin(), into.end(), std::byte{0xaa});
        const heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        recording_completion done;
        CHECK(peer.link().put(data, where, done) == post_result::posted);
        co_await turns(2);
        CHECK(done.outcome == errc::bad_key);
        CHECK(all_are(into, 0xaa));
        // The number is free when the peer has said finish, of whatever kind.
        auto next = start(peer.self().recv(into, 2));
        CHECK(detail::load_number<std::uint32_t>((co_await peer.hear()).payload.data()) == 1);
        say(peer, sp::finish, 0, {}, 1);
        say(peer, rv::request, 2, request_body(0, 0));
        co_await next;
        CHECK(peer.self().is_open());
    });
}

TEST_CASE("withdraw is answered with withdrawn, revoke with finish") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(700);
        std::vector<std::byte> there(700);
        region open = peer.link().expose(there, access_rights::remote_write);
        say(peer, sp::announce, 1, announce_body(0, 0, 0, {open.remote()}));
        say(peer, sp::withdraw, 0);
        heard_message said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        // It is used no more.
        auto sending = start(peer.self().send(data, 1));
        CHECK(is(co_await peer.hear(), rv::request));
        say(peer, rv::received, 0);
        co_await sending;
        // Claimed, refused and then revoked: the memory was taken back in between.
        say(peer, sp::announce, 1, announce_body(0, 0, 1, {open.remote()}));
        co_await turns(3);
        open.reset();
        auto second = start(peer.self().send(data, 1));
        CHECK(is(co_await peer.hear(), sp::claim));
        co_await turns(5);
        CHECK_FALSE(second.done());
        say(peer, sp::revoke, 0);
        co_await second;
        said = co_await peer.hear();
        CHECK(bytes_of(said) == raw({0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
        CHECK(all_are(there, 0));
        CHECK(peer.self().is_open());
    });
}

TEST_CASE("a claimed send that is canceled says so, and the receive ends with peer_canceled") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(5000);
        std::vector<std::byte> into(5000);
        pair.from_a().defers_one_sided = true;
        auto receiving = start(as_result(pair.b.recv(into, 1)));
        co_await turns(5);
        pair.from_a().held = true;
        local_stop_source stop;
        auto sending = start(as_result(with_stop(pair.a.send(data, 1), stop.get_token())));
        co_await turns(5);
        CHECK_FALSE(sending.done());
        stop.request_stop();
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::canceled);
        pair.from_a().held = false;
        const auto other = co_await receiving;
        CHECK(other.error() == errc::peer_canceled);
        co_await turns(5);
        CHECK(all_are(into, 0));
        CHECK(pair.at_rest());
        // Numbers are free again.
        pair.from_a().defers_one_sided = false;
        auto again = start(pair.b.recv(into, 1));
        co_await turns(5);
        co_await pair.a.send(data, 1);
        co_await again;
        CHECK(into == data);
    });
}

// ---- orders

TEST_CASE("receiver first: the data lands though the receiver does nothing after its start") {
    with_pair<list>([](pair_type& pair) -> task<> {
        for (const std::size_t bytes : {1u, 100u, 100000u}) {
            const auto data = pattern(bytes);
            std::vector<std::byte> into(bytes);
            auto receiving = start(pair.b.recv(into, 5));
            pair.from_a().held = true;                   // from here on the receiver hears nothing
            auto sending = start(pair.a.send(data, 5));  // looks at what has come
            CHECK(sending.done());
            CHECK(into == data);
            CHECK_FALSE(receiving.done());
            co_await sending;
            pair.from_a().held = false;
            CHECK((co_await receiving).bytes == bytes);
        }
        CHECK(pair.a.counts().announcements_used == 3);
        CHECK(pair.b.counts().announcements_met == 3);
        CHECK(pair.from_b().gets == 0);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("sender first: the request is there, and nothing is announced") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(5000);
        std::vector<std::byte> into(5000);
        auto sending = start(pair.a.send(data, 5));
        co_await turns(5);
        co_await pair.b.recv(into, 5);
        co_await sending;
        CHECK(into == data);
        CHECK(pair.b.counts().announced == 0);
        CHECK(pair.from_b().gets == 1);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("announcements and requests that cross resolve to the requests, for one and for several") {
    with_pair<list>([](pair_type& pair) -> task<> {
        using receives = std::deque<started<receive_operation<pair_type::endpoint_type::connection_type>>>;
        using sends = std::deque<started<send_operation<pair_type::endpoint_type::connection_type>>>;
        for (const std::size_t count : {1u, 2u, 5u}) {
            for (std::size_t late = 0; late <= count;
                 ++late) {  // so many sends begin behind the announcements
                const std::uint64_t crossed = pair.b.counts().announcements_crossed;
                const std::uint64_t met = pair.b.counts().announcements_met;
                std::deque<std::vector<std::byte>> from;
                std::deque<std::vector<std::byte>> into;
                sends sending;
                receives receiving;
                const auto send_one = [&] {
                    from.push_back(pattern(3000, static_cast<unsigned>(from.size() + 1)));
                    sending.emplace_back(pair.a.send(from.back(), 7));
                };
                pair.hold(true);
                for (std::size_t n = 0; n < count; ++n) {
                    into.emplace_back(3000u);
                    receiving.emplace_back(pair.b.recv(into.back(), 7));
                    if (n + late < count) send_one();
                }
                pair.from_b().held = false;
                co_await turns(5);
                while (from.size() < count) send_one();
                pair.hold(false);
                for (std::size_t n = 0; n < count; ++n) {
                    co_await receiving[n];
                    co_await sending[n];
                    CHECK(into[n] == from[n]);
                }
                CHECK(pair.b.counts().announcements_crossed - crossed == count - late);
                CHECK(pair.b.counts().announcements_met - met == late);
                // Crossing is not what announcing is turned off for here: keep it in favour.
                for (int n = 0; n < 32; ++n) {
                    auto r = start(pair.b.recv(into[0], 7));
                    co_await pair.a.send(from[0], 7);
                    co_await r;
                }
            }
        }
        CHECK(ended_of(pair) == pair.b.counts().announced);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("a message that crosses its announcement in pieces is counted once") {
    with_pair<mixed>([](mixed_pair& pair) -> task<> {
        // The eager message is still arriving when the receive is posted that it will be offered to.
        const auto little = pattern(90, 2);
        const auto data = pattern(5000);
        std::vector<std::byte> first(200);
        std::vector<std::byte> second(5000);
        pair.from_a().announces_above = 10;
        pair.from_a().piece = 30;
        pair.from_a().held = true;
        co_await pair.a.send(little, 1);
        step_to_b(pair);  // its beginning
        step_to_b(pair);
        auto r1 = start(pair.b.recv(first, 1));
        auto r2 = start(pair.b.recv(second, 1));
        CHECK(pair.b.counts().announced == 2);
        CHECK_FALSE(r1.done());
        co_await turns(5);
        // Behind it: the second announcement is for this one.
        auto sending = start(pair.a.send(data, 1));
        CHECK(sending.done());
        co_await sending;
        CHECK(second == data);
        pair.from_a().held = false;
        CHECK((co_await r1).bytes == 90);
        CHECK(std::equal(little.begin(), little.end(), first.begin()));
        CHECK((co_await r2).bytes == 5000);
        CHECK(pair.b.counts().announcements_mispredicted == 1);
        CHECK(pair.b.counts().announcements_met == 1);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("several receives of one tag and messages of every kind pair in order") {
    with_pair<mixed>([](mixed_pair& pair) -> task<> {
        // Eager; long; longer than the buffer; empty; synchronous short; long and synchronous; too long; long.
        struct one {
            std::size_t bytes;
            bool synchronous;
            std::size_t space;
        };
        const one all[] = {{50, false, 500}, {400, false, 500}, {501, false, 500},  {0, false, 500},
                           {20, true, 50},   {500, true, 500},  {2000, false, 150}, {150, false, 150}};
        for (const bool receiver_first : {true, false}) {
            std::deque<std::vector<std::byte>> from;
            std::deque<std::vector<std::byte>> into;
            std::deque<started<receive_operation<mixed_pair::endpoint_type::connection_type>>> receiving;
            std::deque<started<send_operation<mixed_pair::endpoint_type::connection_type>>> sending;
            const auto receive = [&] {
                for (const one& o : all) receiving.emplace_back(pair.b.recv(into.emplace_back(o.space), 3));
            };
            if (receiver_first) receive();
            co_await turns(5);
            for (const one& o : all) {
                from.push_back(pattern(o.bytes, static_cast<unsigned>(from.size())));
                sending.emplace_back(o.synchronous ? pair.a.ssend(from.back(), 3)
                                                   : pair.a.send(from.back(), 3));
            }
            if (!receiver_first) receive();
            for (std::size_t n = 0; n < std::size(all); ++n) {
                CAPTURE(n);
                while (!receiving[n].done()) co_await yield();
                const auto got = receiving[n].take_result();
                co_await sending[n];
                if (all[n].bytes > all[n].space) {
                    CHECK(got.error() == errc::truncated);
                    CHECK(got.info() == all[n].bytes);
                } else {
                    CHECK(got->bytes == all[n].bytes);
                    CHECK(std::equal(from[n].begin(), from[n].end(), into[n].begin()));
                }
            }
        }
        const metrics& m = pair.b.counts();
        CHECK(m.announced == 7);
        CHECK(m.announcements_met == 3);
        CHECK(m.announcements_mispredicted == 2);
        CHECK(m.announcements_crossed == 2);
        CHECK(pair.a.counts().announcements_used == 3);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("announcements of several tags are told apart") {
    with_pair<list>([](pair_type& pair) -> task<> {
        std::deque<std::vector<std::byte>> into;
        std::deque<started<receive_operation<pair_type::endpoint_type::connection_type>>> receiving;
        for (tag_type n = 0; n < 12; ++n)
            receiving.emplace_back(pair.b.recv(into.emplace_back(1000u), n % 3));
        co_await turns(5);
        unsigned sent[3] = {};
        for (const tag_type tag : {2u, 2u, 0u, 1u, 1u, 1u, 2u, 0u, 0u, 0u, 2u, 1u}) {
            const auto data = pattern(1000, static_cast<unsigned>(tag * 10 + sent[tag]++));
            auto sending = start(pair.a.send(data, tag));
            CHECK(sending.done());
            co_await sending;
        }
        for (unsigned n = 0; n < 12; ++n) {
            co_await receiving[n];
            CHECK(into[n] == pattern(1000, n % 3 * 10 + n / 3));
        }
        CHECK(pair.a.counts().announcements_used == 12);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("a receive behind a receive of its tag that was not announced uses its announcement all the same") {
    with_pair<mixed>([](mixed_pair& pair) -> task<> {
        std::vector<std::byte> little(100);
        std::vector<std::byte> into(1000);
        const auto data = pattern(1000);
        auto r0 = start(pair.b.recv(little, 1));  // as long as eager messages
        auto r1 = start(pair.b.recv(into, 1));
        CHECK(pair.b.counts().announced == 1);
        co_await turns(3);
        co_await pair.a.send(std::span(data).first(100), 1);
        auto sending = start(pair.a.send(data, 1));
        CHECK(sending.done());
        co_await sending;
        co_await r0;
        co_await r1;
        CHECK(std::equal(little.begin(), little.end(), data.begin()));
        CHECK(into == data);
        CHECK(pair.a.counts().announcements_used == 1);
    });
}

TEST_CASE("an announcement that has seen too little is dropped") {
    with_rendezvous_peer<mixed>([](mixed_peer& peer) -> task<> {
        std::vector<std::byte> there(700);
        const auto data = pattern(700);
        const region open = peer.link().expose(there, access_rights::remote_write);
        const auto announce = [&](std::uint64_t seen, std::uint32_t number, tag_type tag) {
            peer.say_raw(static_cast<std::uint8_t>(static_cast<int>(sp::announce) + 1), tag,
                         announce_body(number, 0, seen, {open.remote()}));
        };
        for (int n = 0; n < 1025; ++n) co_await peer.self().send({}, 5);
        announce(0, 0, 6);  // of 1025 messages the first is forgotten
        announce(1, 1, 7);
        announce(2, 2, 5);  // one of tag 5 has gone since
        co_await turns(5);
        peer.heard().clear();
        auto first = start(peer.self().send(data, 6));
        CHECK_FALSE(first.done());
        auto second = start(peer.self().send(data, 7));
        CHECK(second.done());
        CHECK(there == data);
        auto third = start(peer.self().send(data, 5));
        CHECK_FALSE(third.done());
        CHECK(peer.self().counts().announcements_used == 1);
        peer.say_raw(11, 0, {});
        peer.say_raw(11, 1, {});
        co_await first;
        co_await second;
        co_await third;
    });
}

TEST_CASE("receives that may take other messages are not announced, nor those behind one that overlaps") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        std::vector<std::byte> into(1000);
        const auto announced = [&] { return peer.self().counts().announced; };
        auto lent = start(peer.self().recv_lent(1));
        CHECK(announced() == 0);
        auto masked = start(peer.self().recv(into, tag_match(0x10, 0xf0)));
        CHECK(announced() == 0);
        auto behind = start(peer.self().recv(into, 0x15));
        CHECK(announced() == 0);
        auto beside = start(peer.self().recv(into, 0x25));
        CHECK(announced() == 1);
        auto empty = start(peer.self().recv({}, 0x26));
        CHECK(announced() == 1);
        auto any = start(peer.self().recv(into, any_tag));
        auto last = start(peer.self().recv(into, 0x27));
        CHECK(announced() == 1);
        for (const tag_type tag : {1u, 0x11u, 0x15u, 0x25u, 0x26u, 0x99u, 0x27u})
            say(peer, rv::request, tag, request_body(static_cast<std::uint32_t>(tag), 0));
        co_await lent;
        co_await masked;
        co_await behind;
        co_await beside;
        co_await empty;
        co_await any;
        co_await last;
        CHECK(peer.self().is_open());
    });
}

TEST_CASE("no more than 64 announcements are out at a time") {
    with_pair<list>([](pair_type& pair) -> task<> {
        std::deque<std::vector<std::byte>> into;
        std::deque<started<receive_operation<pair_type::endpoint_type::connection_type>>> receiving;
        for (int n = 0; n < 70; ++n) receiving.emplace_back(pair.b.recv(into.emplace_back(50u), 1));
        CHECK(pair.b.counts().announced == 64);
        co_await turns(3);
        for (unsigned n = 0; n < 70; ++n) co_await pair.a.send(pattern(50, n), 1);
        for (unsigned n = 0; n < 70; ++n) {
            co_await receiving[n];
            CHECK(into[n] == pattern(50, n));
        }
        CHECK(pair.a.counts().announcements_used == 64);
        CHECK(pair.at_rest());
    });
}

TEST_CASE(
    "a receive of scattered memory is announced in its pieces; one of too many, or not exposed, is not") {
    with_pair<list>([](pair_type& pair) -> task<> {
        for (const std::size_t pieces : {1u, 3u, 16u, 17u}) {
            scattered into(pieces, 40, 5);
            const auto data = pattern(pieces * 40);
            auto receiving = start(pair.b.recv(into.into(), 1));
            co_await turns(3);
            auto sending =
                start(pair.a.send(gather(std::span(data).first(33), std::span(data).subspan(33)), 1));
            co_await receiving;
            co_await sending;
            CHECK(into.gathered(data.size()) == data);
            CHECK(into.gaps_untouched());
        }
        CHECK(pair.b.counts().announced == 3);
        CHECK(pair.a.counts().announcements_used == 3);
        pair.from_b().exposures = 2;
        scattered into(3, 40, 5);
        auto receiving = start(pair.b.recv(into.into(), 1));
        CHECK(pair.b.counts().announced == 3);
        CHECK(pair.domain.regions().registered() == 0);
        co_await pair.a.send({}, 1);
        co_await receiving;
        CHECK(pair.at_rest());
    });
}
