// Receives that are canceled while their buffers are announced, and links that end meanwhile.

#include <rdmacoro/protocol/speculative.hpp>

#include "support/catch.hpp"
#include "support/speculation.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>

namespace test_protocol_speculative_cancel {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::speculation;

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
        peer.send_raw(withdrawn, 1, {});
        co_await turns(3);
        CHECK_FALSE(first.done());
        peer.send_raw(withdrawn, 2, {});
        const auto ended = co_await first;
        CHECK(ended.error() == errc::canceled);
        std::fill(little.begin(), little.end(), std::byte{0xaa});
        // From now on they take messages one earlier, by request.
        for (int n = 0; n < 3; ++n) peer.send_raw(8, 1, pattern(100, static_cast<unsigned>(n)));
        co_await r1;
        co_await r2;
        co_await r3;
        CHECK(std::equal(into[0].begin(), into[0].begin() + 100, pattern(100, 0).begin()));
        CHECK(all_are(little, 0xaa));
        peer.send_raw(claim, 0, length(7));
        peer.send_raw(finish, 0, {});
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
        CHECK(peer.self().connection().mailbox().matching().posted() == 0);
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

}  // namespace test_protocol_speculative_cancel
