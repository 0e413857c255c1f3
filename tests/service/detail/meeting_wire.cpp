#include <rdmacoro/service/detail/meeting_wire.hpp>

#include "support/catch.hpp"
#include "support/pmi_server.hpp"

#include <random>

namespace test_service_detail_meeting_wire {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::detail;

TEST_CASE("SipHash-2-4 gives what its authors published") {
    // The vectors of the reference implementation: the key 00 01 ... 0f, and messages 00 01 ... of growing length.
    const std::array<std::uint64_t, 2> key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    std::vector<std::byte> message;
    CHECK(siphash(key, message) == 0x726fdb47dd0e0e31);
    message.push_back(std::byte{0});
    CHECK(siphash(key, message) == 0x74f839c593dc67fd);
    for (int n = 1; n < 8; ++n) message.push_back(static_cast<std::byte>(n));
    CHECK(siphash(key, message) == 0x93f5f5799a932462);
    for (int n = 8; n < 15; ++n) message.push_back(static_cast<std::byte>(n));
    CHECK(siphash(key, message) == 0xa129ca6149be45e5);
}

TEST_CASE("messages of a rendezvous are cut from what came, and their bytes are pinned") {
    std::vector<std::byte> bytes =
        meeting_message(meeting_kind::put, meeting_put{7, {std::byte{1}, std::byte{2}}});
    const std::vector<std::byte> wire = {std::byte{7}, std::byte{0}, std::byte{0}, std::byte{0},
                                         std::byte{4}, std::byte{7}, std::byte{0}, std::byte{0},
                                         std::byte{0}, std::byte{2}, std::byte{1}, std::byte{2}};
    CHECK(bytes == wire);
    for (std::size_t cut = 0; cut < bytes.size(); ++cut)
        CHECK_FALSE(next_meeting_frame(std::span(bytes).first(cut), 100));
    bytes.push_back(std::byte{9});
    const auto frame = next_meeting_frame(bytes, 100);
    REQUIRE(frame);
    CHECK(frame->kind == meeting_kind::put);
    CHECK(frame->bytes() == wire.size());
    REQUIRE(frame->as<meeting_put>());
    CHECK(frame->as<meeting_put>()->exchange == 7);
    CHECK_FALSE(frame->as<meeting_greeting>());
    CHECK(error_of([&] { static_cast<void>(next_meeting_frame(bytes, 6)); }).first ==
          errc::protocol_violation);
    bytes[4] = std::byte{200};
    CHECK(error_of([&] { static_cast<void>(next_meeting_frame(bytes, 100)); }).first ==
          errc::protocol_violation);
}

TEST_CASE("no bytes do more than be refused as a message") {
    std::mt19937 random(seed());
    for (int n = 0; n < 20'000; ++n) {
        std::vector<std::byte> bytes(random() % 64);
        for (std::byte& one : bytes) one = static_cast<std::byte>(random());
        if (bytes.size() > 3) bytes[1] = bytes[2] = bytes[3] = std::byte{0};
        try {
            if (const auto frame = next_meeting_frame(bytes, 100)) {
                static_cast<void>(frame->as<meeting_all>());
                static_cast<void>(frame->as<meeting_missing>());
                static_cast<void>(frame->as<meeting_put>());
            }
        } catch (const error& failed) {
            CHECK(failed.code() == errc::protocol_violation);
        }
    }
}

TEST_CASE("a proof is of one key, one purpose, one nonce and one rank") {
    const std::string digits = "00112233445566778899aabbccddeeff";
    const std::string others = "00112233445566778899aabbccddeefe";
    const job_key key(&digits);
    const meeting_nonce nonce = new_meeting_nonce();
    const std::uint64_t proof = key.prove("rank", nonce, 1);
    CHECK(key.prove("rank", nonce, 1) == proof);
    CHECK(key.prove("rank", nonce, 2) != proof);
    CHECK(key.prove("rendezvous", nonce, 1) != proof);
    CHECK(key.prove("rank", new_meeting_nonce(), 1) != proof);
    CHECK(job_key(&others).prove("rank", nonce, 1) != proof);
    CHECK(job_key(nullptr).prove("rank", nonce, 1) == 0);
    for (const std::string wrong :
         {"", "0011", "00112233445566778899aabbccddeefg", "00112233445566778899aabbccddeeff0"}) {
        const auto [code, text] = error_of([&] { static_cast<void>(job_key(&wrong)); });
        CHECK(code == errc::invalid_argument);
        if (!wrong.empty()) CHECK_THAT(text, !contains(wrong));
    }
}

}  // namespace test_service_detail_meeting_wire
