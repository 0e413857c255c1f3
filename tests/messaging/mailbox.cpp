#include <rdmacoro/messaging/mailbox.hpp>

#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/rendezvous.hpp"
#include "support/scripted_peer.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace test_messaging_mailbox {

using namespace rdmacoro;
using namespace rdmacoro::test;

using scripted_mailbox = mailbox<loopback, scripted_peer::endpoint_type::protocols_type>;

TEST_CASE("a mailbox needs a scheduler") {
    CHECK_THROWS_AS(scripted_mailbox(), error);
    virtual_time world;
    scripted_mailbox box(world.on);
    CHECK(&box.owner() == &world.on);
    CHECK(box.size() == 0);
    CHECK_FALSE(box.is_open(0));
}

TEST_CASE("an endpoint of another scheduler is not attached") {
    virtual_time one;
    virtual_time other;
    scripted_peer peer(one.on);
    scripted_mailbox box(other.on);
    CHECK_THROWS_AS(box.attach(std::move(peer.self())), error);
    CHECK_THROWS_AS(box.attach(scripted_peer::endpoint_type()), error);
}

TEST_CASE("an endpoint may be attached in the middle of a message, matched or kept") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        std::vector<std::byte> into(3000);
        for (const int way : {2, 1, 0}) {
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            peer.from_peer().announces_above = 100;
            peer.from_peer().piece = 500;
            const std::vector<std::byte> data(3000, std::byte{5});
            if (way == 0) {  // an eager message of which a part is there
                peer.say(wire_kind::eager, 1, data);
            } else {  // a piece of which a part is there
                peer.say(wire_kind::announce, 1, announcement(0, way == 2 ? 1 : 0, 3000));
                peer.say(wire_kind::piece, 0, data);
            }
            for (int n = 0; n < 4; ++n) co_await yield();
            const peer_id id = box.attach(std::move(peer.self()));
            const received got = co_await box.recv(into, 1);
            CHECK(got.source == id);
            CHECK(got.bytes == 3000);
            CHECK(into == data);
            std::fill(into.begin(), into.end(), std::byte{0});
        }
        CHECK(box.base().store().live() == 0);
    }(world.on));
}

TEST_CASE(
    "a receive that is being filled while its endpoint is attached goes on and ends with the name that the "
    "peer has there") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        enum class end { value, lent, sender_gives_up, canceled, link_closed };
        scripted_mailbox box;
        scripted_peer first(on);
        co_await first.open();
        static_cast<void>(box.attach(std::move(first.self())));
        std::deque<scripted_peer> peers;
        const std::vector<std::byte> data(2000, std::byte{5});
        for (const end how : {end::value, end::lent, end::sender_gives_up, end::canceled, end::link_closed}) {
            CAPTURE(static_cast<int>(how));
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            std::vector<std::byte> into(2000);
            local_stop_source stop;
            auto receiving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
            auto lending = start(as_result(peer.self().recv_lent(1)));
            peer.say(wire_kind::announce, 1, announcement(0, 0, 2000));
            peer.say(wire_kind::announce, 1, announcement(1, 0, 2000));
            for (const std::uint32_t stream : {0u, 1u})
                peer.say(wire_kind::piece, stream, std::span(data).first(1000));
            co_await turns(4);
            CHECK_FALSE(receiving.done());
            const peer_id id = box.attach(std::move(peer.self()));
            CHECK(id != 0);
            const bool whole = how == end::value || how == end::lent;
            if (whole) {
                for (const std::uint32_t stream : {0u, 1u})
                    peer.say(wire_kind::piece, stream, std::span(data).first(1000));
            } else if (how == end::sender_gives_up) {
                for (const std::uint32_t stream : {0u, 1u}) peer.say(wire_kind::abandon, stream);
            } else if (how == end::canceled) {
                stop.request_stop();
            }
            if (how == end::canceled || how == end::link_closed)
                peer.link().close(make_error_code(errc::closed));
            const auto ended = co_await receiving;
            const auto lent = co_await lending;
            REQUIRE(ended.has_value() == whole);
            REQUIRE(lent.has_value() == whole);
            if (whole) {
                CHECK(ended->source == id);
                CHECK(into == data);
                CHECK(lent->source() == id);
                CHECK(std::equal(data.begin(), data.end(), lent->bytes().begin(), lent->bytes().end()));
            } else {
                CHECK(ended.facts().peer == id);
                CHECK(lent.facts().peer == id);
            }
        }
        CHECK(box.base().store().live() == 0);
    }(world.on));
}

TEST_CASE("a message of which a part was lent out before attaching lives on") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        const std::vector<std::byte> data(100, std::byte{5});
        peer.say(wire_kind::eager, 1, data);
        co_await peer.self().probe(1);
        message kept = co_await peer.self().recv_lent(1);
        const peer_id id = box.attach(std::move(peer.self()));
        box.remove(id);
        CHECK(kept.size() == 100);
        CHECK(kept.bytes()[99] == std::byte{5});
    }(world.on));
}

TEST_CASE("any-source receives look at every link in turn") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        for (int n = 0; n < 4; ++n) {
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            box.attach(std::move(peer.self()));
        }
        // Each has one: four receives get all of them without a turn of the scheduler.
        for (tag_type n = 0; n < 4; ++n) peers[n].say(wire_kind::eager, n);
        bool seen[4] = {};
        for (int n = 0; n < 4; ++n) {
            auto receiving = start(box.recv({}));
            CHECK(receiving.done());
            const received got = co_await receiving;
            seen[got.tag] = true;
        }
        CHECK((seen[0] && seen[1] && seen[2] && seen[3]));
    }(world.on));
}

TEST_CASE("a peer that is removed while all are being closed delays no other") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        for (int n = 0; n < 3; ++n) {
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            box.attach(std::move(peer.self()));
        }
        auto closing = start(box.close());
        box.remove(0);  // before its close has begun
        co_await yield();
        box.remove(1);  // in the middle of it
        CHECK_FALSE(closing.done());
        peers[2].say(wire_kind::goodbye_seen);
        co_await closing;
    }(world.on));
}

TEST_CASE("a receive from any source looks at two links when it begins, however many there are") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        for (int n = 0; n < 100; ++n) {
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            REQUIRE(box.attach(std::move(peer.self())) == static_cast<peer_id>(n));
        }
        const auto polls = [&] {
            std::uint64_t all = 0;
            for (scripted_peer& peer : peers) all += peer.to_peer().polls;
            return all;
        };
        std::vector<std::byte> into(8);
        std::vector<std::byte> other(8);
        const std::vector<std::byte> data(8, std::byte{5});
        for (int n = 0; n < 250; ++n) {
            const std::uint64_t before = polls();
            auto any = start(box.recv(into, 7));
            CHECK(polls() - before <= 2);
            CHECK(polls() - before >= 1);
            // Whichever peer it is, the scheduler's turn finds its message.
            peers[static_cast<std::size_t>(n * 37 % 100)].say(wire_kind::eager, 7, data);
            const received got = co_await any;
            CHECK(got.source == static_cast<peer_id>(n * 37 % 100));
        }
        // One that speaks on is looked at each time, and the others in turn: no message of either waits for a turn for long.
        for (int n = 0; n < 101; ++n) {
            peers[5].say(wire_kind::eager, 8, data);
            peers[50].say(wire_kind::eager, 9, data);
            auto talker = start(box.recv(into, 8));
            auto silent = start(box.recv(other, 9));
            co_await talker;
            co_await silent;
        }
    }(world.on));
}

TEST_CASE("the place of a removed peer is the next one's") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        const auto join = [&]() -> task<peer_id> {
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            co_return box.attach(std::move(peer.self()));
        };
        for (peer_id n = 0; n < 6; ++n) {
            const peer_id given = co_await join();
            CHECK(given == n);
        }
        for (const peer_id gone : {4u, 1u, 2u}) box.remove(gone);
        CHECK(box.size() == 3);
        for (const peer_id free : {1u, 2u, 4u, 6u}) {
            const peer_id given = co_await join();
            CHECK(given == free);
        }
        CHECK(box.size() == 7);
    }(world.on));
}

TEST_CASE("a mailbox tells of each peer whose link has ended, with its name and why, in their order") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        for (int n = 0; n < 100; ++n) {
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            box.attach(std::move(peer.self()));
        }
        auto waiting = start(box.gone());
        co_await yield();
        CHECK_FALSE(waiting.done());
        // One while it is awaited, the others before.
        peers[42].link().close(make_error_code(errc::closed));
        const gone_peer first = co_await waiting;
        CHECK(first.peer == 42);
        CHECK(first.why == errc::peer_lost);
        CHECK_FALSE(box.is_open(42));
        for (peer_id n = 0; n < 100; n += 3) {
            if (n != 42) peers[n].link().close(make_error_code(errc::closed));
            co_await yield();
        }
        peers[7].say(wire_kind::goodbye_seen);  // not asked for
        while (box.is_open(7)) co_await yield();
        box.remove(30);  // by the program, which knows it
        box.remove(31);
        for (peer_id n = 0; n < 100; n += 3) {
            if (n == 42 || n == 30) continue;
            auto telling = start(box.gone());
            REQUIRE(telling.done());
            const gone_peer next = co_await telling;
            CHECK(next.peer == n);
            CHECK(next.why == errc::peer_lost);
            box.remove(n);
        }
        const gone_peer last = co_await box.gone();
        CHECK(last.peer == 7);
        CHECK(last.why == errc::protocol_violation);
        const auto none = co_await as_result(timeout(box.gone(), std::chrono::hours(1)));
        CHECK(none.error() == errc::timed_out);
    }(world.on));
}

TEST_CASE("a peer whose link ends as the mailbox takes it, in a message that a receive waits for, is told of "
          "once") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        using peer_type = basic_scripted_peer<protocols<get_rendezvous<>, segmented<>>>;
        mailbox<loopback, peer_type::endpoint_type::protocols_type> box;
        peer_type peer(on);
        co_await peer.open();
        std::vector<std::byte> data(3000);
        say(peer, rv::request, 3,
            request_body(0, data.size(), {{reinterpret_cast<std::uintptr_t>(data.data()), data.size(), 1}}));
        co_await turns(100);
        std::vector<std::byte> into(3000);
        auto receives = start(as_result(box.recv(into, 3)));
        auto waiting = start(box.gone());
        co_await yield();
        peer.to_peer().broken = true;  // which the get finds first
        const peer_id id = box.attach(std::move(peer.self()));
        CHECK_FALSE(box.is_open(id));
        REQUIRE(waiting.done());
        const gone_peer told = co_await waiting;
        CHECK(told.peer == id);
        const auto again = co_await as_result(timeout(box.gone(), std::chrono::hours(1)));
        CHECK(again.error() == errc::timed_out);
        const auto ended = co_await receives;
        CHECK(ended.error() == errc::peer_lost);
    }(world.on));
}

TEST_CASE("a peer's messages that came before its end can be received after gone has told of it") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        const peer_id id = box.attach(std::move(peer.self()));
        peer.say(wire_kind::eager, 3, std::vector<std::byte>(8));
        peer.link().close(make_error_code(errc::closed));
        const gone_peer told = co_await box.gone();
        CHECK(told.peer == id);
        const message got = co_await box.recv_lent(3);
        CHECK(got.size() == 8);
    }(world.on));
}

TEST_CASE("a receive from any source ends with peer_lost, once, where it meets a message that a lost peer "
          "did not finish") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        const peer_id id = box.attach(std::move(peer.self()));
        peer.say(wire_kind::announce, 3, announcement(0, 0, 3000));
        peer.say(wire_kind::piece, 0, std::vector<std::byte>(1000));
        peer.say(wire_kind::eager, 3, std::vector<std::byte>(8));
        peer.link().close(make_error_code(errc::closed));
        const gone_peer told = co_await box.gone();
        CHECK(told.peer == id);
        const auto unfinished = co_await as_result(box.recv_lent(3));
        CHECK(unfinished.error() == errc::peer_lost);
        const message behind = co_await box.recv_lent(3);
        CHECK(behind.size() == 8);
        const auto none = co_await as_result(timeout(box.recv_lent(3), std::chrono::hours(1)));
        CHECK(none.error() == errc::timed_out);
        CHECK(box.base().store().live() == 0);
    }(world.on));
}

TEST_CASE("an eager message of which a part had come keeps its place when its link ends") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        std::byte into[8];
        for (const bool attached_before : {true, false}) {
            for (const errc why : {errc::peer_lost, errc::closed}) {
                CAPTURE(attached_before, why);
                scripted_peer& peer = peers.emplace_back(on);
                co_await peer.open();
                detail::connection_base& link = peer.self().connection();
                peer_id id = 0;
                if (attached_before) id = box.attach(std::move(peer.self()));
                peer.from_peer().announces_above = 100;
                peer.from_peer().piece = 1;
                peer.say(wire_kind::eager, 3, std::vector<std::byte>(5000));
                co_await turns(100);
                if (!attached_before) id = box.attach(std::move(peer.self()));
                // Posted since: behind the message, of which nothing is to be seen yet.
                auto other = start(as_result(timeout(box.recv(into, 4), std::chrono::hours(1))));
                auto first = start(as_result(timeout(box.recv(into, 3), std::chrono::hours(1))));
                auto second = start(as_result(timeout(box.recv(into, 3), std::chrono::hours(1))));
                CHECK(box.base().matching().unexpected() == 0);
                link.close(make_error_code(why));
                const auto met = co_await first;
                CHECK(met.error() == (why == errc::closed ? errc::timed_out : errc::peer_lost));
                for (auto* const each : {&other, &second}) {
                    const auto none = co_await *each;
                    CHECK(none.error() == errc::timed_out);
                }
                CHECK(box.base().matching().unexpected() == (why == errc::closed ? 1 : 0));
                const auto named = co_await as_result(box.recv(into, 3, id));
                CHECK(named.error() == why);
                CHECK(box.base().store().live() == 0);
            }
        }
        // None was posted: the next one meets it.
        scripted_peer& peer = peers.emplace_back(on);
        co_await peer.open();
        detail::connection_base& link = peer.self().connection();
        static_cast<void>(box.attach(std::move(peer.self())));
        peer.from_peer().announces_above = 100;
        peer.from_peer().piece = 1;
        peer.say(wire_kind::eager, 3, std::vector<std::byte>(5000));
        co_await turns(100);
        link.close(make_error_code(errc::peer_lost));
        const auto met = co_await as_result(box.recv(into, 3));
        CHECK(met.error() == errc::peer_lost);
        const auto none = co_await as_result(timeout(box.recv(into, 3), std::chrono::hours(1)));
        CHECK(none.error() == errc::timed_out);
        CHECK(box.base().store().live() == 0);
    }(world.on));
}

TEST_CASE("receives that were canceled before their endpoint was attached drop the messages that they would "
          "have taken") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        {
            const auto canceled = [&](tag_match wanted, int after) {
                return start(as_result(
                    timeout(peer.self().recv({}, wanted, discard_if_canceled), std::chrono::seconds(after))));
            };
            auto five = canceled(5, 1);
            auto any = canceled(any_tag, 2);
            auto other = canceled(100, 3);
            auto last = canceled(101, 4);
            for (auto* each : {&five, &any, &other, &last}) {
                const auto ended = co_await *each;
                CHECK(ended.error() == errc::timed_out);
            }
        }
        static_cast<void>(box.attach(std::move(peer.self())));
        peer.say(wire_kind::eager, 5, std::vector<std::byte>(8));
        peer.say(wire_kind::eager, 7, std::vector<std::byte>(8));
        const auto none = co_await as_result(timeout(box.probe(8), std::chrono::hours(1)));
        CHECK(none.error() == errc::timed_out);
        CHECK(box.base().matching().unexpected() == 0);
        CHECK(box.base().discarding().posted() == 2);
    }(world.on));
}

namespace {

task<> stores_of_one_that_leaves(scheduler& owner, sim_options how) {
    sim::domain here(owner, how);
    sim::domain there(owner, how);
    message_pool pool(64u << 20);
    mailbox_options stores;
    stores.pool = &pool;
    using list = protocols<eager<>, segmented<>>;
    mailbox<sim, list> box(owner, stores);
    auto listening = co_await listen<sim, list>(there, "there");
    auto accepting = start(listening.accept());
    auto receiver = co_await connect<sim, list>(here, "there", stores);
    const peer_id id = box.attach(std::move(receiver));
    auto sender = co_await accepting;
    const std::vector<std::byte> data(3000);
    for (int n = 0; n < 1000; ++n) co_await sender.send(data, 1);
    co_await sender.close();
    const gone_peer told = co_await box.gone();
    CHECK(told.peer == id);
    std::size_t before = pool.granted();
    CHECK(before > (2u << 20));
    for (int n = 0; n < 1000; ++n) {
        const message got = co_await box.recv_lent(1);
        CHECK(got.size() == 3000);
        if (n % 100 != 99 || before == 0) continue;
        CHECK(pool.granted() < before);
        before = pool.granted();
    }
    CHECK(pool.granted() == 0);
    CHECK(box.size() == 1);
}

}  // namespace

TEST_CASE("a peer that is gone holds no part of the pool once its messages are received") {
    sim_world within;
    scheduler on(impatient{}, within.time());
    sim_options options;
    options.world = &within;
    on.run([](scheduler& owner, sim_options how) -> task<> {
        co_await timeout(stores_of_one_that_leaves(owner, how), std::chrono::hours(1));
    }(on, options));
}

TEST_CASE("a mailbox that closes while one of its peers is being closed waits for that peer, too") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        const peer_id id = box.attach(std::move(peer.self()));
        auto one = start(box.close(id));
        auto all = start(box.close());
        co_await sleep_for(std::chrono::seconds(1));
        CHECK_FALSE(one.done());
        CHECK_FALSE(all.done());
        CHECK_FALSE(peer.reason());
        const auto pending = on.describe().operations();
        CHECK(std::count_if(pending.begin(), pending.end(),
                            [](const pending_operation& each) { return each.what == "close"; }) == 2);
        peer.say(wire_kind::goodbye_seen);
        co_await one;
        co_await all;
    }(world.on));
}

TEST_CASE("a close that is canceled ends the others of its peer") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        const peer_id id = box.attach(std::move(peer.self()));
        auto limited = start(as_result(timeout(box.close(id), std::chrono::seconds(1))));
        auto patient = start(box.close(id));
        const auto ended = co_await limited;
        CHECK(ended.error() == errc::timed_out);
        co_await patient;
        CHECK_FALSE(box.is_open(id));
    }(world.on));
}

TEST_CASE("a peer that is closed before it has finished a message ends no receive from any source, and one "
          "that names it") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        const peer_id id = box.attach(std::move(peer.self()));
        peer.say(wire_kind::announce, 3, announcement(0, 0, 3000));
        peer.say(wire_kind::eager, 4, std::vector<std::byte>(8));
        peer.say(wire_kind::eager, 3, std::vector<std::byte>(9));
        co_await box.probe(4);
        auto closing = start(box.close(id));
        co_await yield();
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
        CHECK_FALSE(box.is_open(id));
        const message complete = co_await box.recv_lent(4);
        CHECK(complete.size() == 8);
        const auto none = co_await as_result(timeout(box.recv_lent(5), std::chrono::hours(1)));
        CHECK(none.error() == errc::timed_out);
        const auto unfinished = co_await as_result(box.recv_lent(3, id));
        CHECK(unfinished.error() == errc::closed);
        const message behind = co_await box.recv_lent(3, id);
        CHECK(behind.size() == 9);
        const auto used_up = co_await as_result(box.recv_lent(3, id));
        CHECK(used_up.error() == errc::closed);
        CHECK(box.base().matching().unexpected() == 0);
    }(world.on));
}

TEST_CASE("a receive from any source passes a message by that a peer did not finish before it was closed, "
          "also one of an endpoint that was attached since") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        for (const bool attached_before : {true, false}) {
            CAPTURE(attached_before);
            scripted_peer peer(on);
            co_await peer.open();
            std::optional<peer_id> id;
            if (attached_before) id = box.attach(std::move(peer.self()));
            peer.say(wire_kind::announce, 3, announcement(0, 0, 3000));
            peer.say(wire_kind::eager, 3, std::vector<std::byte>(8));
            co_await turns(100);
            if (attached_before) {
                static_cast<void>(co_await box.probe(3, *id));
                auto closing = start(box.close(*id));
                co_await yield();
                peer.say(wire_kind::goodbye_seen);
                co_await closing;
            } else {
                static_cast<void>(co_await peer.self().probe(3));
                auto closing = start(peer.self().close());
                co_await yield();
                peer.say(wire_kind::goodbye_seen);
                co_await closing;
                id = box.attach(std::move(peer.self()));
            }
            const message got = co_await box.recv_lent(3);
            CHECK(got.size() == 8);
            const auto none = co_await as_result(timeout(box.recv_lent(3), std::chrono::hours(1)));
            CHECK(none.error() == errc::timed_out);
            CHECK(box.base().matching().unexpected() == 1);
            if (attached_before) box.remove(*id);  // the other one goes with the mailbox
        }
        CHECK(box.base().store().live() == 1);
    }(world.on));
}

TEST_CASE("a mailbox closes all its peers in good order although memory is short") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        constexpr std::size_t size = 40;  // some coroutines find memory that others have left
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        for (std::size_t n = 0; n < size; ++n) {
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            box.attach(std::move(peer.self()));
        }
        auto receives = start(as_result(box.recv_lent(3)));
        auto closing = box.close();
        fail_next_allocations(1);
        auto ended = start(as_result(std::move(closing)));
        co_await yield();
        fail_next_allocations(0);
        std::size_t told_at_once = 0;
        for (scripted_peer& peer : peers) told_at_once += peer.heard().empty() ? 0 : 1;
        CHECK(told_at_once < size);
        std::size_t answered = 0;
        for (int turn = 0; turn < 10'000 && answered < size; ++turn) {
            for (scripted_peer& peer : peers) {
                if (peer.heard().empty()) continue;
                CHECK(peer.heard().front().header.kind == static_cast<std::uint8_t>(wire_kind::goodbye));
                peer.heard().clear();
                peer.say(wire_kind::goodbye_seen);
                ++answered;
            }
            co_await yield();
        }
        CHECK(answered == size);
        const result<void> how = co_await ended;
        CHECK(how);
        const auto none = co_await receives;
        CHECK(none.error() == errc::closed);
    }(world.on));
}

TEST_CASE("a wait for a gone peer is described while it lasts") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        static_cast<void>(box.attach(std::move(peer.self())));
        const auto described = [&] {
            const auto all = on.describe().operations();
            return std::count_if(all.begin(), all.end(), [](const pending_operation& one) {
                return one.what == "gone" && one.stage == "no link has ended that it could tell of" &&
                       one.next == next_actor::outside;
            });
        };
        CHECK(described() == 0);
        auto waits = start(box.gone());
        CHECK(described() == 1);
        peer.link().close(make_error_code(errc::closed));
        static_cast<void>(co_await waits);
        CHECK(described() == 0);
        auto canceled = start(timeout(box.gone(), std::chrono::hours(1)));
        CHECK(described() == 1);
        const auto none = co_await as_result(canceled);
        CHECK(none.error() == errc::timed_out);
        CHECK(described() == 0);
    }(world.on));
}

TEST_CASE("waits for gone peers are served in turn, and a canceled one loses none") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        std::deque<scripted_peer> peers;
        for (int n = 0; n < 3; ++n) {
            scripted_peer& peer = peers.emplace_back(on);
            co_await peer.open();
            if (n == 2) {  // its link has ended before it is attached
                peer.link().close(make_error_code(errc::closed));
                while (peer.self().is_open()) co_await yield();
            }
            if (n < 2) box.attach(std::move(peer.self()));
        }
        local_stop_source stop;
        auto first = start(as_result(with_stop(box.gone(), stop.get_token())));
        auto second = start(box.gone());
        auto third = start(box.gone());
        stop.request_stop();
        peers[1].link().close(make_error_code(errc::closed));
        const auto canceled = co_await first;
        CHECK(canceled.error() == errc::canceled);
        const gone_peer one = co_await second;
        CHECK(one.peer == 1);
        CHECK_FALSE(third.done());
        const peer_id late = box.attach(std::move(peers[2].self()));
        const gone_peer two = co_await third;
        CHECK(two.peer == late);
    }(world.on));
}

TEST_CASE("gone ends when its mailbox is closed or destroyed, after it has told of the peers") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        std::optional<scripted_mailbox> box(std::in_place);
        scripted_peer peer(on);
        co_await peer.open();
        const peer_id id = box->attach(std::move(peer.self()));
        auto closing = start(box->close());
        co_await peer.hear();
        peer.say(wire_kind::goodbye_seen);
        co_await closing;
        const gone_peer told = co_await box->gone();
        CHECK(told.peer == id);
        CHECK(told.why == errc::closed);
        const auto nothing_more = co_await as_result(box->gone());
        CHECK(nothing_more.error() == errc::closed);

        box.emplace();
        auto waiting = start(as_result(box->gone()));
        box.reset();
        const auto destroyed = co_await waiting;
        CHECK(destroyed.error() == errc::closed);
    }(world.on));
}

TEST_CASE("a receive and a probe from a peer that there never was take no message of another one") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        const peer_id id = box.attach(std::move(peer.self()));
        const std::vector<std::byte> data(8, std::byte{5});
        peer.say(wire_kind::eager, 7, data);
        while (box.base().store().live() == 0) co_await yield();
        std::vector<std::byte> into(8);
        for (const peer_id never : {id + 1, peer_id{77}}) {
            const auto got = co_await as_result(box.recv(into, 7, never));
            CHECK(got.error() == errc::invalid_argument);
            const auto lent = co_await as_result(box.recv_lent(7, never));
            CHECK(lent.error() == errc::invalid_argument);
            const auto found = co_await as_result(box.probe(any_tag, never));
            CHECK(found.error() == errc::invalid_argument);
            CHECK(box.discard(any_tag, never) == 0);
        }
        const received got = co_await box.recv(into, 7, id);
        CHECK(got.bytes == 8);
    }(world.on));
}

TEST_CASE(
    "a receive from any source asks a few starved peers at once and each of them in the turns that follow") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        constexpr std::size_t count = 200;
        mailbox_options little;
        little.unexpected_bytes = 1;  // so that there is no more credit to be given
        scripted_mailbox box(on, little);
        std::deque<scripted_peer> peers;
        for (std::size_t n = 0; n < count; ++n) {
            scripted_peer& peer = peers.emplace_back(on, little);
            co_await peer.open();
            box.attach(std::move(peer.self()));
        }
        const auto questions_to = [](scripted_peer& peer) {
            return std::ranges::count_if(peer.heard(), [](const heard_message& one) {
                return one.header.kind == static_cast<std::uint8_t>(wire_kind::ahead);
            });
        };
        const auto asked = [&] {
            std::size_t all = 0;
            for (scripted_peer& peer : peers) all += static_cast<std::size_t>(questions_to(peer));
            return all;
        };
        const auto answer = [&] {
            for (scripted_peer& peer : peers) {
                peer.heard().clear();
                peer.say(wire_kind::ahead, 1, {}, 0,
                         static_cast<std::uint8_t>(rdmacoro::detail::ahead_word::none));
            }
        };
        std::vector<std::byte> into(8);
        auto first = start(box.recv(into, 7));
        // Some are given credit first, as long as there is any.
        for (int times = 0; times < 100 && asked() < count; ++times) {
            for (scripted_peer& peer : peers) {
                if (questions_to(peer) == 0) peer.say(wire_kind::starved);
            }
            for (int n = 0; n < 10; ++n) co_await yield();
        }
        REQUIRE(asked() == count);
        answer();
        for (int n = 0; n < 10; ++n) co_await yield();
        CHECK(asked() == 0);
        auto second = start(box.recv(into, 8));
        co_await yield();
        CHECK(asked() >= 1);
        CHECK(asked() <= 3 * 16);
        for (std::size_t n = 0; n < count; ++n) co_await yield();
        std::size_t once = 0;
        for (scripted_peer& peer : peers) once += questions_to(peer) == 1 ? 1 : 0;
        CHECK(once == count);
        // Two that begin together are one question to all but the first few.
        answer();
        for (int n = 0; n < 10; ++n) co_await yield();
        auto third = start(box.recv(into, 9));
        auto fourth = start(box.recv(into, 10));
        for (std::size_t n = 0; n < 2 * count; ++n) co_await yield();
        std::size_t both = 0;
        for (scripted_peer& peer : peers) {
            REQUIRE(!peer.heard().empty());
            both += peer.heard()[0].payload.size() == 32 ? 1 : 0;
        }
        CHECK(both >= count - 16);
        for (tag_type tag = 7; tag <= 10; ++tag) peers[0].say(wire_kind::eager, tag);
        co_await first;
        co_await second;
        co_await third;
        co_await fourth;
    }(world.on));
}

TEST_CASE("a send to a peer that was removed ends with an error and does not throw from the call") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_mailbox box;
        scripted_peer peer(on);
        co_await peer.open();
        const peer_id id = box.attach(std::move(peer.self()));
        box.remove(id);
        const auto sent = co_await as_result(box.send(id, std::string_view("hello"), 1));
        CHECK(sent.error() == errc::invalid_argument);
        const auto matched = co_await as_result(box.ssend(id, {}, 1));
        CHECK(matched.error() == errc::invalid_argument);
        const auto never = co_await as_result(box.send(77, {}, 1));
        CHECK(never.error() == errc::invalid_argument);
    }(world.on));
}

namespace {

/// Of the end of a mailbox that has 50 messages of each of so many peers, which nothing has received.
task<duration> time_to_end(scheduler& on, std::size_t peers) {
    constexpr std::size_t each = 50;
    sim::domain here(on);
    sim::domain there(on);
    auto box = std::make_unique<mailbox<sim>>(on);
    std::deque<endpoint<sim>> senders;
    auto listening = co_await listen<sim>(here, "sim://receiver");
    for (std::size_t n = 0; n < peers; ++n) {
        auto accepting = start(listening.accept());
        senders.push_back(co_await connect<sim>(there, listening.address()));
        box->attach(co_await accepting);
    }
    for (std::uint64_t n = 0; n < each; ++n) {
        for (auto& sender : senders) co_await sender.send(bytes_of(n), n);
    }
    while (box->base().matching().unexpected() < each * peers) co_await yield();
    const auto began = std::chrono::steady_clock::now();
    box.reset();
    const duration took = std::chrono::steady_clock::now() - began;
    for (auto& sender : senders) sender.abort();
    co_return took;
}

}  // namespace

TEST_CASE("a mailbox with a hundred thousand messages of two thousand peers ends within a second") {
    // Where each link's messages are looked for among those of all, it takes several.
    virtual_time world;
    const duration took = world.run(time_to_end(world.on, 2000));
    CAPTURE(took.count());
    if (counts_allocations) CHECK(took < std::chrono::seconds(1));
}

}  // namespace test_messaging_mailbox
