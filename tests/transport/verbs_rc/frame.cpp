#include <rdmacoro/transport/verbs_rc/frame.hpp>

#include "support/catch.hpp"

#include <vector>

namespace test_transport_verbs_rc_frame {

using namespace rdmacoro;
using namespace rdmacoro::detail::verbs;

TEST_CASE("a frame word on the wire: kind, a zero, credits") {
    std::vector<std::byte> raw(frame_bytes);
    frame{frame_kind::message, 0x1234}.store(raw.data());
    CHECK(raw[0] == std::byte{1});
    CHECK(raw[1] == std::byte{0});
    CHECK(raw[2] == std::byte{0x34});
    CHECK(raw[3] == std::byte{0x12});
    frame back;
    REQUIRE(back.load(raw.data(), raw.size()));
    CHECK(back.kind == frame_kind::message);
    CHECK(back.credits == 0x1234);
}

TEST_CASE("frames that can't be are refused") {
    std::vector<std::byte> raw(frame_bytes);
    frame f;
    frame{frame_kind::message, 0}.store(raw.data());
    for (std::size_t bytes = 0; bytes < frame_bytes; ++bytes) CHECK_FALSE(f.load(raw.data(), bytes));
    CHECK(f.load(raw.data(), frame_bytes));
    raw[1] = std::byte{1};
    CHECK_FALSE(f.load(raw.data(), frame_bytes));
    raw[1] = std::byte{0};
    for (const frame_kind control : {frame_kind::credit, frame_kind::flush, frame_kind::flushed}) {
        frame{control, 7}.store(raw.data());
        CHECK(f.load(raw.data(), frame_word_bytes));
        CHECK_FALSE(f.load(raw.data(), frame_word_bytes + 1));
        CHECK_FALSE(f.load(raw.data(), frame_word_bytes - 1));
    }
    for (const int kind : {0, 5, 6, 255}) {
        raw[0] = static_cast<std::byte>(kind);
        CHECK_FALSE(f.load(raw.data(), frame_word_bytes));
        CHECK_FALSE(f.load(raw.data(), frame_bytes));
    }
}

TEST_CASE("a greeting on the wire") {
    greeting said;
    said.slot_bytes = 8192;
    said.credits = 64;
    const greeting::bytes raw = said.store();
    static constexpr unsigned char golden[greeting::wire_bytes] = {'R', 'D', 'C', 'V', 1, 0, 0,
                                                                   0,   0,   32,  0,   0, 64};
    for (std::size_t i = 0; i < raw.size(); ++i) CHECK(raw[i] == std::byte{golden[i]});
    greeting back;
    CHECK(back.load(raw.data(), raw.size()) == errc::ok);
    CHECK(back.slot_bytes == 8192);
    CHECK(back.credits == 64);
    // Private data of the connection manager is padded.
    std::vector<std::byte> padded(raw.begin(), raw.end());
    padded.resize(56);
    CHECK(back.load(padded.data(), padded.size()) == errc::ok);
}

TEST_CASE("greetings that can't be are refused") {
    const auto judge = [](auto change, std::size_t bytes = greeting::wire_bytes) {
        greeting said;
        said.slot_bytes = 8192;
        said.credits = 64;
        change(said);
        const greeting::bytes raw = said.store();
        greeting back;
        return back.load(raw.data(), bytes);
    };
    const auto nothing = [](greeting&) {};
    CHECK(judge(nothing) == errc::ok);
    CHECK(judge(nothing, 0) == errc::protocol_violation);
    CHECK(judge(nothing, greeting::wire_bytes - 1) == errc::protocol_violation);
    CHECK(judge([](greeting& g) { g.magic ^= 1; }) == errc::protocol_violation);
    CHECK(judge([](greeting& g) { g.version = 2; }) == errc::version_mismatch);
    CHECK(judge([](greeting& g) { g.slot_bytes = greeting::least_slot - 1; }) == errc::protocol_violation);
    CHECK(judge([](greeting& g) { g.slot_bytes = greeting::most_slot + 1; }) == errc::protocol_violation);
    CHECK(judge([](greeting& g) { g.credits = greeting::least_credits - 1; }) == errc::protocol_violation);
    CHECK(judge([](greeting& g) { g.credits = greeting::most_credits + 1; }) == errc::protocol_violation);
}

}  // namespace test_transport_verbs_rc_frame
