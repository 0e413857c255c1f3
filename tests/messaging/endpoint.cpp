#include <rdmacoro/messaging/endpoint.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <array>
#include <utility>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
using end = scripted_peer::endpoint_type;

template <class Buffers>
concept sendable = requires(end& e, Buffers b) { e.send(b); };
template <class Buffers>
concept receivable = requires(end& e, Buffers b) { e.recv(b); };
}  // namespace

// Whatever is bytes in a row can be sent, and received into when it may be written.
static_assert(sendable<std::span<const std::byte>> && sendable<std::span<std::byte>>);
static_assert(sendable<std::vector<std::byte>&> && sendable<const std::vector<std::byte>&>);
static_assert(sendable<std::array<std::byte, 3>&> && sendable<const_buffers> &&
              sendable<const const_buffers&>);
static_assert(receivable<std::span<std::byte>> && receivable<std::vector<std::byte>&> &&
              receivable<mutable_buffers>);
static_assert(!receivable<std::span<const std::byte>> && !receivable<const std::vector<std::byte>&>);
static_assert(!sendable<std::vector<int>&> && !sendable<const char*> && !receivable<std::span<char>>);

TEST_CASE("an endpoint says who its peer is, what the link can do, and how messages travel") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        CHECK_FALSE(peer.self().is_open());
        co_await peer.open();
        CHECK(peer.self().is_open());
        CHECK(peer.self().peer_name() == "loopback");
        CHECK(peer.self().link_capabilities().eager_bytes == 4096);
        CHECK_THAT(peer.self().explain(), contains("0           4096        send   eager"));
        CHECK(&peer.self().owner() == &on);
        end moved = std::move(peer.self());
        CHECK_FALSE(peer.self().is_open());
        CHECK(moved.is_open());
        co_await moved.send({}, 3);
        const heard_message m = co_await peer.hear();
        CHECK(m.header.tag == 3);
        moved.abort();
        moved.abort();
        CHECK_FALSE(moved.is_open());
    }(world.on));
}

TEST_CASE("operations refer to what an endpoint holds and not to it") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        std::byte into[4];
        auto receiving = start(peer.self().recv(into, 5));
        end moved = std::move(peer.self());
        peer.say(wire_kind::eager, 5);
        const received got = co_await receiving;
        CHECK(got.bytes == 0);
        CHECK(got.source == 0);
    }(world.on));
}
