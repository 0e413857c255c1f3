#include "ofi/stranger.hpp"

// A peer that violates the protocol is cut off at once, whatever of its messages the receiver has yet to take.

namespace test_ofi_protocol_violation {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

void send_message(stranger& from, std::uint64_t number) {
    from.frame(fabric::frame_kind::message, header_of(number));
}
/// Returns credits that it was never granted.
void return_too_many_credits(stranger& from) { from.frame(fabric::frame_kind::credit, {}, 0xffff); }

}  // namespace

TEST_CASE("a peer that violates the protocol is cut off while its messages are deferred") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    besieged w(provider);
    stranger peer(w.on, provider);
    ofi_end end;
    w.take(peer, end);
    end.sink.refuse_all = true;
    constexpr std::uint64_t sent = 5;
    for (std::uint64_t n = 0; n < sent; ++n) send_message(peer, n);
    w.on.run_until([&] { return end.link->counts().received == 1 + sent; });
    for (int n = 0; n < 100; ++n) w.on.turn();
    REQUIRE(end.sink.downs == 0);  // deferring alone ends nothing
    REQUIRE(end.sink.count == 0);  // and the messages wait in front of the violation
    return_too_many_credits(peer);
    w.on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::protocol_violation);
    CHECK(end.sink.count == 0);
}

TEST_CASE("messages that arrived before a violation are delivered while the receiver takes them") {
    besieged w("tcp");
    stranger peer(w.on, "tcp");
    ofi_end end;
    w.take(peer, end);
    for (std::uint64_t n = 0; n < 5; ++n) send_message(peer, n);
    w.on.run_until([&] { return end.sink.count == 5; });
    return_too_many_credits(peer);
    w.on.run_until([&] { return end.sink.downs != 0; });
    CHECK(end.sink.reason == errc::protocol_violation);
    CHECK(end.sink.count == 5);
}

}  // namespace test_ofi_protocol_violation
