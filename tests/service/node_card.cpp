#include <rdmacoro/service/node_card.hpp>

#include "support/catch.hpp"

#include <random>
#include <string>
#include <vector>

namespace test_service_node_card {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
node_card an_example() {
    return {.id = 9,
            .born = generation{0x0123456789abcdef},
            .host = host_identity::own(),
            .urls = {"shm://nine", "tcp://10.0.0.9:7471"}};
}
}  // namespace

TEST_CASE("a card is read as it was written") {
    const node_card card = an_example();
    const std::vector<std::byte> bytes = encode_card(card);
    CHECK(bytes.size() <= node_card::most_bytes);
    const result<node_card> read = decode_card(bytes);
    REQUIRE(read.has_value());
    CHECK(*read == card);
}

TEST_CASE("generations differ, and have a text of 16 digits") {
    CHECK(new_generation() != new_generation());
    CHECK(new_generation() != generation{});
    CHECK(to_string(generation{0xab}) == "00000000000000ab");
}

TEST_CASE("a process knows its host, and agrees with itself about it") {
    CHECK(host_identity::own() == host_identity::own());
    CHECK(host_identity::own().known());
    CHECK(host_identity::own().text().size() > 32);
    CHECK(host_identity{}.text() == "unknown");
}

TEST_CASE("what cannot be a card is refused, with the reason") {
    node_card card = an_example();
    card.id = 0;
    CHECK_THAT(std::string(card.fault()), contains("0 is no node's id"));
    card = an_example();
    card.urls.emplace_back("no scheme");
    CHECK_THROWS_AS(encode_card(card), error);
    card = an_example();
    card.urls.emplace_back("tcp://with\nline");
    CHECK_THAT(std::string(card.fault()), contains("printable"));
}

TEST_CASE("a card of 1024 bytes is one, and of 1025 it is none") {
    node_card card = an_example();
    card.urls.assign(1, "tcp://");
    const std::size_t before = encode_card(card).size();
    // One more byte of length from 128 letters on.
    card.urls[0].append(node_card::most_bytes - before - 1, 'x');
    CHECK(card.fault() == nullptr);
    CHECK(encode_card(card).size() == node_card::most_bytes);
    CHECK(decode_card(encode_card(card)).has_value());
    card.urls[0] += 'x';
    REQUIRE(card.fault() != nullptr);
    CHECK_THAT(std::string(card.fault()), contains("1024"));
}

TEST_CASE("cut off and changed bytes are refused or are another card, and never more") {
    const std::vector<std::byte> good = encode_card(an_example());
    for (std::size_t length = 0; length < good.size(); ++length) {
        const auto cut = std::span<const std::byte>(good).first(length);
        CHECK(decode_card(cut).error() == std::make_error_code(std::errc::bad_message));
    }
    std::vector<std::byte> longer = good;
    longer.push_back(std::byte{0});
    CHECK(!decode_card(longer));
    std::mt19937 random(seed());
    int read = 0;
    for (int n = 0; n < 20000; ++n) {
        std::vector<std::byte> bytes = good;
        for (unsigned wrong = 0; wrong < 1 + random() % 3; ++wrong)
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        const result<node_card> got = decode_card(bytes);
        if (!got) continue;
        ++read;
        if (got->fault() != nullptr) FAIL("a card with a fault was read");
    }
    CHECK(read > 0);  // ids and generations have no wrong bytes
    for (int n = 0; n < 20000; ++n) {
        std::vector<std::byte> bytes(random() % 1500);
        for (std::byte& b : bytes) b = static_cast<std::byte>(random());
        static_cast<void>(decode_card(bytes));
    }
}

}  // namespace test_service_node_card
