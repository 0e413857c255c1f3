#include <rdmacoro/messaging/mailbox.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <deque>
#include <utility>

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
        CHECK(box.box().store().live() == 0);
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

TEST_CASE("a peer that is removed while all are being closed holds nobody up") {
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
