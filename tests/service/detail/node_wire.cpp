#include <rdmacoro/service/detail/node_wire.hpp>

#include "support/catch.hpp"

#include <random>
#include <string>
#include <vector>

namespace test_service_detail_node_wire {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;

namespace {
node_card own_card() { return {.id = 3, .born = generation{33}, .host = {}, .urls = {"tcp://10.0.0.3:1"}}; }
}  // namespace

TEST_CASE("hellos and answers are read as they were written") {
    const node_hello hello{.to = 4, .to_born = generation{44}, .attempt = 5, .from = own_card()};
    std::uint32_t version = 0;
    const result<node_hello> read = decode_hello(encode_hello(hello), version);
    REQUIRE(read.has_value());
    CHECK(version == node_version);
    CHECK(read->to == 4);
    CHECK(read->to_born == generation{44});
    CHECK(read->attempt == 5);
    CHECK(read->from == own_card());
    const node_answer answer{welcome::full, 6, own_card()};
    const result<node_answer> got = decode_answer(encode_answer(answer), version);
    REQUIRE(got.has_value());
    CHECK(got->verdict == welcome::full);
    CHECK(got->attempts == 6);
    CHECK(got->from == own_card());
}

TEST_CASE("the longest card fits into a hello") {
    node_card card = own_card();
    while (card.fault() == nullptr) card.urls[0] += 'x';
    card.urls[0].pop_back();
    const std::vector<std::byte> bytes = encode_hello({4, {}, 1, card});
    CHECK(bytes.size() <= longest_hello);
    std::uint32_t version = 0;
    CHECK(decode_hello(bytes, version).has_value());
}

TEST_CASE("another version is told from nonsense") {
    std::vector<std::byte> bytes = encode_hello({4, {}, 1, own_card()});
    bytes[4] = std::byte{9};
    std::uint32_t version = 0;
    CHECK(decode_hello(bytes, version).error() == errc::version_mismatch);
    CHECK(version == 9);
    CHECK(decode_answer(bytes, version).error() == errc::version_mismatch);
    bytes[0] ^= std::byte{1};
    CHECK(decode_hello(bytes, version).error() == std::make_error_code(std::errc::bad_message));
}

TEST_CASE("a hello says all about its node, and an answer has a verdict that there is") {
    std::uint32_t version = 0;
    const auto refused = std::make_error_code(std::errc::bad_message);
    node_card unborn = own_card();
    unborn.born = {};
    CHECK(decode_hello(encode_hello({4, {}, 1, unborn}), version).error() == refused);
    CHECK(decode_hello(encode_hello({0, {}, 1, own_card()}), version).error() == refused);
    CHECK(decode_hello(encode_hello({4, {}, 0, own_card()}), version).error() == refused);
    const auto unknown = static_cast<welcome>(welcomes);
    CHECK(decode_answer(encode_answer({unknown, 1, own_card()}), version).error() == refused);
    for (std::uint8_t n = 0; n < welcomes; ++n)
        CHECK(std::string(text_of(static_cast<welcome>(n))) != "unknown");
}

TEST_CASE("cut off, changed and random bytes are refused or whole") {
    const std::vector<std::byte> good = encode_hello({4, {}, 1, own_card()});
    std::uint32_t version = 0;
    for (std::size_t length = 0; length < good.size(); ++length)
        CHECK(!decode_hello(std::span<const std::byte>(good).first(length), version));
    std::mt19937 random(seed());
    for (int n = 0; n < 20000; ++n) {
        std::vector<std::byte> bytes = good;
        bytes[8 + random() % (bytes.size() - 8)] = static_cast<std::byte>(random());
        const result<node_hello> got = decode_hello(bytes, version);
        if (got && (got->from.fault() != nullptr || got->to == 0)) FAIL("a hello with a fault was read");
        static_cast<void>(decode_answer(bytes, version));
    }
}

TEST_CASE("a node's text has its generation where that is known") {
    CHECK(node_text(9, {}) == "node 9");
    CHECK(node_text(9, generation{1}) == "node 9 (generation 0000000000000001)");
}

}  // namespace test_service_detail_node_wire
