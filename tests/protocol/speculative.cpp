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
        auto answer_1 = co_await peer.hear();
        CHECK(detail::load_number<std::uint32_t>(answer_1.payload.data()) == 0);
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
        auto answer_2 = co_await peer.hear();
        CHECK(detail::load_number<std::uint32_t>(answer_2.payload.data()) == 1);
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
        auto answer_3 = co_await peer.hear();
        CHECK(is(answer_3, rv::request));
        say(peer, rv::received, 0);
        co_await sending;
        // Claimed, refused and then revoked: the memory was taken back in between.
        say(peer, sp::announce, 1, announce_body(0, 0, 1, {open.remote()}));
        co_await turns(3);
        open.reset();
        auto second = start(peer.self().send(data, 1));
        auto answer_4 = co_await peer.hear();
        CHECK(is(answer_4, sp::claim));
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
            auto answer_5 = co_await receiving;
            CHECK(answer_5.bytes == bytes);
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
        auto answer_6 = co_await r1;
        CHECK(answer_6.bytes == 90);
        CHECK(std::equal(little.begin(), little.end(), first.begin()));
        auto answer_7 = co_await r2;
        CHECK(answer_7.bytes == 5000);
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

// ---- the published counter-examples

TEST_CASE(
    "the first published counter-example: a receive that says nothing is met before two that are announced") {
    with_pair<list>([](pair_type& pair) -> task<> {
        std::vector<std::byte> into[3];
        for (auto& memory : into) memory.resize(2000);
        const std::vector<std::byte> from[3] = {pattern(2000, 1), pattern(2000, 2), pattern(2000, 3)};
        pair.hold(true);
        pair.from_b().defers_one_sided = true;
        auto send0 = start(pair.a.send(from[0], 1));        // says its request
        auto recv0 = start(pair.b.recv(into[0], any_tag));  // waits, and announces nothing
        step_to_b(pair);                                    // the request finds receive 0
        auto recv1 = start(pair.b.recv(into[1], 1));
        auto recv2 = start(pair.b.recv(into[2], 1));
        CHECK(pair.b.counts().announced == 2);
        step_to_a(pair);  // announcement 1, while send 0 is not done
        step_to_a(pair);  // announcement 2
        CHECK_FALSE(send0.done());
        auto send1 = start(pair.a.send(from[1], 1));
        CHECK(into[1] == from[1]);
        CHECK(all_are(into[2], 0));
        auto send2 = start(pair.a.send(from[2], 1));
        CHECK(into[2] == from[2]);
        pair.hold(false);
        co_await send0;
        co_await send1;
        co_await send2;
        co_await recv0;
        co_await recv1;
        co_await recv2;
        for (unsigned n = 0; n < 3; ++n) CHECK(into[n] == from[n]);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("the second published counter-example: a send that passed an announcement by takes no later one") {
    with_pair<mixed>([](mixed_pair& pair) -> task<> {
        std::vector<std::byte> into[5];
        std::vector<std::byte> from[5];
        for (unsigned n = 0; n < 5; ++n) {
            into[n].resize(2000);
            from[n] = pattern(n == 0 ? 50 : 2000, n + 1);
        }
        pair.hold(true);
        pair.from_b().defers_one_sided = true;
        auto send0 = start(pair.a.send(from[0], 1));  // eager
        auto recv0 = start(pair.b.recv(into[0], any_tag));
        step_to_b(pair);
        auto recv1 = start(pair.b.recv(into[1], 1));
        auto recv2 = start(pair.b.recv(into[2], 1));
        auto send1 = start(pair.a.send(from[1], 1));  // asks, while announcement 1 is on its way
        step_to_a(pair);
        step_to_a(pair);
        step_to_b(pair);  // request 1 finds receive 1
        pair.from_b().held = false;
        co_await turns(5);  // send 1 is done
        CHECK(send1.done());
        pair.from_b().held = true;
        auto recv3 = start(pair.b.recv(into[3], 1));
        auto recv4 = start(pair.b.recv(into[4], 1));
        pair.from_a().defers_one_sided = true;
        auto send2 = start(pair.a.send(from[2], 1));  // where announcement 2 said; its put takes a while
        CHECK_FALSE(send2.done());
        step_to_a(pair);
        step_to_a(pair);
        pair.from_a().defers_one_sided = false;
        auto send3 = start(pair.a.send(from[3], 1));
        CHECK(into[3] == from[3]);
        CHECK(all_are(into[4], 0));
        auto send4 = start(pair.a.send(from[4], 1));
        CHECK(into[4] == from[4]);
        pair.hold(false);
        co_await send0;
        co_await send1;
        co_await send2;
        co_await send3;
        co_await send4;
        co_await recv0;
        co_await recv1;
        co_await recv2;
        co_await recv3;
        co_await recv4;
        for (unsigned n = 0; n < 5; ++n) CHECK(std::equal(from[n].begin(), from[n].end(), into[n].begin()));
        CHECK(pair.a.counts().announcements_used == 3);
        CHECK(pair.b.counts().announcements_crossed == 1);
        CHECK(pair.at_rest());
    });
}

// ---- cancellation

TEST_CASE("canceling a receive takes back the announcements that count on it, before it ends") {
    with_rendezvous_peer<mixed>([](mixed_peer& peer) -> task<> {
        constexpr int announce = 16, claim = 17, finish = 18, withdraw = 19, withdrawn = 20;
        const auto data = pattern(1000);
        std::vector<std::byte> little(50);
        std::vector<std::byte> into[3];
        for (auto& memory : into) memory.resize(1000);
        local_stop_source stop;
        auto first = start(as_result(with_stop(peer.self().recv(little, 1), stop.get_token())));
        auto other = start(peer.self().recv(into[2], 2));
        auto r1 = start(peer.self().recv(into[0], 1));
        auto r2 = start(peer.self().recv(into[1], 1));
        co_await turns(3);
        REQUIRE(peer.heard().size() == 3);
        for (const heard_message& m : peer.heard()) CHECK(m.header.kind == announce);
        const remote_region where = pieces_of(peer.heard()[1], 16)[0];
        CHECK(peer.heard()[1].payload == announce_body(1, 1, 0, {where}));
        CHECK(detail::load_number<std::uint32_t>(peer.heard()[2].payload.data() + 4) == 2);
        peer.heard().clear();
        stop.request_stop();
        co_await turns(3);
        REQUIRE(peer.heard().size() == 2);
        for (const heard_message& m : peer.heard()) CHECK(m.header.kind == withdraw);
        CHECK_FALSE(first.done());
        peer.heard().clear();
        // No receive of the tag is announced meanwhile.
        std::vector<std::byte> more(1000);
        auto r3 = start(peer.self().recv(more, 1));
        co_await turns(3);
        CHECK(peer.heard().empty());
        peer.say_raw(withdrawn, 1, {});
        co_await turns(3);
        CHECK_FALSE(first.done());
        peer.say_raw(withdrawn, 2, {});
        const auto ended = co_await first;
        CHECK(ended.error() == errc::canceled);
        std::fill(little.begin(), little.end(), std::byte{0xaa});
        // From now on they take messages one earlier, by request.
        for (int n = 0; n < 3; ++n) peer.say_raw(8, 1, pattern(100, static_cast<unsigned>(n)));
        co_await r1;
        co_await r2;
        co_await r3;
        CHECK(std::equal(into[0].begin(), into[0].begin() + 100, pattern(100, 0).begin()));
        CHECK(all_are(little, 0xaa));
        peer.say_raw(claim, 0, length(7));
        peer.say_raw(finish, 0, {});
        co_await other;
        CHECK(peer.self().counts().announcements_withdrawn == 2);
        CHECK(peer.self().is_open());
    });
}

TEST_CASE("what comes before the answer to withdraw counts: a message, or a claim that is then revoked") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        auto data = pattern(1000);
        const region source = peer.link().expose(data, access_rights::remote_read);
        for (const bool claims : {false, true}) {
            std::vector<std::byte> into(1000);
            std::vector<std::byte> behind(1000);
            local_stop_source stop;
            auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
            auto second = start(peer.self().recv(behind, 1));
            const heard_message announced = co_await peer.hear();
            const heard_message announced2 = co_await peer.hear();
            const auto id = detail::load_number<std::uint32_t>(announced.payload.data());
            const auto id2 = detail::load_number<std::uint32_t>(announced2.payload.data());
            stop.request_stop();
            auto answer_8 = co_await peer.hear();
            CHECK(is(answer_8, sp::withdraw));
            auto answer_9 = co_await peer.hear();
            CHECK(is(answer_9, sp::withdraw));
            if (claims) {
                say(peer, sp::claim, id, length(1000));
                auto answer_10 = co_await peer.hear();
                CHECK(is(answer_10, sp::revoke));
                const auto ended = co_await receiving;
                CHECK(ended.error() == errc::canceled);
                std::fill(into.begin(), into.end(), std::byte{0xaa});
                say(peer, sp::withdrawn, id);
                say(peer, sp::finish, id, {}, 1);
            } else {
                say(peer, rv::request, 1, request_body(0, 1000, {source.remote()}));
                const auto got = co_await receiving;
                REQUIRE(got);
                CHECK(into == data);
                auto answer_11 = co_await peer.hear();
                CHECK(is(answer_11, rv::received));
                say(peer, sp::withdrawn, id);
            }
            say(peer, sp::withdrawn, id2);
            co_await turns(3);
            CHECK_FALSE(second.done());
            say(peer, rv::request, 1, request_body(1, 1000, {source.remote()}));
            co_await second;
            CHECK(behind == data);
            auto answer_12 = co_await peer.hear();
            CHECK(is(answer_12, rv::received));
            if (claims) CHECK(all_are(into, 0xaa));
        }
        CHECK(peer.self().is_open());
        const metrics& m = peer.self().counts();
        CHECK(m.announced == 4);
        CHECK(m.announcements_met == 1);
        CHECK(m.announcements_crossed == 1);
        CHECK(m.announcements_withdrawn == 2);
    });
}

TEST_CASE("a canceled receive does not wait for the whole of a message that it meets meanwhile") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        std::vector<std::byte> into(1000);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        co_await peer.hear();
        stop.request_stop();
        auto answer_13 = co_await peer.hear();
        CHECK(is(answer_13, sp::withdraw));
        say(peer, rv::request, 1, request_body(0, 1000));  // and then the peer never puts
        auto answer_14 = co_await peer.hear();
        CHECK(is(answer_14, rv::ready));
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        auto answer_15 = co_await peer.hear();
        CHECK(is(answer_15, rv::withdraw));
        say(peer, sp::withdrawn, 0);
        say(peer, rv::sent, 0, {}, 1);
        co_await turns(3);
        CHECK(peer.self().is_open());
        CHECK(peer.self().connection().box().matching().posted() == 0);
    });
}

TEST_CASE("time limits on announced receives give the buffer back for good, wherever the message is") {
    for (const bool the_at_once : {true, false}) {
        for (const bool the_defers : {true, false}) {
            for (int the_step = 0; the_step < 6; ++the_step) {
                CAPTURE(the_at_once);
                CAPTURE(the_defers);
                CAPTURE(the_step);
                virtual_time world;
                world.run([](scheduler& on, bool at_once, bool defers, int step) -> task<> {
                    pair_type pair(on);
                    pair.wire->offered.revokes_at_once = at_once;
                    co_await pair.open();
                    const auto data = pattern(3000);
                    std::vector<std::byte> into(3000);
                    pair.from_a().defers_one_sided = defers;
                    local_stop_source stop;
                    pair.hold(true);
                    auto receiving = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
                    if (step > 0) step_to_a(pair);  // announced
                    auto sending = start(pair.a.send(data, 1));
                    if (step > 1) step_to_b(pair);  // the claim
                    if (step > 2) step_to_b(pair);  // finish, where the put was done at once
                    stop.request_stop();
                    if (step > 3) step_to_a(pair);  // withdraw, or revoke
                    if (step > 4) {
                        pair.from_a().held = false;
                        pair.a.connection().poll(1);  // the put
                        pair.from_a().held = true;
                    }
                    if (!receiving.done()) pair.hold(false);
                    const auto ended = co_await receiving;
                    if (ended) {
                        CHECK(into == data);
                    } else {
                        CHECK(ended.error() == errc::canceled);
                    }
                    std::fill(into.begin(), into.end(), std::byte{0xaa});
                    pair.hold(false);
                    co_await turns(10);
                    if (!sending.done()) {  // it did not meet the receive that was canceled
                        std::vector<std::byte> other(3000);
                        co_await pair.b.recv(other, 1);
                        CHECK(other == data);
                    }
                    co_await sending;
                    CHECK(all_are(into, 0xaa));
                    CHECK(pair.a.is_open());
                    CHECK(pair.b.is_open());
                    CHECK(pair.at_rest());
                    // The count of messages is the same at both ends: the next announcement is used.
                    pair.from_a().defers_one_sided = false;
                    const std::uint64_t used = pair.a.counts().announcements_used;
                    auto again = start(pair.b.recv(into, 1));
                    co_await pair.a.send(data, 1);
                    co_await again;
                    CHECK(into == data);
                    CHECK(pair.a.counts().announcements_used == used + 1);
                    CHECK(ended_of(pair) == pair.b.counts().announced);
                }(world.on, the_at_once, the_defers, the_step));
            }
        }
    }
}

TEST_CASE("control messages that find no room are said when there is some") {
    for (int the_what = 0; the_what < 4; ++the_what) {
        CAPTURE(the_what);
        virtual_time world;
        world.run([](scheduler& on, int what) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            co_await turns(3);
            const auto data = pattern(3000);
            std::vector<std::byte> into(3000);
            local_stop_source stop;
            if (what == 0) pair.from_b().room = 0;  // nothing is announced, nor owed
            auto receiving = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
            CHECK(pair.b.counts().announced == (what == 0 ? 0u : 1u));
            if (what == 0) pair.from_b().room = loopback_lane::unlimited;
            co_await turns(3);
            if (what == 1) {  // withdraw
                pair.from_b().room = 0;
                stop.request_stop();
                co_await turns(5);
                CHECK_FALSE(receiving.done());
                pair.from_b().room = loopback_lane::unlimited;
                auto answer_16 = co_await receiving;
                CHECK_FALSE(answer_16);
            } else if (what == 2) {  // claim, then finish
                pair.from_a().room = 0;
                auto sending = start(pair.a.send(data, 1));
                co_await turns(3);
                CHECK(pair.a.counts().room_waits == 1);
                CHECK(all_are(into, 0));
                pair.from_a().held = true;
                pair.from_a().room = 1;
                co_await turns(3);
                CHECK(into == data);
                CHECK_FALSE(sending.done());
                auto closing = start(pair.a.close());  // its goodbye waits, too
                pair.from_a().held = false;
                co_await sending;
                auto answer_17 = co_await receiving;
                CHECK(answer_17);
                co_await closing;
                co_return;
            } else if (what == 3) {  // revoke
                pair.from_a().defers_one_sided = true;
                auto sending = start(pair.a.send(data, 1));
                pair.from_a().one_sided_steps = 0;
                co_await turns(3);
                pair.from_b().room = 0;
                stop.request_stop();
                co_await turns(3);
                CHECK_FALSE(receiving.done());
                pair.from_b().room = loopback_lane::unlimited;
                auto answer_18 = co_await receiving;
                CHECK_FALSE(answer_18);
                std::fill(into.begin(), into.end(), std::byte{0xaa});
                pair.from_a().one_sided_steps = loopback_lane::unlimited;
                co_await sending;
                CHECK(all_are(into, 0xaa));
            } else {
                co_await pair.a.send(data, 1);
                auto answer_19 = co_await receiving;
                CHECK(answer_19);
                CHECK(into == data);
            }
            co_await turns(5);
            CHECK(pair.at_rest());
            CHECK(ended_of(pair) == pair.b.counts().announced);
            co_await when_all(pair.a.close(), pair.b.close());
        }(world.on, the_what));
    }
}

// ---- endings

TEST_CASE("a goodbye from either side ends announced receives") {
    for (const bool the_receiver_leaves : {true, false}) {
        virtual_time world;
        world.run([](scheduler& on, bool receiver_leaves) -> task<> {
            pair_type pair(on);
            co_await pair.open();
            std::vector<std::byte> into(3000);
            std::vector<std::byte> more(3000);
            local_stop_source stop;
            auto first = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
            auto second = start(as_result(pair.b.recv(more, 1)));
            co_await turns(3);
            pair.from_a().held = true;
            stop.request_stop();  // not answered before the goodbye
            if (receiver_leaves) {
                auto closing = start(pair.b.close());
                co_await turns(3);
                pair.from_a().held = false;
                co_await closing;
            } else {
                auto closing = start(pair.a.close());
                co_await turns(3);
                pair.from_a().held = false;
                co_await closing;
            }
            auto answer_20 = co_await first;
            CHECK_FALSE(answer_20);
            const auto ended = co_await second;
            CHECK(ended.error() == errc::closed);
            CHECK(pair.domain.regions().registered() == 0);
        }(world.on, the_receiver_leaves));
    }
}

TEST_CASE("a link that goes down ends what is announced, claimed, withdrawn and revoked, at both ends") {
    for (int the_step = 0; the_step < 5; ++the_step) {
        for (const bool the_at_once : {true, false}) {
            CAPTURE(the_step);
            CAPTURE(the_at_once);
            virtual_time world;
            world.run([](scheduler& on, int step, bool at_once) -> task<> {
                pair_type pair(on);
                pair.wire->offered.revokes_at_once = at_once;
                co_await pair.open();
                const auto data = pattern(3000);
                std::vector<std::byte> into(3000);
                std::vector<std::byte> more(3000);
                local_stop_source stop;
                pair.from_a().defers_one_sided = true;
                auto first = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
                auto second = start(as_result(pair.b.recv(more, 1)));
                co_await turns(3);
                pair.hold(true);
                std::optional<started<task<result<void>>>> sending;
                if (step > 1) {
                    sending.emplace(
                        [](pair_type& p, const std::vector<std::byte>& from) -> task<result<void>> {
                            co_return co_await as_result(p.a.send(from, 1));
                        }(pair, data));
                }
                if (step > 2) step_to_b(pair);  // the claim
                if (step % 2 == 1) stop.request_stop();
                if (step == 4) {
                    stop.request_stop();
                    step_to_a(pair);  // revoke
                }
                pair.b.abort();
                std::fill(into.begin(), into.end(), std::byte{0xaa});
                pair.hold(false);
                auto answer_21 = co_await first;
                CHECK_FALSE(answer_21);
                auto answer_22 = co_await second;
                CHECK_FALSE(answer_22);
                if (sending) static_cast<void>(co_await *sending);
                co_await turns(5);
                CHECK_FALSE(pair.a.is_open());
                CHECK(pair.domain.regions().registered() == 0);
                if (at_once) CHECK(all_are(into, 0xaa));
            }(world.on, the_step, the_at_once));
        }
    }
}

// ---- adaptation

TEST_CASE("announcing stops where it does not pay and comes back when the program changes") {
    with_pair<mixed>([](mixed_pair& pair) -> task<> {
        const auto data = pattern(1000);
        std::vector<std::byte> into(1000);
        for (int phase = 1; phase <= 2; ++phase) {
            for (int n = 0; n < 64; ++n) {  // receives far longer than their messages
                auto receiving = start(pair.b.recv(into, 1));
                co_await pair.a.send(std::span(data).first(10), 1);
                co_await receiving;
            }
            CHECK(pair.b.counts().speculation_stopped == static_cast<unsigned>(phase));
            const std::uint64_t announced = pair.b.counts().announced;
            for (int n = 0; n < 100; ++n) {  // what they were announced for
                auto receiving = start(pair.b.recv(into, 1));
                co_await turns(2);
                auto sending = start(pair.a.send(data, 1));
                co_await receiving;
                co_await sending;
            }
            CHECK(pair.b.counts().speculation_resumed == static_cast<unsigned>(phase));
            CHECK(pair.b.counts().announced > announced + 50);
        }
        CHECK(pair.b.counts().announcements_mispredicted > 16);
        CHECK(pair.b.counts().announcements_met == pair.a.counts().announcements_used);
        CHECK(ended_of(pair) == pair.b.counts().announced);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("announcements that always cross are given up, and tried ever more rarely") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(1000);
        std::vector<std::byte> into(1000);
        for (int n = 0; n < 2000; ++n) {
            pair.hold(true);
            auto sending = start(pair.a.send(data, 1));
            auto receiving = start(pair.b.recv(into, 1));
            pair.hold(false);
            co_await receiving;
            co_await sending;
        }
        const metrics& m = pair.b.counts();
        CHECK(m.announcements_met == 0);
        CHECK(m.announcements_crossed == m.announced);
        CHECK(m.speculation_stopped >= 4);
        CHECK(m.speculation_stopped <= 8);
        CHECK(m.announced <= 8 * 16);
    });
}

// ---- mailboxes

TEST_CASE(
    "in a mailbox receives from one peer are announced to it; those from any are not, nor behind them") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        mailbox<loopback, list> box(on);
        std::deque<pair_type> pairs;
        peer_id ids[2];
        const auto data = pattern(1000);
        std::vector<std::byte> into[4];
        for (auto& memory : into) memory.resize(1000);
        for (peer_id& id : ids) {
            pair_type& pair = pairs.emplace_back(on);
            co_await pair.open();
            // A message that waits is counted once, here and in the mailbox.
            auto early = start(pair.a.send({}, 9));
            co_await turns(5);
            id = box.attach(std::move(pair.b));
            co_await box.recv({}, 9, id);
            co_await early;
        }
        auto from_first = start(box.recv(into[0], 1, ids[0]));
        auto from_second = start(box.recv(into[1], 1, ids[1]));
        CHECK(box.counts(ids[0]).announced == 1);
        CHECK(box.counts(ids[1]).announced == 1);
        co_await turns(3);
        auto s1 = start(pairs[1].a.send(data, 1));
        CHECK(s1.done());
        CHECK(into[1] == data);
        co_await s1;
        co_await from_second;
        CHECK(all_are(into[0], 0));
        auto any = start(box.recv(into[2], 2));
        auto behind = start(box.recv(into[3], 2, ids[0]));
        CHECK(box.counts(ids[0]).announced == 1);
        // Canceling what is announced to one leaves the others alone.
        local_stop_source stop;
        std::vector<std::byte> more(1000);
        auto canceled = start(as_result(with_stop(box.recv(more, 1, ids[0]), stop.get_token())));
        stop.request_stop();
        auto answer_23 = co_await canceled;
        CHECK_FALSE(answer_23);
        co_await pairs[0].a.send(data, 1);
        co_await from_first;
        auto s2 = start(pairs[1].a.send(data, 2));
        co_await any;
        co_await s2;
        auto s3 = start(pairs[0].a.send(data, 2));
        co_await behind;
        co_await s3;
        for (const auto& memory : into) CHECK(memory == data);
        CHECK(pairs[0].a.counts().announcements_used == 1);
        co_await box.close();
    }(world.on));
}

// ---- what a hostile peer says

namespace {

/// The link has ended as it should, and quickly.
template <class Peer>
task<> ends(Peer& peer, std::error_code why = make_error_code(errc::protocol_violation)) {
    co_await turns(5);
    CHECK_FALSE(peer.self().is_open());
    CHECK(peer.self().connection().reason() == why);
}

}  // namespace

TEST_CASE("announcements that cannot be end the link") {
    struct wrong {
        std::uint32_t number;
        std::uint64_t seen;
        std::uint64_t bytes;
        std::uint32_t pieces;
    };
    for (const wrong each : {wrong{64, 0, 100, 1}, wrong{0xffffffff, 0, 100, 1}, wrong{0, 1, 100, 1},
                             wrong{0, ~std::uint64_t{0}, 100, 1}, wrong{0, 0, 0, 1}, wrong{0, 0, 100, 0},
                             wrong{0, 0, std::uint64_t{1} << 63, 1}, wrong{0, 0, std::uint64_t{1} << 63, 2},
                             wrong{0, 0, 100, 17}}) {
        virtual_time world;
        world.run([](scheduler& on, wrong w) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            auto body = announce_body(w.number, 0, w.seen, {});
            for (std::uint32_t n = 0; n < w.pieces; ++n) append(body, {remote_region{4096, w.bytes, 1}});
            say(peer, sp::announce, 1, body);
            co_await ends(peer);
        }(world.on, each));
    }
    for (const std::size_t the_bytes : {0u, 15u, 17u, 39u, 41u}) {
        virtual_time world;
        world.run([](scheduler& on, std::size_t bytes) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            auto body = announce_body(0, 0, 0, {remote_region{4096, 100, 1}, remote_region{4096, 100, 1}});
            body.resize(bytes);
            say(peer, sp::announce, 1, body);
            co_await ends(peer);
        }(world.on, the_bytes));
    }
}

TEST_CASE("a number that is in use, and an announcement that has seen less than the last, end the link") {
    for (int the_what = 0; the_what < 4; ++the_what) {
        CAPTURE(the_what);
        virtual_time world;
        world.run([](scheduler& on, int what) -> task<> {
            peer_type peer(on);
            co_await peer.open(1u << 20);
            std::vector<std::byte> there(100);
            const region open = peer.link().expose(there, access_rights::remote_write);
            auto first = start(as_result(peer.self().send({}, 3)));
            co_await turns(3);
            say(peer, rv::received, 0);
            auto answer_24 = co_await first;
            CHECK(answer_24);
            say(peer, sp::announce, 1, announce_body(0, 0, 1, {open.remote()}));
            std::optional<started<task<result<void>>>> sending;
            if (what >= 2) {  // claimed, and being put
                co_await turns(3);
                peer.to_peer().defers_one_sided = true;
                peer.to_peer().one_sided_steps = 0;
                sending.emplace([](peer_type& p, std::span<const std::byte> from) -> task<result<void>> {
                    co_return co_await as_result(p.self().send(from, 1));
                }(peer, std::span(there)));
            }
            say(peer, sp::announce, 2,
                announce_body(what == 1 ? 1 : 0, 0, what == 1 ? 0 : 1, {open.remote()}));
            co_await ends(peer);
            if (sending) {
                auto answer_25 = co_await *sending;
                CHECK_FALSE(answer_25);
            }
        }(world.on, the_what));
    }
}

TEST_CASE("an announcement of memory that is not the peer's is refused, and the link ends a second later") {
    virtual_time world;
    world.run([](scheduler& on, virtual_time& w) -> task<> {
        peer_type peer(on);
        co_await peer.open();
        std::vector<std::byte> there(100);
        const auto data = pattern(200);
        const region open = peer.link().expose(std::span(there).first(50), access_rights::remote_write);
        const remote_region honest = open.remote();
        say(peer, sp::announce, 1, announce_body(0, 0, 0, {remote_region{honest.address, 100, honest.key}}));
        co_await turns(3);
        const duration before = w.now();
        auto sending = start(as_result(peer.self().send(std::span(data).first(100), 1)));
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::protocol_violation);
        CHECK(w.now() - before == std::chrono::seconds(1));
        CHECK(all_are(there, 0));
        CHECK_FALSE(peer.self().is_open());
    }(world.on, world));
}

TEST_CASE("each refused put has its own second") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        peer_type peer(on);
        co_await peer.open();
        std::vector<std::byte> there(100);
        const auto data = pattern(100);
        for (const std::uint32_t number : {0u, 1u}) {
            region open = peer.link().expose(there, access_rights::remote_write);
            say(peer, sp::announce, 1, announce_body(number, 0, number, {open.remote()}));
            co_await turns(3);
            open.reset();
            auto sending = start(as_result(peer.self().send(data, 1)));
            co_await sleep_for(std::chrono::milliseconds(700));
            CHECK_FALSE(sending.done());
            say(peer, sp::revoke, number);
            auto answer_26 = co_await sending;
            CHECK(answer_26);
        }
        CHECK(peer.self().is_open());
        CHECK(all_are(there, 0));
    }(world.on));
}

TEST_CASE("claims, finishes and answers of what was never asked for end the link") {
    struct words {
        sp kind;
        tag_type number;
        std::uint64_t bytes;  ///< of the claim; others have no payload
        std::uint8_t flags;
    };
    using script = std::vector<words>;
    const script scripts[] = {
        {{sp::claim, 1, 10, 0}},                         // never announced
        {{sp::claim, ~tag_type{0}, 10, 0}},              //
        {{sp::claim, 0, 101, 0}},                        // longer than the buffer
        {{sp::claim, 0, 0, 0}},                          //
        {{sp::claim, 0, ~std::uint64_t{0}, 0}},          //
        {{sp::claim, 0, 10, 0}, {sp::claim, 0, 10, 0}},  // twice
        {{sp::finish, 0, 0, 0}},                         // never started
        {{sp::finish, 5, 0, 0}},                         //
        {{sp::claim, 0, 10, 0}, {sp::finish, 0, 0, 1}},  // not revoked
        {{sp::claim, 0, 10, 0}, {sp::finish, 0, 0, 3}},  //
        {{sp::claim, 0, 10, 0}, {sp::finish, 0, 0, 0}, {sp::finish, 0, 0, 0}},
        {{sp::claim, 0, 10, 0}, {sp::finish, 0, 0, 0}, {sp::claim, 0, 10, 0}},
        {{sp::withdrawn, 0, 0, 0}},            // not asked
        {{sp::withdrawn, 77, 0, 0}},           //
        {{sp::withdraw, 0, 0, 0}},             // never announced by the peer
        {{sp::withdraw, ~tag_type{0}, 0, 0}},  //
        {{sp::revoke, 0, 0, 0}},               //
        {{sp::revoke, 63, 0, 0}},              //
    };
    for (const script& each : scripts) {
        CAPTURE(&each - scripts);
        virtual_time world;
        world.run([](scheduler& on, const script& s) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            std::vector<std::byte> memory(300, std::byte{0x55});
            auto receiving = start(as_result(peer.self().recv(std::span(memory).subspan(100, 100), 1)));
            co_await turns(3);
            for (const words& w : s)
                say(peer, w.kind, w.number, w.kind == sp::claim ? length(w.bytes) : std::vector<std::byte>{},
                    w.flags);
            co_await ends(peer);
            static_cast<void>(co_await receiving);
            CHECK(all_are(memory, 0x55));
        }(world.on, each));
    }
}

TEST_CASE("an announcement is withdrawn once, and a claimed one revoked once") {
    for (int the_what = 0; the_what < 5; ++the_what) {
        CAPTURE(the_what);
        virtual_time world;
        world.run([](scheduler& on, int what) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            std::vector<std::byte> there(100);
            const auto data = pattern(100);
            const region open = peer.link().expose(there, access_rights::remote_write);
            say(peer, sp::announce, 1, announce_body(0, 0, 0, {open.remote()}));
            co_await turns(3);
            if (what == 0) {  // answered, and asked again
                say(peer, sp::withdraw, 0);
                co_await turns(3);
                say(peer, sp::withdraw, 0);
            } else if (what == 1) {  // revoked before it was claimed
                say(peer, sp::revoke, 0);
            } else {
                co_await peer.self().send(data, 1);
                say(peer, sp::revoke, 0);    // crosses finish: harmless
                say(peer, sp::withdraw, 0);  // crosses the claim: harmless
                co_await turns(3);
                CHECK(peer.self().is_open());
                if (what == 2) say(peer, sp::revoke, 0);
                if (what == 3) say(peer, sp::withdraw, 0);
                if (what == 4) say(peer, sp::withdraw, 0, length(1));
            }
            co_await ends(peer);
        }(world.on, the_what));
    }
}

// ---- everything at once

namespace {

/// Random programs: sends and receives of a few tags and all lengths, canceled here and there, in random order with the
/// steps of the network. Held against what any order has to keep.
class random_program {
public:
    random_program(scheduler& on, unsigned seed) : random_(seed), pair_(on) {}

    task<> run() {
        pair_.wire->offered.revokes_at_once = chance(2);
        pair_.from_a().defers_one_sided = chance(2);
        pair_.from_b().defers_one_sided = chance(2);
        co_await pair_.open();
        if (chance(2)) {
            pair_.from_a().announces_above = 64;  // no control message is as long
            pair_.from_a().piece = 25;
        }
        pair_.hold(true);
        if (chance(3)) pair_.from_a().room = pair_.from_b().room = 3;
        {
            task_group group;
            for (int n = 0; n < 60; ++n) {
                switch (random_() % 8) {
                    case 0:
                    case 1: group.spawn(send_one, this, &sends_.emplace_back()); break;
                    case 2:
                    case 3: group.spawn(receive_one, this, &receives_.emplace_back()); break;
                    case 4:
                        if (!receives_.empty()) receives_[random_() % receives_.size()].stop.request_stop();
                        break;
                    case 5:
                        if (chance(4) && !sends_.empty())
                            sends_[random_() % sends_.size()].stop.request_stop();
                        break;
                    case 6: step_to_a(pair_); break;
                    default: step_to_b(pair_); break;
                }
                if (chance(2)) co_await yield();
            }
            pair_.hold(false);
            co_await turns(200);
            for (receive_state& r : receives_) r.stop.request_stop();
            co_await turns(50);
            for (send_state& s : sends_) s.stop.request_stop();
            co_await group.join();
        }
        co_await turns(20);
        check();
    }

private:
    struct send_state {
        std::vector<std::byte> data;
        tag_type tag = 0;
        std::size_t place = 0;
        local_stop_source stop;
        bool canceled = false;
    };
    struct receive_state {
        std::vector<std::byte> memory;
        std::optional<tag_type> tag;
        std::size_t place = 0;
        local_stop_source stop;
        std::error_code outcome;
        std::size_t message = none;  // the send's place
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    bool chance(unsigned in) { return random_() % in == 0; }

    static task<> send_one(random_program* self, send_state* s) {
        s->place = self->begun_sends_++;
        s->tag = self->random_() % 2;
        const std::size_t sizes[] = {16, 60, 100, 101, 400, 1500};
        s->data = pattern(sizes[self->random_() % 6], static_cast<unsigned>(s->place));
        detail::store_number(s->data.data(), std::uint64_t{s->place});
        auto sending =
            self->chance(5) ? self->pair_.a.ssend(s->data, s->tag) : self->pair_.a.send(s->data, s->tag);
        const auto ended = co_await as_result(with_stop(std::move(sending), s->stop.get_token()));
        s->canceled = !ended;
        if (!ended) CHECK(ended.error() == errc::canceled);
    }
    static task<> receive_one(random_program* self, receive_state* r) {
        r->place = self->begun_receives_++;
        r->memory.resize(self->chance(5) ? 60 : 1500);
        if (!self->chance(10)) r->tag = self->random_() % 2;
        auto receiving = self->pair_.b.recv(r->memory, r->tag ? tag_match(*r->tag) : any_tag);
        const auto ended = co_await as_result(with_stop(std::move(receiving), r->stop.get_token()));
        if (ended) {
            r->message = static_cast<std::size_t>(detail::load_number<std::uint64_t>(r->memory.data()));
            auto expected = pattern(ended->bytes, static_cast<unsigned>(r->message));
            detail::store_number(expected.data(), std::uint64_t{r->message});
            CHECK(std::equal(expected.begin(), expected.end(), r->memory.begin()));
        }
        r->outcome = ended ? std::error_code{} : ended.error();
        std::fill(r->memory.begin(), r->memory.end(), std::byte{0xaa});
    }

    void check() {
        CHECK(pair_.a.is_open());
        CHECK(pair_.b.is_open());
        std::vector<bool> got(sends_.size());
        for (const receive_state& r : receives_) {
            CHECK(all_are(r.memory, 0xaa));
            if (r.message == none) continue;
            REQUIRE(r.message < sends_.size());
            CHECK_FALSE(got[r.message]);  // once
            got[r.message] = true;
        }
        // A receive posted before another that takes the other's message, too, had it first.
        for (const receive_state& first : receives_) {
            for (const receive_state& second : receives_) {
                if (first.place >= second.place || first.message == none || second.message == none) continue;
                const send_state& m = *find(second.message);
                if (!first.tag || *first.tag == m.tag) CHECK(first.message < second.message);
            }
        }
        CHECK(pair_.domain.regions().registered() == 0);
        CHECK(pair_.b.connection().box().matching().posted() == 0);
        CHECK(ended_of(pair_) == pair_.b.counts().announced);
        CHECK(pair_.a.counts().announcements_used == pair_.b.counts().announcements_met);
    }
    const send_state* find(std::size_t place) {
        for (const send_state& s : sends_) {
            if (s.place == place) return &s;
        }
        return nullptr;
    }

    std::mt19937 random_;
    mixed_pair pair_;
    std::deque<send_state> sends_;
    std::deque<receive_state> receives_;
    std::size_t begun_sends_ = 0;
    std::size_t begun_receives_ = 0;
};

}  // namespace

TEST_CASE("random programs with cancellations keep order, bytes and buffers") {
    for (unsigned seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        virtual_time world;
        random_program program(world.on, seed);
        world.run(program.run());
    }
}
