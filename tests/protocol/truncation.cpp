// A receive that is too short, for each kind of policy: how it ends, what its buffer holds, and what is counted.
#include <rdmacoro/protocol/protocols.hpp>

#include <rdmacoro/messaging/connect.hpp>

#include "support/catch.hpp"
#include "support/matching_loopback.hpp"
#include "support/pattern.hpp"
#include "support/rendezvous.hpp"

#include <optional>
#include <vector>

namespace test_protocol_truncation {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

constexpr std::byte untouched{0x11};

/// Sends messages of `bytes` bytes from `a` to receives of one byte less at `b`: posted before, or after they came.
template <class Endpoint>
task<> truncate(Endpoint& a, Endpoint& b, std::size_t bytes, bool may_begin) {
    const auto data = pattern(bytes);
    for (const bool expected : {true, false}) {
        for (const bool synchronous : {true, false}) {
            CAPTURE(bytes, expected, synchronous);
            std::vector<std::byte> into(bytes - 1, untouched);
            const metrics before = b.counts();
            using receiving = decltype(start(b.recv(into, 1)));
            std::optional<receiving> posted;
            if (expected) posted.emplace(b.recv(into, 1));
            auto sending = start(synchronous ? a.ssend(data, 1) : a.send(data, 1));
            if (!expected) {
                co_await b.probe(1);
                posted.emplace(b.recv(into, 1));
            }
            const auto ended = co_await as_result(*posted);
            co_await sending;
            CHECK(ended.error() == errc::truncated);
            CHECK(ended.info() == bytes);
            for (std::size_t n = 0; n < into.size(); ++n) {
                if (into[n] == untouched || (may_begin && into[n] == data[n])) continue;
                CAPTURE(n);
                FAIL_CHECK("the buffer holds something else");
                break;
            }
            CHECK(b.counts().messages_received == before.messages_received);
            CHECK(b.counts().bytes_received == before.bytes_received);
            // The message is consumed, and the link goes on.
            std::vector<std::byte> whole(bytes);
            auto again = start(a.send(data, 1));
            const received got = co_await b.recv(whole, 1);
            co_await again;
            CHECK(got.bytes == bytes);
            CHECK(whole == data);
            CHECK(b.counts().messages_received == before.messages_received + 1);
            CHECK(b.counts().bytes_received == before.bytes_received + bytes);
        }
    }
}

template <protocol_list P>
void truncates() {
    with_pair<P>([](endpoint_pair<P>& pair) -> task<> {
        for (const std::size_t bytes : std::initializer_list<std::size_t>{8, 1000, 20'000, 300'000})
            co_await truncate(pair.a, pair.b, bytes, false);
    });
}

}  // namespace

TEST_CASE("a truncated receive leaves its buffer as it was, and its message is not counted, whatever policy "
          "carries it") {
    SECTION("eager, segmented") { truncates<protocols<eager<>, segmented<>>>(); }
    SECTION("reuse-aware eager") { truncates<protocols<reuse_aware_eager<>, segmented<>>>(); }
    SECTION("get") { truncates<protocols<get_rendezvous<>>>(); }
    SECTION("put") { truncates<protocols<put_rendezvous<>>>(); }
    SECTION("cooperative") { truncates<protocols<cooperative_rendezvous<>>>(); }
    SECTION("staged") { truncates<protocols<staged_get<>, segmented<>>>(); }
    SECTION("speculative") { truncates<protocols<eager<up_to<100>>, speculative<get_rendezvous<>>>>(); }
}

TEST_CASE(
    "where the transport matches, a truncated receive may hold the message's beginning, and nothing else") {
    using peer = endpoint<matching_loopback, protocols<provider_matched>>;
    tagged_wire::of_new_ones() = nullptr;
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        loopback_domain domain(on);
        auto listening = co_await listen<matching_loopback, protocols<provider_matched>>(domain, "matched");
        auto accepting = start(listening.accept());
        peer a = co_await connect<matching_loopback, protocols<provider_matched>>(domain, "matched");
        peer b = co_await accepting;
        for (const std::size_t bytes : std::initializer_list<std::size_t>{8, 1000, 20'000, 300'000})
            co_await truncate(a, b, bytes, true);
    }(world.on));
}

}  // namespace test_protocol_truncation
