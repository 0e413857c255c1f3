#include <rdmacoro/protocol/speculative.hpp>

#include <rdmacoro/messaging/mailbox.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/speculation.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_speculative {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::speculation;

// ---- orders

TEST_CASE("receiver first: the data lands though the receiver does nothing after its start") {
    with_pair<list>([](pair_type& pair) -> task<> {
        for (const std::size_t bytes : {1u, 100u, 100000u}) {
            const auto data = pattern(bytes);
            std::vector<std::byte> into(bytes);
            auto receiving = start(pair.b.recv(into, 5));
            pair.from_a().held = true;                   // from here on the receiver hears nothing
            auto sending = start(pair.a.send(data, 5));  // looks at what has arrived
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
            peer.send_raw(static_cast<std::uint8_t>(static_cast<int>(sp::announce) + 1), tag,
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
        peer.send_raw(11, 0, {});
        peer.send_raw(11, 1, {});
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
        std::uint32_t stream = 0;
        for (const tag_type tag : {1u, 0x11u, 0x15u, 0x25u, 0x26u, 0x99u, 0x27u})
            say(peer, rv::request, tag, request_body(stream++, 0));
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

TEST_CASE("a receive with more than 64 receives of its tag ahead is not announced though numbers are free") {
    with_pair<list>([](pair_type& pair) -> task<> {
        std::deque<std::vector<std::byte>> into;
        std::deque<started<receive_operation<pair_type::endpoint_type::connection_type>>> receiving;
        const auto post = [&] { receiving.emplace_back(pair.b.recv(into.emplace_back(50u), 1)); };
        for (int n = 0; n < 70; ++n) post();
        CHECK(pair.b.counts().announced == 64);
        co_await turns(3);
        unsigned next = 0;
        const auto pass = [&](unsigned to) -> task<> {
            for (; next < to; ++next) {
                co_await pair.a.send(pattern(50, next), 1);
                co_await receiving[next];
                CHECK(into[next] == pattern(50, next));
            }
        };
        co_await pass(5);
        post();  // behind 65
        CHECK(pair.b.counts().announced == 64);
        co_await pass(7);
        post();  // behind 64
        CHECK(pair.b.counts().announced == 65);
        co_await pass(72);
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

}  // namespace test_protocol_speculative
