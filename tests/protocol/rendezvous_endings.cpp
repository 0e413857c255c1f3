// Rendezvous that do not come to their end: canceled by either side at any moment, closed, or cut off.

#include <rdmacoro/protocol/protocols.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/rendezvous_lists.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <type_traits>

namespace test_protocol_rendezvous_endings {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::rendezvous;

// ---- giving up

namespace {

/// How far both ends get before one gives up.
struct moment {
    int turns;          // of the scheduler
    std::size_t steps;  // gets and puts that are done
    bool a_held;        // what `a` says does not arrive before
    bool b_held;
    std::size_t room;  // for control messages, at both ends
};

/// How the two operations ended.
struct ends_seen {
    unsigned whole = 0;
    unsigned sends_canceled = 0;
    unsigned receives_canceled = 0;
    unsigned given_up_by_peer = 0;
    unsigned sends_that_went_on = 0;
    described_stages stages{next_actor::device, next_actor::device};  // of a link with an adapter of its own
};

template <class List>
task<> give_up(endpoint_pair<List>& pair, moment when, bool send, bool receive, bool at_once,
               ends_seen& sum) {
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
        scheduler& here = *scheduler::current();
        sum.stages.look(here);
        co_await turns(2);
        sum.stages.look(here);
        if (send) stop_send.request_stop();
        if (receive) stop_receive.request_stop();
        sum.stages.look(here);
        co_await turns(3);
        sum.stages.look(here);
        // The memory of an operation that has ended is freed, and an address sanitizer sees a later access.
        if (sending.done()) data.reset();
        if (receiving.done()) into.reset();
        co_await turns(2);
        pair.hold(false);
        co_await turns(3);
        pair.from_a().room = pair.from_b().room = loopback_lane::unlimited;
        pair.from_a().one_sided_steps = pair.from_b().one_sided_steps = loopback_lane::unlimited;
        const bool receive_was_done = receiving.done();
        for (int n = 0; n < 60 && !(sending.done() && receiving.done()); ++n) co_await yield();
        // An operation canceled before the other began leaves that one waiting.
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
        if (sent && send && !receive) ++sum.sends_that_went_on;
        ++(got                                  ? sum.whole
           : got.error() == errc::peer_canceled ? sum.given_up_by_peer
                                                : sum.receives_canceled);
        if (!sent) {
            ++sum.sends_canceled;
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
    ends_seen sum{};
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
                world.run(
                    [](scheduler& on, moment at, bool s, bool r, bool at_once, ends_seen& total) -> task<> {
                        endpoint_pair<TestType> pair(on);
                        co_await pair.open();
                        co_await give_up<TestType>(pair, at, s, r, at_once, total);
                    }(world.on, when, send, receive, (bits & 32) != 0, sum));
                ++cases;
            }
        }
    }
    CHECK(cases == 9 * 4 * 48);
    CHECK(sum.whole > 50);
    CHECK(sum.sends_canceled > 50);
    CHECK(sum.receives_canceled > 50);
    CHECK(sum.given_up_by_peer > 50);
    CHECK(sum.sends_that_went_on > 10);
    INFO(sum.stages.text());
    for (const char* stage :
         {"send: requested, not received", "send: canceled, no room to say so",
          "send: canceled, the peer has not answered", "recv: posted, no message has met it"})
        CHECK(sum.stages.saw(stage) > 10);
    if (std::is_same_v<TestType, put_list>) {
        for (const char* stage :
             {"send: is being put", "send: all is put, no room to say so",
              "recv: met, the peer has not put it", "recv: canceled, the peer has not answered"})
            CHECK(sum.stages.saw(stage) > 10);
    } else {
        CHECK(sum.stages.saw("recv: is being got") > 10);
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
                // The message that no receive had met: where its sender was lost it has kept its place.
                const auto unfinished = co_await as_result(pair.b.recv_lent(2));
                CHECK_FALSE(unfinished);
                CHECK(pair.at_rest());
            }(world.on, when, peers));
        }
    }
}

}  // namespace test_protocol_rendezvous_endings
