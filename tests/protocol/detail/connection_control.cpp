#include <rdmacoro/protocol/detail/connection_control.hpp>

#include <rdmacoro/messaging/connect.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/described_stages.hpp"
#include "support/scripted_peer.hpp"

#include <initializer_list>
#include <optional>
#include <string>

namespace test_protocol_detail_connection_control {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}
task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}
bool is(const heard_message& m, wire_kind kind) { return m.header.kind == static_cast<std::uint8_t>(kind); }
mailbox_options little() {
    mailbox_options o;
    o.unexpected_bytes = 1;
    return o;
}

void with_peer(task<> (*body)(scripted_peer&), bool opened = true) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(scripted_peer&), bool open) -> task<> {
        scripted_peer peer(on, little());
        if (open) co_await peer.open();
        co_await run(peer);
    }(world.on, body, opened));
}

}  // namespace

// ---- hello

TEST_CASE("the first message is a hello: header, budget, fingerprint, and the protocol list as text") {
    with_peer(
        [](scripted_peer& peer) -> task<> {
            const heard_message m = co_await peer.hear();
            const auto header = m.header.store();
            const auto golden = raw({0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
            CHECK(std::equal(header.begin(), header.end(), golden.begin()));
            const auto hello = detail::wire_hello::load(m.payload);
            REQUIRE(hello.has_value());
            CHECK(hello->budget == detail::least_budget);
            CHECK(hello->version == 3);
            CHECK(hello->withheld == 0);
            CHECK(hello->fingerprint == scripted_peer::endpoint_type::protocols_type::fingerprint);
            const std::string text(reinterpret_cast<const char*>(m.payload.data()) + 32,
                                   m.payload.size() - 32);
            CHECK(text == "eager, segmented");
        },
        false);
}

TEST_CASE("what is sent before the peer has said hello waits for it and goes then") {
    with_peer(
        [](scripted_peer& peer) -> task<> {
            const auto data = filled(8, 1);
            auto opening = start(detail::open_operation(peer.self().connection()));
            auto first = start(peer.self().send(data, 1));
            auto second = start(peer.self().ssend(data, 2));
            co_await turns(3);
            CHECK_FALSE(first.done());
            check_stage("handshake", "the peer has not answered", next_actor::peer_poll);
            check_stage("send", "waits for the handshake", next_actor::peer_poll);
            check_stage("ssend", "waits behind other sends", next_actor::peer_poll);
            peer.send_hello();
            co_await opening;
            co_await first;
            peer.say(wire_kind::proceed, 0);
            co_await second;
        },
        false);
}

TEST_CASE("a hello that finds no room is said when there is some, and before anything else") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        auto wire = std::make_shared<loopback_wire>();
        wire->domains[0] = wire->domains[1] = &domain;
        wire->lanes[0].room = 0;
        noting_sink told;
        loopback_link<noting_sink> link(loopback_connection(wire, 1), told);
        scripted_peer::endpoint_type self(on, loopback_connection(wire, 0));
        auto opening = start(as_result(detail::open_operation(self.connection())));
        auto sending = start(as_result(self.send({}, 1)));
        co_await turns(5);
        CHECK(told.heard.empty());
        check_stage("handshake", "no room for this side's", next_actor::device);
        check_stage("send", "waits for the handshake", next_actor::device);
        wire->lanes[0].room = loopback_lane::unlimited;
        co_await turns(3);
        REQUIRE(told.heard.size() == 1);
        CHECK(is(told.heard.front(), wire_kind::hello));
        check_stage("handshake", "the peer has not answered", next_actor::peer_poll);
        self.abort();
        static_cast<void>(co_await opening);
        static_cast<void>(co_await sending);
    }(world.on));
}

TEST_CASE("text of a peer's protocol list is printed without what it may do to a terminal") {
    with_peer(
        [](scripted_peer& peer) -> task<> {
            detail::open_operation opening(peer.self().connection());
            auto raw_hello = detail::wire_hello{.budget = detail::least_budget, .fingerprint = 5}.store();
            std::vector<std::byte> payload(raw_hello.begin(), raw_hello.end());
            for (const char c : std::string("evil\x1b[2J\n")) payload.push_back(static_cast<std::byte>(c));
            peer.say(wire_kind::hello, 0, payload);
            const auto ended = co_await as_result(opening);
            CHECK(ended.error() == errc::protocol_mismatch);
            CHECK_THAT(peer.self().connection().refusal(), contains("\"evil?[2J?\""));
        },
        false);
}

TEST_CASE("anything but a hello ends a link that is not open yet") {
    for (int kind = 0; kind < 256; ++kind) {
        if (kind == 1) continue;
        CAPTURE(kind);
        virtual_time world;
        world.run([](scheduler& on, int said) -> task<> {
            scripted_peer peer(on);
            std::byte into[1];
            auto receiving = start(peer.self().recv(into));
            peer.send_raw(static_cast<std::uint8_t>(said), 0, {});
            const auto ended = co_await as_result(receiving);
            CHECK(ended.error() == errc::protocol_violation);
        }(world.on, kind));
    }
}

TEST_CASE("a long payload before the hello ends the link") {
    with_peer(
        [](scripted_peer& peer) -> task<> {
            peer.from_peer().announces_above = 10;
            std::byte into[1];
            auto receiving = start(peer.self().recv(into));
            peer.say(wire_kind::hello, 0, filled(100, 0));
            const auto ended = co_await as_result(receiving);
            CHECK(ended.error() == errc::protocol_violation);
        },
        false);
}

// ---- no memory

namespace {
/// Hands the connection a message while operator new fails.
void deliver_without_memory(scripted_peer& peer, wire_kind kind, std::span<const std::byte> payload) {
    const detail::wire_header h{static_cast<std::uint8_t>(kind), 0, 0, 1};
    const failing_allocations from_here(0, static_cast<std::size_t>(-1));
    static_cast<void>(peer.self().connection().deliver(h.store(), payload));
}
}  // namespace

TEST_CASE("a hello of another list or version ends the link when there is no memory for the reason's text") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    for (const bool other_version : {false, true}) {
        CAPTURE(other_version);
        virtual_time world;
        world.run([](scheduler& on, bool version) -> task<> {
            scripted_peer peer(on, little());
            detail::wire_hello hello{.budget = detail::least_budget, .fingerprint = 5};
            if (version) ++hello.version;
            const auto fixed = hello.store();
            std::vector<std::byte> payload(fixed.begin(), fixed.end());
            payload.resize(300, std::byte{'x'});
            deliver_without_memory(peer, wire_kind::hello, payload);
            CHECK_FALSE(peer.self().is_open());
            CHECK(peer.self().connection().reason() ==
                  (version ? errc::version_mismatch : errc::protocol_mismatch));
            CHECK(peer.self().connection().refusal().empty());
            co_return;
        }(world.on, other_version));
    }
}

TEST_CASE("a message that there is no memory to store ends the link with no_resources") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    for (const wire_kind kind : {wire_kind::eager, wire_kind::announce}) {
        CAPTURE(static_cast<int>(kind));
        virtual_time world;
        world.run([](scheduler& on, wire_kind sent) -> task<> {
            scripted_peer peer(on, little());
            co_await peer.open();
            const auto payload = sent == wire_kind::eager ? filled(2000, 1) : announcement(0, 0, 50'000);
            deliver_without_memory(peer, sent, payload);
            CHECK(peer.self().connection().reason() == errc::no_resources);
        }(world.on, kind));
    }
}

// ---- control messages

TEST_CASE("credit and goodbyes are these frames") {
    with_peer([](scripted_peer& peer) -> task<> {
        // Half of the budget received: credit, in a message of its own.
        std::vector<std::byte> into(1000);
        const std::uint32_t each = detail::message_cost(1000);
        std::uint32_t owed = 0;
        while (owed < detail::least_budget / 2) {
            auto receiving = start(peer.self().recv(into, 1));
            peer.say(wire_kind::eager, 1, filled(1000, 0));
            co_await receiving;
            owed += each;
        }
        const heard_message credit = co_await peer.hear();
        CHECK(credit.payload.empty());
        auto header = credit.header.store();
        auto golden = raw(
            {0x02, 0, static_cast<int>(owed & 0xff), static_cast<int>(owed >> 8), 0, 0, 0, 0, 0, 0, 0, 0});
        CHECK(std::equal(header.begin(), header.end(), golden.begin()));
        CHECK(peer.self().counts().credit_messages == 1);
        // The peer says goodbye, and it is seen.
        peer.say(wire_kind::goodbye);
        const heard_message seen = co_await peer.hear();
        header = seen.header.store();
        golden = raw({0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
        CHECK(std::equal(header.begin(), header.end(), golden.begin()));
        // Nothing is left to say: our own close needs no goodbye any more.
        co_await peer.self().close();
        co_await turns(2);
        CHECK(peer.heard().empty());
        CHECK(peer.reason() == errc::peer_lost);  // what the bare link says of the other end's close
    });
    with_peer([](scripted_peer& peer) -> task<> {
        auto closing = start(peer.self().close());
        const heard_message goodbye = co_await peer.hear();
        const auto header = goodbye.header.store();
        const auto golden = raw({0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
        CHECK(std::equal(header.begin(), header.end(), golden.begin()));
        co_await turns(5);
        CHECK_FALSE(closing.done());
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
        co_await turns(2);
        CHECK(peer.reason() == errc::peer_lost);
    });
}

TEST_CASE("goodbye waits for everything that was sent before") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = filled(100, 1);
        auto unmatched = start(peer.self().ssend(data, 1));
        auto closing = start(peer.self().close());
        co_await turns(5);
        for (const heard_message& m : peer.heard()) CHECK_FALSE(is(m, wire_kind::goodbye));
        check_stage("close", "waits for sends that are under way", next_actor::peer_receive);
        peer.heard().clear();
        peer.to_peer().room = 0;
        peer.say(wire_kind::proceed, 0);
        co_await unmatched;
        check_stage("close", "no room for the goodbye", next_actor::device);
        peer.to_peer().room = loopback_lane::unlimited;
        const heard_message goodbye = co_await peer.hear();
        CHECK(is(goodbye, wire_kind::goodbye));
        check_stage("close", "goodbye is sent, the peer has not answered", next_actor::peer_poll);
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
    });
}

TEST_CASE("goodbye is said when the last send that waited goes, or is withdrawn") {
    for (const bool withdrawn : {false, true}) {
        CAPTURE(withdrawn);
        virtual_time world;
        world.run([](scheduler& on, bool withdraw) -> task<> {
            scripted_peer peer(on, little());
            co_await peer.open();
            const auto data = filled(4000, 1);
            const std::uint32_t cost = detail::message_cost(4000);
            std::uint32_t spent = 0;
            for (; spent + cost <= detail::least_budget; spent += cost) co_await peer.self().send(data);
            local_stop_source stop;
            auto waiting = start(as_result(with_stop(peer.self().send(data), stop.get_token())));
            auto closing = start(peer.self().close());
            co_await turns(5);
            REQUIRE_FALSE(peer.heard().empty());
            CHECK(is(peer.heard().back(), wire_kind::starved));
            check_stage("send", "waits for credit", next_actor::credit);
            check_stage("close", "waits for sends that have not begun", next_actor::credit);
            peer.heard().pop_back();
            for (const heard_message& m : peer.heard()) CHECK(is(m, wire_kind::eager));
            if (withdraw) {
                stop.request_stop();
            } else {
                peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(spent));
            }
            const auto sent = co_await waiting;
            CHECK(sent.error() == (withdraw ? make_error_code(errc::canceled) : std::error_code()));
            heard_message last = co_await peer.hear();
            while (is(last, wire_kind::eager)) last = co_await peer.hear();
            CHECK(is(last, wire_kind::goodbye));
            peer.say(wire_kind::goodbye_seen);
            co_await closing;
        }(world.on, withdrawn));
    }
}

TEST_CASE("receives go on while a close waits for the peer") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[8];
        auto receiving = start(peer.self().recv(into));
        auto closing = start(peer.self().close());
        peer.say(wire_kind::eager, 3, filled(8, 1));
        const received got = co_await receiving;
        CHECK(got.tag == 3);
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
    });
}

TEST_CASE("sends end closed after the peer's goodbye, those that wait included") {
    with_peer([](scripted_peer& peer) -> task<> {
        // No credit is left for the second.
        const auto data = filled(4000, 1);
        std::deque<started<send_operation<typename scripted_peer::endpoint_type::connection_type>>> sends;
        do sends.emplace_back(peer.self().send(data));
        while (sends.back().done());
        peer.say(wire_kind::goodbye);
        const auto waiting = co_await as_result(sends.back());
        CHECK(waiting.error() == errc::closed);
        sends.pop_back();
        for (auto& s : sends) co_await s;
        const auto later = co_await as_result(peer.self().send(data));
        CHECK(later.error() == errc::closed);
    });
}

namespace {
struct forbidden {
    const char* what;
    void (*say)(scripted_peer&);
};
}  // namespace

TEST_CASE("control messages that make no sense end the link with protocol_violation") {
    const forbidden all[] = {
        {"kind 0", [](scripted_peer& p) { p.send_raw(0, 0, {}); }},
        {"a question for no credit", [](scripted_peer& p) { p.say(wire_kind::recall); }},
        {"credit that was not asked for", [](scripted_peer& p) { p.say(wire_kind::recall, 1, {}, 0, 1); }},
        {"a recall with an unknown flag", [](scripted_peer& p) { p.say(wire_kind::recall, 1, {}, 0, 2); }},
        {"a recall with a payload", [](scripted_peer& p) { p.say(wire_kind::recall, 1, filled(1, 0)); }},
        {"the first kind after the policies'", [](scripted_peer& p) { p.send_raw(15, 0, {}); }},
        {"the last kind", [](scripted_peer& p) { p.send_raw(255, 0, {}); }},
        {"an unknown kind with a payload", [](scripted_peer& p) { p.send_raw(200, 0, filled(100, 0)); }},
        {"a second hello", [](scripted_peer& p) { p.send_hello(); }},
        {"a hello without payload", [](scripted_peer& p) { p.say(wire_kind::hello); }},
        {"credit with a payload", [](scripted_peer& p) { p.say(wire_kind::credit, 0, filled(1, 0)); }},
        {"credit that was never spent", [](scripted_peer& p) { p.say(wire_kind::credit, 0, {}, 1000); }},
        {"credit that was never spent, with a message",
         [](scripted_peer& p) { p.say(wire_kind::eager, 0, {}, 0xffff); }},
        {"starved with a payload", [](scripted_peer& p) { p.say(wire_kind::starved, 0, filled(1, 0)); }},
        {"goodbye twice",
         [](scripted_peer& p) {
             p.say(wire_kind::goodbye);
             p.say(wire_kind::goodbye);
         }},
        {"goodbye with a payload", [](scripted_peer& p) { p.say(wire_kind::goodbye, 0, filled(1, 0)); }},
        {"goodbye seen, and never said", [](scripted_peer& p) { p.say(wire_kind::goodbye_seen); }},
        {"goodbye seen, with a payload",
         [](scripted_peer& p) { p.say(wire_kind::goodbye_seen, 0, filled(1, 0)); }},
        {"a control message that comes in parts",
         [](scripted_peer& p) {
             p.from_peer().announces_above = 0;
             p.say(wire_kind::credit, 0, filled(1, 0));
         }},
        {"an unknown kind that comes in parts",
         [](scripted_peer& p) {
             p.from_peer().announces_above = 0;
             p.send_raw(99, 0, filled(50, 0));
         }},
        {"credit that was never spent, with a payload that comes in parts",
         [](scripted_peer& p) {
             p.from_peer().announces_above = 0;
             p.say(wire_kind::eager, 0, filled(50, 0), 7);
         }},
    };
    for (const forbidden& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden& what) -> task<> {
            scripted_peer peer(on, little());
            co_await peer.open();
            auto unmatched = start(peer.self().ssend({}, 1));
            auto lent = start(peer.self().recv_lent(99));
            what.say(peer);
            const auto sent = co_await as_result(unmatched);
            CHECK(sent.error() == errc::protocol_violation);
            static_cast<void>(co_await as_result(lent));
            const auto later = co_await as_result(peer.self().probe(99));
            CHECK(later.error() == errc::protocol_violation);
            CHECK_FALSE(peer.self().is_open());
            // A message that was in order itself is there to be received; nothing else is left.
            static_cast<void>(co_await as_result(peer.self().recv_lent(0)));
            CHECK(peer.self().connection().mailbox().store().live() == 0);
        }(world.on, f));
    }
}

TEST_CASE("messages after the peer's goodbye do not bring the link back") {
    with_peer([](scripted_peer& peer) -> task<> {
        peer.say(wire_kind::goodbye);
        peer.say(wire_kind::eager, 1, filled(8, 1));
        co_await turns(5);
        std::byte into[8];
        const auto got = co_await as_result(peer.self().recv(into, 2));
        CHECK(got.error());
    });
}

}  // namespace test_protocol_detail_connection_control
