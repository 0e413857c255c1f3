#include <rdmacoro/protocol/detail/rendezvous_sender.hpp>

#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/rendezvous_lists.hpp"

#include <algorithm>
#include <deque>
#include <optional>

namespace test_protocol_detail_rendezvous_sender {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::rendezvous;

namespace {
remote_region somewhere(std::uint64_t bytes) { return {0x1000, bytes, 0x1234567890}; }
}  // namespace

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
        constexpr auto starved = static_cast<std::uint8_t>(wire_kind::starved);
        heard_message first = co_await peer.hear();
        CHECK(first.header.kind == starved);
        co_await turns(5);
        CHECK(peer.heard().empty());
        CHECK(peer.self().counts().credit_waits > 0);
        peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(detail::message_cost(0)));
        const heard_message request = co_await peer.hear();
        CHECK(request.header.tag == 1);
        first = co_await peer.hear();
        CHECK(first.header.kind == starved);  // the other one
        say(peer, rv::received, 0, {}, 0, static_cast<std::uint16_t>(detail::message_cost(0)));
        co_await next;
        const heard_message second = co_await peer.hear();
        CHECK(second.header.tag == 2);
        say(peer, rv::received, 0);
        co_await behind;
    }(world.on));
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

TEST_CASE("a canceled send ends when its receiver is no longer in the middle of a get, and others go on "
          "meanwhile") {
    with_rendezvous_peer<get_list>([](get_peer& peer) -> task<> {
        const auto data = pattern(100);
        local_stop_source stop;
        auto sending = start(as_result(with_stop(peer.self().send(data, 1), stop.get_token())));
        co_await peer.hear();
        peer.from_peer().touches = true;
        stop.request_stop();
        const heard_message abandon = co_await peer.hear();
        CHECK(is(abandon, rv::abandon));
        auto other = start(peer.self().send(data, 2));
        co_await peer.hear();
        say(peer, rv::received, 1);
        co_await other;
        co_await turns(20);
        CHECK_FALSE(sending.done());
        peer.from_peer().touches = false;
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::canceled);
        say(peer, rv::gone, 0);
        co_await turns(3);
        auto last = start(peer.self().send(data, 3));
        const heard_message request = co_await peer.hear();
        CHECK(detail::load_number<std::uint32_t>(request.payload.data()) == 0);
        say(peer, rv::received, 0);
        co_await last;
    });
}

TEST_CASE("a canceled send whose receiver is in the middle of a get ends with the link, and with the "
          "receiver's answer") {
    for (const bool answered : {true, false}) {
        CAPTURE(answered);
        virtual_time world;
        world.run([](scheduler& on, bool says_gone) -> task<> {
            get_peer peer(on);
            co_await peer.open(1u << 20);
            const auto data = pattern(100);
            local_stop_source stop;
            auto sending = start(as_result(with_stop(peer.self().send(data, 1), stop.get_token())));
            co_await peer.hear();
            peer.from_peer().touches = true;
            stop.request_stop();
            co_await peer.hear();
            co_await turns(5);
            CHECK_FALSE(sending.done());
            if (says_gone) {
                say(peer, rv::gone, 0);
            } else {
                peer.self().abort();
            }
            const auto ended = co_await sending;
            CHECK(ended.error() == (says_gone ? errc::canceled : errc::closed));
            if (!says_gone) co_return;
            peer.from_peer().touches = false;
            co_await turns(5);  // nothing of it is left
            auto next = start(peer.self().send(data, 3));
            const heard_message request = co_await peer.hear();
            CHECK(detail::load_number<std::uint32_t>(request.payload.data()) == 0);
            say(peer, rv::received, 0);
            co_await next;
        }(world.on, answered));
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
                check_stage("send", "the peer closed its memory and has not said why", next_actor::peer_poll);
                peer.to_peer().room = 0;
                say(peer, rv::withdraw, 0);
                co_await turns(3);
                check_stage("send", "the peer takes no more, no room to answer", next_actor::device);
                peer.to_peer().room = loopback_lane::unlimited;
                const auto ended = co_await sending;
                CHECK(ended);
                const heard_message sent = co_await peer.hear();
                CHECK(is(sent, rv::sent));
                CHECK(sent.header.flags == 1);
            } else {
                const auto ended = co_await sending;
                CHECK(ended.error() == errc::protocol_violation);
                CHECK(w.now() - before >= detail::refusal_timer::grace);
            }
            CHECK(there == std::vector<std::byte>(100));
        }(world, explained));
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
            what.act(peer);
            const auto ended = co_await sending;
            CHECK(ended.error() == errc::protocol_violation);
            CHECK(on.now().time_since_epoch() - before < detail::refusal_timer::grace);
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

}  // namespace test_protocol_detail_rendezvous_sender
