#include <rdmacoro/messaging/endpoint.hpp>

#include "conformance/transports.hpp"
#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <array>
#include <cstring>
#include <list>
#include <string>
#include <string_view>
#include <utility>

namespace test_messaging_endpoint {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
using end = scripted_peer::endpoint_type;

template <class Buffers>
concept sendable = requires(end& e, Buffers b) {
    e.send(static_cast<Buffers&&>(b), 7);
    e.ssend(static_cast<Buffers&&>(b), 7);
};
template <class Buffers>
concept receivable = requires(end& e, Buffers b) { e.recv(static_cast<Buffers&&>(b), 7); };
}  // namespace

// Whatever is bytes in a row can be sent, and received into when it may be written.
static_assert(sendable<std::span<const std::byte>> && sendable<std::span<std::byte>>);
static_assert(sendable<std::vector<std::byte>&> && sendable<const std::vector<std::byte>&>);
static_assert(sendable<std::array<std::byte, 3>&> && sendable<const_buffers> &&
              sendable<const const_buffers&>);
static_assert(receivable<std::span<std::byte>> && receivable<std::vector<std::byte>&> &&
              receivable<mutable_buffers>);
static_assert(!receivable<std::span<const std::byte>> && !receivable<const std::vector<std::byte>&>);

// So can text, and elements in a row that are copied bytewise.
static_assert(sendable<std::string> && sendable<std::string_view> && sendable<const std::vector<int>&> &&
              sendable<double (&)[3]> && sendable<std::span<const int>>);
static_assert(receivable<std::string&> && receivable<std::vector<int>&> && receivable<std::span<char>> &&
              receivable<char (&)[8]>);
static_assert(!receivable<const std::string&> && !receivable<std::string_view> &&
              !receivable<std::vector<int>> && !receivable<std::span<const int>>);
static_assert(!sendable<const char*> && !sendable<const char (&)[6]> && !sendable<int&> &&
              !sendable<std::vector<bool>&> && !sendable<std::list<int>&>);
static_assert(!sendable<std::vector<std::string>&> && !sendable<std::vector<int*>&> &&
              !sendable<std::array<std::string_view, 2>&>);
static_assert(!receivable<int*> && !receivable<int&> && !receivable<std::vector<bool>&> &&
              !receivable<std::list<int>&>);

TEST_CASE("an endpoint tells its peer, the link's capabilities, and how messages travel") {
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

TEST_CASE("text, vectors and arrays are sent as their elements, and filled from the beginning") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        const std::string text(100, 'x');  // longer than what lies in the object
        co_await peer.self().send(text, 1);
        co_await peer.self().send(std::string_view("abc"), 2);
        const std::vector<std::uint16_t> numbers{1, 2, 3};
        co_await peer.self().send(numbers, 3);
        const std::uint32_t header = 7;
        co_await peer.self().send(gather(bytes_of(header), numbers, text), 4);
        heard_message m = co_await peer.hear();
        CHECK(m.payload == std::vector<std::byte>(100, std::byte{'x'}));
        m = co_await peer.hear();
        CHECK(m.payload.size() == 3);
        m = co_await peer.hear();
        CHECK(m.payload == raw({1, 0, 2, 0, 3, 0}));
        m = co_await peer.hear();
        CHECK(m.payload.size() == 110);

        peer.say(wire_kind::eager, 5, std::as_bytes(std::span("hello", 5)));
        std::string into(8, '-');
        received got = co_await peer.self().recv(into, 5);
        CHECK(into.substr(0, got.bytes) == "hello");
        CHECK(into.substr(5) == "---");
        peer.say(wire_kind::eager, 6, raw({1, 0, 2, 0, 3, 0}));
        std::uint16_t first = 0;
        std::vector<std::uint16_t> rest(2);
        got = co_await peer.self().recv(scatter(bytes_of(first), rest), 6);
        CHECK(got.bytes == 6);
        CHECK(first == 1);
        CHECK(rest == std::vector<std::uint16_t>{2, 3});
    }(world.on));
}

TEMPLATE_LIST_TEST_CASE("vectors, arrays, spans and text are registered, put and got as their elements", "",
                        every_kind) {
    using T = typename TestType::transport_type;
    scheduler on;
    const auto domain = TestType::open(on);
    on.run([](typename T::domain& here, std::string address) -> task<> {
        auto listening = co_await listen<T>(here, address);
        auto accepting = start(listening.accept());
        auto a = co_await connect<T>(here, listening.address());
        auto serving = start([](endpoint<T> b) -> task<> {
            std::byte end[1];
            co_await b.recv(end);
        }(co_await accepting));
        std::vector<std::uint64_t> there(100);
        const region open = here.register_memory(there, access_rights::all);
        CHECK(open.remote().length == 800);
        const remote_region all = open.remote();
        std::vector<std::uint64_t> numbers(100);
        for (std::size_t n = 0; n < numbers.size(); ++n) numbers[n] = n * n;
        co_await a.rdma_put(numbers, all);
        CHECK(there == numbers);
        co_await a.rdma_put(std::span(numbers).first(1), all.part(792, 8));
        CHECK(there[99] == 0);
        co_await a.rdma_put(std::vector<std::uint64_t>(1, 5), all.part(792, 8));
        CHECK(there[99] == 5);
        co_await a.rdma_put(std::string_view("a text: "), all.part(0, 8));
        CHECK(std::memcmp(there.data(), "a text: ", 8) == 0);
        mailbox<T> peers;
        const peer_id id = peers.attach(std::move(a));
        std::array<std::uint64_t, 2> two{};
        co_await peers.rdma_get(id, all.part(80, 16), two);
        CHECK(two == std::array<std::uint64_t, 2>{100, 121});
        co_await peers.rdma_get(id, all.part(16, 8), std::span(two).last(1));
        CHECK(two[1] == 4);
        std::uint64_t one = 0;
        co_await peers.rdma_get(id, all.part(24, 8), bytes_of(one));
        CHECK(one == 9);
        co_await peers.send(id, std::string_view("."));
        co_await serving;
    }(*domain, TestType::address()));
}

}  // namespace test_messaging_endpoint
