#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>

#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/rendezvous.hpp"

#include <algorithm>
#include <deque>
#include <optional>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using get_list = protocols<get_rendezvous<>>;
using put_list = protocols<put_rendezvous<>>;
using get_peer = basic_scripted_peer<get_list>;
using put_peer = basic_scripted_peer<put_list>;
template <class List>
using send_of = started<send_operation<typename endpoint<loopback, List>::connection_type>>;
template <class List>
using receive_of = started<receive_operation<typename endpoint<loopback, List>::connection_type>>;

std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

/// Sends and receives one message of `data` on tag 77 from `a` to `b`: the link is as good as before.
template <class Pair>
task<> works(Pair& pair) {
    const auto data = pattern(2000, 9);
    std::vector<std::byte> into(2000);
    auto receiving = start(pair.b.recv(into, 77));
    co_await pair.a.send(data, 77);
    co_await receiving;
    CHECK(into == data);
}

}  // namespace

// ---- two endpoints

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

TEMPLATE_TEST_CASE("messages that nobody wants yet are probed, and matched in order later", "", get_list,
                   put_list) {
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

TEST_CASE("a request is paid for, and waits when the peer gives no credit back") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        get_peer peer(on);
        co_await peer.open();  // the least budget there is
        constexpr unsigned paid = detail::least_budget / detail::message_cost(0);
        for (unsigned n = 0; n < paid; ++n) {
            auto sending = start(peer.self().send({}, n));
            co_await peer.hear();
            say(peer, rv::received, 0);
            co_await sending;
        }
        CHECK(peer.self().counts().credit_waits == 0);
        auto next = start(peer.self().send({}, 1));
        auto behind = start(peer.self().send({}, 2));
        co_await turns(5);
        CHECK(peer.heard().empty());
        CHECK(peer.self().counts().credit_waits > 0);
        peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(detail::message_cost(0)));
        const heard_message request = co_await peer.hear();
        CHECK(request.header.tag == 1);
        say(peer, rv::received, 0, {}, 0, static_cast<std::uint16_t>(detail::message_cost(0)));
        co_await next;
        const heard_message second = co_await peer.hear();
        CHECK(second.header.tag == 2);
        say(peer, rv::received, 0);
        co_await behind;
    }(world.on));
}

TEMPLATE_TEST_CASE("a rendezvous takes nothing from the heap once its streams are there", "", get_list,
                   put_list) {
    if (!counts_allocations) return;
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

// ---- giving up

namespace {

/// How far both ends get before somebody gives up.
struct moment {
    int turns;          // of the scheduler
    std::size_t steps;  // gets and puts that are done
    bool a_held;        // what `a` says does not arrive before
    bool b_held;
    std::size_t room;  // for control messages, at both ends
};

template <class List>
task<> give_up(endpoint_pair<List>& pair, moment when, bool send, bool receive, bool at_once) {
    pair.wire->offered.revokes_at_once = at_once;
    pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = true;
    pair.from_a().one_sided_steps = pair.from_b().one_sided_steps = when.steps;
    auto data = std::make_unique<std::vector<std::byte>>(pattern(400));
    auto into = std::make_unique<scattered>(20, 20, 4);
    local_stop_source stop_send;
    local_stop_source stop_receive;
    {
        auto receiving = start(as_result(with_stop(pair.b.recv(into->into(), 1), stop_receive.get_token())));
        auto sending = start(as_result(with_stop(pair.a.send(*data, 1), stop_send.get_token())));
        co_await turns(when.turns);
        pair.from_a().held = when.a_held;
        pair.from_b().held = when.b_held;
        pair.from_a().room = pair.from_b().room = when.room;
        co_await turns(2);
        if (send) stop_send.request_stop();
        if (receive) stop_receive.request_stop();
        co_await turns(3);
        // Whoever has ended gets his memory back: it goes, and an address sanitizer sees who still touches it.
        if (sending.done()) data.reset();
        if (receiving.done()) into.reset();
        co_await turns(2);
        pair.hold(false);
        co_await turns(3);
        pair.from_a().room = pair.from_b().room = loopback_lane::unlimited;
        pair.from_a().one_sided_steps = pair.from_b().one_sided_steps = loopback_lane::unlimited;
        const bool receive_was_done = receiving.done();
        for (int n = 0; n < 60 && !(sending.done() && receiving.done()); ++n) co_await yield();
        // What was canceled before the other came leaves that waiting.
        if (!receiving.done()) {
            CHECK(send);
            stop_receive.request_stop();
        }
        const bool send_left = !sending.done();
        if (send_left) {
            CHECK(receive);
            stop_send.request_stop();
        }
        const auto sent = co_await sending;
        data.reset();
        const auto got = co_await receiving;
        if (!sent) {
            CHECK(sent.error() == errc::canceled);
            CHECK((send || send_left));
        }
        if (got) {
            CHECK(got->bytes == 400);
            CHECK((into == nullptr || into->gathered(400) == pattern(400)));
        } else {
            CHECK((got.error() == errc::canceled || got.error() == errc::peer_canceled));
            CHECK((send || receive));
            if (!receive && receive_was_done) CHECK(got.error() == errc::peer_canceled);
        }
        if (!send && !send_left) CHECK(sent);
        if (into != nullptr) CHECK(into->gaps_untouched());
    }
    into.reset();
    co_await turns(10);
    // Several more: the streams that were given up are used again.
    for (int n = 0; n < 4; ++n) co_await works(pair);
    CHECK(pair.at_rest());
}

}  // namespace

TEMPLATE_TEST_CASE("a rendezvous may be given up at any moment, by either side or both", "", get_list,
                   put_list) {
    unsigned cases = 0;
    for (int turn = 0; turn < 9; ++turn) {
        for (const std::size_t steps : {0u, 1u, 3u, 30u}) {
            for (unsigned bits = 0; bits < 64; ++bits) {
                const bool send = (bits & 1) != 0;
                const bool receive = (bits & 2) != 0;
                if (!send && !receive) continue;
                const moment when{turn, steps, (bits & 4) != 0, (bits & 8) != 0,
                                  (bits & 16) != 0 ? 0 : loopback_lane::unlimited};
                CAPTURE(turn, steps, bits);
                virtual_time world;
                world.run([](scheduler& on, moment at, bool s, bool r, bool at_once) -> task<> {
                    endpoint_pair<TestType> pair(on);
                    co_await pair.open();
                    co_await give_up<TestType>(pair, at, s, r, at_once);
                }(world.on, when, send, receive, (bits & 32) != 0));
                ++cases;
            }
        }
    }
    CHECK(cases == 9 * 4 * 48);
}

TEST_CASE("a receive canceled while it is got leaves its stream as good as new") {
    with_pair<get_list>([](endpoint_pair<get_list>& pair) -> task<> {
        pair.from_b().defers_one_sided = true;
        pair.from_b().one_sided_steps = 0;
        const auto data = pattern(100);
        std::vector<std::byte> into(100);
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(pair.b.recv(into, 1), stop.get_token())));
        auto sending = start(pair.a.send(data, 1));
        co_await turns(5);
        stop.request_stop();
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
        co_await sending;
        pair.from_b().one_sided_steps = loopback_lane::unlimited;
        co_await works(pair);
    });
}

TEST_CASE("withdraw that crosses the last sent does not hit the stream's next message") {
    with_rendezvous_peer<put_list>([](put_peer& peer) -> task<> {
        const auto data = pattern(100);
        std::vector<std::byte> there(100);
        const region open = peer.link().expose(there, access_rights::remote_write);
        auto first = start(peer.self().send(data, 1));
        heard_message heard = co_await peer.hear();
        CHECK(heard.header.flags == 0);
        say(peer, rv::ready, 0, ready_body(0, {open.remote()}));
        co_await first;
        heard = co_await peer.hear();
        CHECK(is(heard, rv::sent));
        auto second = start(peer.self().send(data, 2));
        heard = co_await peer.hear();
        CHECK(heard.header.flags == 1);
        say(peer, rv::withdraw, 0);  // meant for the first
        co_await turns(5);
        CHECK_FALSE(second.done());
        CHECK(peer.heard().empty());
        say(peer, rv::withdraw, 0, {}, 1);  // meant for this one
        co_await second;
        heard = co_await peer.hear();
        CHECK(is(heard, rv::sent));
        CHECK(heard.header.flags == 1);
    });
}

TEST_CASE("frames of a send that gives up: abandon, and its number is free again at gone") {
    with_rendezvous_peer<get_list>([](get_peer& peer) -> task<> {
        const auto data = pattern(100);
        local_stop_source stop;
        auto sending = start(as_result(with_stop(peer.self().send(data, 1), stop.get_token())));
        co_await peer.hear();
        stop.request_stop();
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::canceled);
        const heard_message abandon = co_await peer.hear();
        CHECK(is(abandon, rv::abandon));
        CHECK(abandon.header.tag == 0);
        CHECK(abandon.payload.empty());
        // What crossed it is no violation.
        std::byte there[100];
        say(peer, rv::ready, 0,
            ready_body(0, {peer.link().expose(there, access_rights::remote_write).remote()}));
        auto other = start(peer.self().send(data, 2));
        heard_message request = co_await peer.hear();
        CHECK(detail::load_number<std::uint32_t>(request.payload.data()) == 1);
        say(peer, rv::gone, 0);
        say(peer, rv::received, 1);
        co_await other;
        auto third = start(peer.self().send(data, 3));
        request = co_await peer.hear();
        CHECK(detail::load_number<std::uint32_t>(request.payload.data()) == 1);
        auto fourth = start(peer.self().send(data, 4));
        request = co_await peer.hear();
        CHECK(detail::load_number<std::uint32_t>(request.payload.data()) == 0);
        say(peer, rv::received, 0);
        say(peer, rv::received, 1);
        co_await third;
        co_await fourth;
    });
}

TEST_CASE("abandon takes an unmatched message away and ends a matched receive with peer_canceled") {
    with_rendezvous_peer<get_list>([](get_peer& peer) -> task<> {
        say(peer, rv::request, 3, request_body(0, 10));
        co_await peer.self().probe(3);
        say(peer, rv::abandon, 0);
        heard_message said = co_await peer.hear();
        CHECK(is(said, rv::gone));
        CHECK(peer.self().connection().box().matching().unexpected() == 0);
        std::byte into[10];
        auto receiving = start(peer.self().recv(into, 3));
        say(peer, rv::request, 3, request_body(0, 10), 1);
        said = co_await peer.hear();
        CHECK(is(said, rv::ready));
        say(peer, rv::abandon, 0);
        const auto ended = co_await as_result(receiving);
        CHECK(ended.error() == errc::peer_canceled);
        said = co_await peer.hear();
        CHECK(is(said, rv::gone));
    });
}

TEST_CASE("memory that was refused ends the link only when the peer never says why") {
    for (const bool explained : {true, false}) {
        CAPTURE(explained);
        virtual_time world;
        world.run([](virtual_time& w, bool says_why) -> task<> {
            get_peer peer(w.on);
            co_await peer.open();
            auto data = pattern(100);
            std::byte into[100];
            region gone = peer.link().expose(data, access_rights::remote_read);
            const remote_region there = gone.remote();
            gone.reset();
            auto receiving = start(as_result(peer.self().recv(into, 1)));
            say(peer, rv::request, 1, request_body(0, 100, {there}));
            const duration before = w.now();
            if (says_why) {
                co_await sleep_for(std::chrono::milliseconds(900));
                say(peer, rv::abandon, 0);
                const auto first = co_await receiving;
                CHECK(first.error() == errc::peer_canceled);
                // A second refusal has a second of its own.
                auto again = start(as_result(peer.self().recv(into, 1)));
                say(peer, rv::request, 1, request_body(0, 100, {there}));
                co_await sleep_for(std::chrono::milliseconds(900));
                say(peer, rv::abandon, 0);
                const auto second = co_await again;
                CHECK(second.error() == errc::peer_canceled);
                CHECK(peer.self().is_open());
            } else {
                const auto ended = co_await receiving;
                CHECK(ended.error() == errc::protocol_violation);
                CHECK(w.now() - before >= detail::refusal_timer<int>::grace);
            }
        }(world, explained));
    }
}

TEST_CASE("a put that was refused and never withdrawn ends the link after its time") {
    for (const bool explained : {true, false}) {
        CAPTURE(explained);
        virtual_time world;
        world.run([](virtual_time& w, bool says_why) -> task<> {
            put_peer peer(w.on);
            co_await peer.open();
            const auto data = pattern(100);
            std::vector<std::byte> there(100);
            region gone = peer.link().expose(there, access_rights::remote_write);
            const remote_region named = gone.remote();
            gone.reset();
            auto sending = start(as_result(peer.self().send(data, 1)));
            co_await peer.hear();
            say(peer, rv::ready, 0, ready_body(0, {named}));
            const duration before = w.now();
            if (says_why) {
                co_await turns(5);
                CHECK_FALSE(sending.done());
                say(peer, rv::withdraw, 0);
                const auto ended = co_await sending;
                CHECK(ended);
                const heard_message sent = co_await peer.hear();
                CHECK(is(sent, rv::sent));
                CHECK(sent.header.flags == 1);
            } else {
                const auto ended = co_await sending;
                CHECK(ended.error() == errc::protocol_violation);
                CHECK(w.now() - before >= detail::refusal_timer<int>::grace);
            }
            CHECK(there == std::vector<std::byte>(100));
        }(world, explained));
    }
}

// ---- the end of the link

TEMPLATE_TEST_CASE("an orderly close waits for what is under way and for every word", "", get_list,
                   put_list) {
    with_pair<TestType>([](endpoint_pair<TestType>& pair) -> task<> {
        const auto data = pattern(500);
        std::vector<std::byte> into(500);
        auto sending = start(pair.a.send(data, 1));
        co_await pair.b.probe(1);
        auto closing = start(pair.a.close());
        co_await turns(5);
        CHECK_FALSE(closing.done());
        pair.from_a().room = pair.from_b().room = 0;
        auto receiving = start(pair.b.recv(into, 1));
        auto other_closing = start(pair.b.close());
        co_await turns(10);
        CHECK_FALSE(sending.done());
        CHECK_FALSE(closing.done());
        CHECK_FALSE(other_closing.done());
        pair.from_a().room = pair.from_b().room = loopback_lane::unlimited;
        co_await receiving;
        co_await sending;
        co_await closing;
        co_await other_closing;
        CHECK(into == data);
    });
}

TEMPLATE_TEST_CASE("a link that breaks ends everything at both ends, whatever it was doing", "", get_list,
                   put_list) {
    for (int when = 0; when < 12; ++when) {
        for (const bool peers : {false, true}) {
            CAPTURE(when, peers);
            virtual_time world;
            world.run([](scheduler& on, int turn, bool by_peer) -> task<> {
                endpoint_pair<TestType> pair(on);
                co_await pair.open();
                pair.from_a().defers_one_sided = pair.from_b().defers_one_sided = true;
                pair.from_a().one_sided_steps = pair.from_b().one_sided_steps = turn < 6 ? 0 : 3;
                const auto data = pattern(400);
                scattered into(40, 10, 2);
                auto sending = start(as_result(pair.a.send(data, 1)));
                auto kept = start(as_result(pair.a.send(data, 2)));
                auto receiving = start(as_result(pair.b.recv(into.into(), 1)));
                auto lent = start(as_result(pair.b.recv_lent(3)));
                co_await turns(turn);
                (by_peer ? pair.a : pair.b).abort();
                const auto sent = co_await sending;
                CHECK_FALSE(sent);
                const auto other = co_await kept;
                CHECK_FALSE(other);
                const auto got = co_await receiving;
                CHECK_FALSE(got);
                const auto last = co_await lent;
                CHECK_FALSE(last);
                CHECK(pair.at_rest());
            }(world.on, when, peers));
        }
    }
}

// ---- a hostile peer

namespace {
template <class Peer>
struct forbidden {
    const char* what;
    void (*say)(Peer&);
};
remote_region somewhere(std::uint64_t bytes) { return {0x1000, bytes, 0x1234567890}; }
}  // namespace

TEST_CASE("what makes no sense to a receiver ends the link with protocol_violation") {
    const forbidden<get_peer> all[] = {
        {"an empty request", [](get_peer& p) { say(p, rv::request, 1); }},
        {"a request too short", [](get_peer& p) { say(p, rv::request, 1, filled(15, 0)); }},
        {"half a piece", [](get_peer& p) { say(p, rv::request, 1, filled(16 + 23, 0)); }},
        {"17 pieces", [](get_peer& p) { say(p, rv::request, 1, filled(16 + 17 * 24, 0)); }},
        {"more than any control message has", [](get_peer& p) { say(p, rv::request, 1, filled(5000, 0)); }},
        {"a request that comes in parts",
         [](get_peer& p) {
             p.from_peer().announces_above = 10;
             say(p, rv::request, 1, request_body(0, 10));
         }},
        {"flags that do not exist", [](get_peer& p) { say(p, rv::request, 1, request_body(0, 10), 2); }},
        {"a stream number too high",
         [](get_peer& p) { say(p, rv::request, 1, request_body(detail::most_streams, 10)); }},
        {"the highest stream number", [](get_peer& p) { say(p, rv::request, 1, request_body(~0u, 10)); }},
        {"an impossible length",
         [](get_peer& p) { say(p, rv::request, 1, request_body(0, (std::uint64_t{1} << 62) + 1)); }},
        {"pieces that are too short",
         [](get_peer& p) { say(p, rv::request, 1, request_body(0, 10, {somewhere(9)})); }},
        {"pieces that are too long",
         [](get_peer& p) { say(p, rv::request, 1, request_body(0, 10, {somewhere(5), somewhere(6)})); }},
        {"pieces whose lengths overflow",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10, {somewhere(~std::uint64_t{0} - 4), somewhere(15)}));
         }},
        {"a stream in use",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10));
             say(p, rv::request, 1, request_body(0, 10));
         }},
        {"sent for no stream", [](get_peer& p) { say(p, rv::sent, 0); }},
        {"sent for a stream far away", [](get_peer& p) { say(p, rv::sent, ~std::uint64_t{0}); }},
        {"sent that nobody asked for",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10));
             say(p, rv::sent, 0);
         }},
        {"abandon for no stream", [](get_peer& p) { say(p, rv::abandon, 0); }},
        {"abandon for a stream far away", [](get_peer& p) { say(p, rv::abandon, std::uint64_t{1} << 32); }},
        {"abandon with a payload",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10));
             say(p, rv::abandon, 0, filled(1, 0));
         }},
        {"abandon twice",
         [](get_peer& p) {
             say(p, rv::request, 1, request_body(0, 10));
             say(p, rv::abandon, 0);
             say(p, rv::abandon, 0);
         }},
        {"ready for no stream", [](get_peer& p) { say(p, rv::ready, 0, ready_body(0, {somewhere(1)})); }},
        {"received for no stream", [](get_peer& p) { say(p, rv::received, 0); }},
        {"gone for no stream", [](get_peer& p) { say(p, rv::gone, 0); }},
        {"withdraw for no stream", [](get_peer& p) { say(p, rv::withdraw, 0); }},
    };
    for (const auto& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden<get_peer>& what) -> task<> {
            get_peer peer(on);
            co_await peer.open();
            std::byte into[4];
            auto receiving = start(peer.self().recv(into, 99));
            what.say(peer);
            const auto ended = co_await as_result(receiving);
            CHECK(ended.error() == errc::protocol_violation);
        }(world.on, f));
    }
}

TEST_CASE("answers that make no sense to a sender end the link with protocol_violation") {
    const forbidden<put_peer> all[] = {
        {"an empty ready", [](put_peer& p) { say(p, rv::ready, 0); }},
        {"ready without pieces", [](put_peer& p) { say(p, rv::ready, 0, ready_body(0, {})); }},
        {"half a piece", [](put_peer& p) { say(p, rv::ready, 0, filled(8 + 25, 0)); }},
        {"17 pieces", [](put_peer& p) { say(p, rv::ready, 0, filled(8 + 17 * 24, 1)); }},
        {"an offset", [](put_peer& p) { say(p, rv::ready, 0, ready_body(1, {somewhere(99)})); }},
        {"no bytes", [](put_peer& p) { say(p, rv::ready, 0, ready_body(0, {somewhere(0)})); }},
        {"more bytes than the message has",
         [](put_peer& p) { say(p, rv::ready, 0, ready_body(0, {somewhere(60), somewhere(41)})); }},
        {"lengths that overflow",
         [](put_peer& p) {
             say(p, rv::ready, 0, ready_body(0, {somewhere(~std::uint64_t{0}), somewhere(101)}));
         }},
        {"copying together, which was not offered",
         [](put_peer& p) { say(p, rv::ready, 0, ready_body(0, {somewhere(100)}), 1); }},
        {"ready twice",
         [](put_peer& p) {
             p.to_peer().one_sided_steps = 0;
             say(p, rv::ready, 0, ready_body(0, {somewhere(100)}));
             say(p, rv::ready, 0, ready_body(0, {somewhere(100)}));
         }},
        {"received while it is put",
         [](put_peer& p) {
             p.to_peer().one_sided_steps = 0;
             say(p, rv::ready, 0, ready_body(0, {somewhere(100)}));
             say(p, rv::received, 0);
         }},
        {"received with a payload", [](put_peer& p) { say(p, rv::received, 0, filled(1, 0)); }},
        {"gone that was not abandoned", [](put_peer& p) { say(p, rv::gone, 0); }},
        {"gone for a stream far away", [](put_peer& p) { say(p, rv::gone, ~std::uint64_t{0}); }},
        {"withdraw with a payload", [](put_peer& p) { say(p, rv::withdraw, 0, filled(1, 0)); }},
        {"withdraw with flags that do not exist", [](put_peer& p) { say(p, rv::withdraw, 0, {}, 2); }},
        {"withdraw twice",
         [](put_peer& p) {
             p.wire().offered.revokes_at_once = false;
             p.to_peer().one_sided_steps = 0;
             p.to_peer().defers_one_sided = true;
             say(p, rv::ready, 0, ready_body(0, {somewhere(100)}));
             say(p, rv::withdraw, 0);
             say(p, rv::withdraw, 0);
         }},
        {"ready for the next stream",
         [](put_peer& p) { say(p, rv::ready, 1, ready_body(0, {somewhere(100)})); }},
    };
    for (const auto& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden<put_peer>& what) -> task<> {
            put_peer peer(on);
            co_await peer.open();
            const auto data = pattern(100);
            auto sending = start(as_result(peer.self().send(data, 1)));
            co_await peer.hear();
            const duration before = on.now().time_since_epoch();
            what.say(peer);
            const auto ended = co_await sending;
            CHECK(ended.error() == errc::protocol_violation);
            CHECK(on.now().time_since_epoch() - before < detail::refusal_timer<int>::grace);
        }(world.on, f));
    }
}

TEST_CASE("received twice is a violation, withdraw for a stream that is over is none") {
    with_rendezvous_peer<get_list>([](get_peer& peer) -> task<> {
        const auto data = pattern(10);
        auto sending = start(peer.self().send(data, 1));
        co_await peer.hear();
        say(peer, rv::received, 0);
        co_await sending;
        say(peer, rv::withdraw, 0);
        say(peer, rv::withdraw, 0, {}, 1);
        co_await turns(5);
        CHECK(peer.self().is_open());
        say(peer, rv::received, 0);
        co_await turns(5);
        CHECK_FALSE(peer.self().is_open());
        const auto later = co_await as_result(peer.self().send(data, 1));
        CHECK(later.error() == errc::protocol_violation);
    });
}
