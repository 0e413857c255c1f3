#include <rdmacoro/protocol/cooperative_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/rendezvous.hpp"

#include <deque>

namespace test_protocol_cooperative_rendezvous {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using list = protocols<cooperative_rendezvous<>>;
using peer_type = basic_scripted_peer<list>;
using pair_type = endpoint_pair<list>;

bool no_claims_open(const pair_type& pair) {
    for (const auto& side : pair.wire->shared) {
        for (const auto& c : side) {
            if (c.open) return false;
        }
    }
    return true;
}

}  // namespace

TEST_CASE("both ends copy a message, each from its own end") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(100'001);
        std::vector<std::byte> into(100'001);
        auto sending = start(pair.a.send(data, 1));
        co_await pair.b.recv(into, 1);
        co_await sending;
        CHECK(into == data);
        const std::uint64_t by_a = pair.from_a().copied_together;
        const std::uint64_t by_b = pair.from_b().copied_together;
        CHECK(by_a + by_b == 100'001);
        CHECK(by_a > 30'000);
        CHECK(by_b > 30'000);
        CHECK(pair.a.counts().cooperative_sent == 1);
        CHECK(pair.from_b().gets == 0);
        CHECK(pair.from_a().puts == 0);
        CHECK(no_claims_open(pair));
        CHECK(pair.at_rest());
    });
}

TEST_CASE("a busy sender does not delay the receiver, which copies all") {
    with_pair<list>([](pair_type& pair) -> task<> {
        pair.from_a().helps = false;
        const auto data = pattern(10'001);
        std::vector<std::byte> into(10'001);
        for (int n = 0; n < 10; ++n) {  // claims are given back
            std::fill(into.begin(), into.end(), std::byte{0});
            auto sending = start(pair.a.send(data, 1));
            co_await pair.b.recv(into, 1);
            co_await sending;
            CHECK(into == data);
        }
        CHECK(pair.from_a().copied_together == 0);
        CHECK(pair.from_b().gets == 0);
        CHECK(no_claims_open(pair));
        CHECK(pair.at_rest());
    });
}

TEST_CASE("a receiver that is busy after it said ready finds the rest copied") {
    with_pair<list>([](pair_type& pair) -> task<> {
        pair.from_b().one_sided_steps = 1;
        const auto data = pattern(10'001);
        std::vector<std::byte> into(10'001);
        auto receiving = start(pair.b.recv(into, 1));
        auto sending = start(pair.a.send(data, 1));
        co_await turns(40);
        CHECK(pair.from_a().copied_together >= 9'000);
        CHECK_FALSE(receiving.done());
        pair.from_b().one_sided_steps = loopback_lane::unlimited;
        co_await receiving;
        co_await sending;
        CHECK(into == data);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("more messages than there are claims go by get") {
    with_pair<list>([](pair_type& pair) -> task<> {
        pair.from_a().claims = 2;
        const auto data = pattern(3000);
        std::deque<started<send_operation<pair_type::endpoint_type::connection_type>>> sends;
        for (unsigned n = 0; n < 5; ++n) sends.emplace_back(pair.a.send(data, n));
        for (unsigned n = 0; n < 5; ++n) {
            std::vector<std::byte> into(3000);
            co_await pair.b.recv(into, n);
            CHECK(into == data);
        }
        for (auto& s : sends) co_await s;
        CHECK(pair.from_b().gets == 3);
        CHECK(pair.a.counts().cooperative_sent == 5);
        CHECK(no_claims_open(pair));
        CHECK(pair.at_rest());
    });
}

TEST_CASE("scattered memory at either end goes by get, misaligned memory by put, and empty messages by word "
          "alone") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(400);
        scattered from(20, 20, 3);
        scattered into(40, 10, 3);
        from.fill(data);
        std::vector<std::byte> flat(400);
        auto sending = start(pair.a.send(from.from(), 1));  // 20 pieces: put
        co_await pair.b.recv(flat, 1);
        co_await sending;
        CHECK(flat == data);
        auto again = start(pair.a.send(data, 1));
        co_await pair.b.recv(into.into(), 1);
        co_await again;
        CHECK(into.gathered(400) == data);
        CHECK(into.gaps_untouched());
        CHECK(pair.from_b().gets == 40);
        pair.wire->offered.get_alignment = 8;
        auto odd = start(pair.a.send(std::span(data).subspan(1, 399), 1));
        co_await pair.b.recv(flat, 1);
        co_await odd;
        CHECK(std::equal(data.begin() + 1, data.end(), flat.begin()));
        auto none = start(pair.a.ssend({}, 1));
        const received got = co_await pair.b.recv(flat, 1);
        CHECK(got.bytes == 0);
        co_await none;
        CHECK(no_claims_open(pair));
        CHECK(pair.at_rest());
    });
}

TEST_CASE("a receiver that can expose nothing, or says ready too late, copies alone") {
    with_pair<list>([](pair_type& pair) -> task<> {
        const auto data = pattern(10'000);
        for (const bool exposes : {false, true}) {
            std::vector<std::byte> into(10'000);
            auto sending = start(pair.a.send(data, 1));
            co_await pair.b.probe(1);
            if (!exposes) pair.from_b().exposures = 0;
            pair.from_b().room = 0;
            co_await pair.b.recv(into, 1);
            CHECK(into == data);
            CHECK_FALSE(sending.done());
            pair.from_b().room = pair.from_b().exposures = loopback_lane::unlimited;
            co_await sending;
        }
        CHECK(pair.from_a().copied_together == 0);
        CHECK(no_claims_open(pair));
        CHECK(pair.at_rest());
    });
}

TEST_CASE("a receiver that copies together opens its destination without memory from the heap") {
    if constexpr (!counts_allocations) SKIP_TEST("a sanitizer allocates: nothing can be made to fail");
    with_pair<list>([](endpoint_pair<list>& pair) -> task<> {
        const auto data = pattern(1000);
        std::vector<std::byte> into(1000);
        auto sending = start(pair.a.send(data, 1));
        {
            const failing_allocations of_a_region(sizeof(region), sizeof(region));
            co_await pair.b.recv(into, 1);
        }
        co_await sending;
        CHECK(into == data);
        CHECK(pair.b.counts().regions_exposed == 1);
        CHECK(pair.at_rest());
    });
}

TEST_CASE("frames of a message that both copy: a claim in the request, ready with flag 1, received") {
    with_rendezvous_peer<list>([](peer_type& peer) -> task<> {
        const auto data = pattern(5000);
        std::vector<std::byte> there(5000);
        const region open = peer.link().expose(there, access_rights::remote_write);
        auto sending = start(peer.self().send(data, 1));
        heard_message heard = co_await peer.hear();
        CHECK(heard.payload == request_body(0, 5000, {source_of(heard).at(0)}, 0));
        say(peer, rv::ready, 0, ready_body(0, {open.remote()}), 1);
        co_await turns(20);
        CHECK(there == data);  // the sender copied nothing
        CHECK_FALSE(sending.done());
        say(peer, rv::received, 0);
        co_await sending;
        // The other way round.
        std::vector<std::byte> into(5000);
        auto mine = pattern(5000, 3);
        const region source = peer.link().expose(mine, access_rights::remote_read);
        const shared_copy_id claim = peer.link().open_shared_copy(5000);
        auto receiving = start(peer.self().recv(into, 2));
        say(peer, rv::request, 2, request_body(0, 5000, {source.remote()}, claim));
        heard = co_await peer.hear();
        CHECK(is(heard, rv::ready));
        CHECK(heard.header.flags == 1);
        const auto where = destination_of(heard);
        REQUIRE(where.size() == 1);
        CHECK(where[0].address == reinterpret_cast<std::uint64_t>(into.data()));
        co_await receiving;
        CHECK(into == mine);
        heard = co_await peer.hear();
        CHECK(is(heard, rv::received));
    });
}

TEST_CASE("messages that both copy may be given up at any moment, and leave no claim open") {
    static struct {
        int whole, sends_canceled, receives_canceled, given_up_by_peer, helped;
    } sum;
    sum = {};
    for (int turn = 0; turn < 10; ++turn) {
        for (unsigned bits = 1; bits < 16; ++bits) {
            if ((bits & 3) == 0) continue;
            CAPTURE(turn, bits);
            virtual_time world;
            world.run([](scheduler& on, int when, unsigned how) -> task<> {
                pair_type pair(on);
                co_await pair.open();
                auto data = std::make_unique<std::vector<std::byte>>(pattern(8000));
                auto into = std::make_unique<std::vector<std::byte>>(8000);
                local_stop_source stop_send;
                local_stop_source stop_receive;
                auto receiving = start(as_result(with_stop(pair.b.recv(*into, 1), stop_receive.get_token())));
                auto sending = start(as_result(with_stop(pair.a.send(*data, 1), stop_send.get_token())));
                if ((how & 4) != 0) pair.from_b().room = 0;
                co_await turns(when);
                if ((how & 8) != 0) pair.from_a().room = 0;
                if ((how & 1) != 0) stop_send.request_stop();
                if ((how & 2) != 0) stop_receive.request_stop();
                co_await turns(2);
                if (sending.done()) data.reset();
                if (receiving.done() && (how & 2) != 0) into.reset();
                co_await turns(10);
                pair.from_a().room = pair.from_b().room = loopback_lane::unlimited;
                co_await turns(20);
                stop_receive.request_stop();  // nothing may ever come for it
                stop_send.request_stop();     // nor is this asked for
                const auto sent = co_await sending;
                const auto got = co_await receiving;
                if (!sent) CHECK(sent.error() == errc::canceled);
                if (!sent) ++sum.sends_canceled;
                ++(got                                  ? sum.whole
                   : got.error() == errc::peer_canceled ? sum.given_up_by_peer
                                                        : sum.receives_canceled);
                if (pair.from_a().copied_together != 0) ++sum.helped;
                if (!got) {
                    CHECK((got.error() == errc::canceled || got.error() == errc::peer_canceled));
                } else if (into != nullptr) {
                    CHECK(*into == pattern(8000));
                }
                data.reset();
                into.reset();
                co_await turns(10);
                const auto more = pattern(5000, 2);
                for (int n = 0; n < 3; ++n) {
                    std::vector<std::byte> there(5000);
                    auto again = start(pair.b.recv(there, 2));
                    co_await pair.a.send(more, 2);
                    co_await again;
                    CHECK(there == more);
                }
                CHECK(no_claims_open(pair));
                CHECK(pair.at_rest());
            }(world.on, turn, bits));
        }
    }
    CHECK(sum.whole > 5);
    CHECK(sum.sends_canceled > 5);
    CHECK(sum.receives_canceled > 5);
    CHECK(sum.given_up_by_peer > 5);
    CHECK(sum.helped > 5);
}

TEST_CASE("ready to copy together that does not fit ends the link with protocol_violation") {
    struct wrong {
        const char* what;
        void (*send_it)(peer_type&, const remote_region&);
    };
    const wrong all[] = {
        {"an offset",
         [](peer_type& p, const remote_region& r) {
             say(p, rv::ready, 0, ready_body(1, {r.part(0, 99)}), 1);
         }},
        {"too little",
         [](peer_type& p, const remote_region& r) {
             say(p, rv::ready, 0, ready_body(0, {r.part(0, 99)}), 1);
         }},
        {"too much",
         [](peer_type& p, const remote_region& r) { say(p, rv::ready, 0, ready_body(0, {r}), 1); }},
        {"two pieces",
         [](peer_type& p, const remote_region& r) {
             say(p, rv::ready, 0, ready_body(0, {r.part(0, 50), r.part(50, 50)}), 1);
         }},
        {"flags that do not exist",
         [](peer_type& p, const remote_region& r) {
             say(p, rv::ready, 0, ready_body(0, {r.part(0, 100)}), 2);
         }},
        {"twice",
         [](peer_type& p, const remote_region& r) {
             say(p, rv::ready, 0, ready_body(0, {r.part(0, 100)}), 1);
             say(p, rv::ready, 0, ready_body(0, {r.part(0, 100)}), 1);
         }},
        {"and then alone",
         [](peer_type& p, const remote_region& r) {
             say(p, rv::ready, 0, ready_body(0, {r.part(0, 100)}), 1);
             say(p, rv::ready, 0, ready_body(0, {r.part(0, 100)}));
         }},
    };
    for (const wrong& w : all) {
        CAPTURE(w.what);
        virtual_time world;
        world.run([](scheduler& on, const wrong& what) -> task<> {
            peer_type peer(on);
            co_await peer.open();
            const auto data = pattern(100);
            std::vector<std::byte> there(200);
            const region open = peer.link().expose(there, access_rights::remote_write);
            auto sending = start(as_result(peer.self().send(data, 1)));
            co_await peer.hear();
            what.send_it(peer, open.remote());
            const auto ended = co_await sending;
            CHECK(ended.error() == errc::protocol_violation);
            CHECK(
                std::all_of(there.begin() + 100, there.end(), [](std::byte b) { return b == std::byte{0}; }));
        }(world.on, w));
    }
}

TEST_CASE("a claim or a source that is not the peer's own ends the link after its time") {
    for (const bool bad_claim : {true, false}) {
        CAPTURE(bad_claim);
        virtual_time world;
        world.run([](virtual_time& w, bool claim_is_bad) -> task<> {
            peer_type peer(w.on);
            co_await peer.open();
            auto mine = pattern(100);
            const region source = peer.link().expose(mine, access_rights::remote_read);
            remote_region named = source.remote();
            if (!claim_is_bad) named.key ^= 1u << 20;
            const shared_copy_id claim = peer.link().open_shared_copy(100);
            std::vector<std::byte> into(100);
            auto receiving = start(as_result(peer.self().recv(into, 1)));
            say(peer, rv::request, 1, request_body(0, 100, {named}, claim_is_bad ? claim + 1 : claim));
            const auto ended = co_await receiving;
            CHECK(ended.error() == errc::protocol_violation);
            CHECK(into == std::vector<std::byte>(100));
        }(world, bad_claim));
    }
}

}  // namespace test_protocol_cooperative_rendezvous
