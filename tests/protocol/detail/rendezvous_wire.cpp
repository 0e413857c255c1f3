#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <vector>

namespace test_protocol_detail_rendezvous_wire {

using namespace rdmacoro;

namespace {

std::vector<std::byte> stored(const detail::rendezvous_request_body& body) {
    std::byte raw[detail::rendezvous_request_body::most_bytes];
    const auto bytes = body.store(raw);
    return {bytes.begin(), bytes.end()};
}
std::vector<std::byte> stored(const detail::rendezvous_ready_body& body) {
    std::byte raw[detail::rendezvous_ready_body::most_bytes];
    const auto bytes = body.store(raw);
    return {bytes.begin(), bytes.end()};
}
detail::rendezvous_request_body request(unsigned pieces) {
    detail::rendezvous_request_body body;
    body.stream = 7;
    body.copy = 3;
    body.length = 10 * pieces;
    for (unsigned n = 0; n < pieces; ++n) body.source.add({0x1000 + n, 10, 0x55});
    return body;
}

}  // namespace

TEST_CASE("a request is little-endian: stream, shared copy, length, and 24 bytes for each piece") {
    detail::rendezvous_request_body body;
    body.stream = 0x0201;
    body.copy = 0x06050403;
    body.length = 8;
    body.source.add({0x1122334455667788, 8, 0x99});
    const auto raw = stored(body);
    REQUIRE(raw.size() == 40);
    const unsigned char expected[] = {1, 2, 0,    0,    3,    4,    5,    6,    8,    0,    0, 0, 0, 0,
                                      0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 8, 0, 0, 0,
                                      0, 0, 0,    0,    0x99, 0,    0,    0,    0,    0,    0, 0};
    CHECK(std::memcmp(raw.data(), expected, sizeof expected) == 0);
}

TEST_CASE("requests are loaded as they were stored, with up to 16 pieces") {
    for (unsigned pieces = 0; pieces <= 16; ++pieces) {
        detail::rendezvous_request_body body = request(pieces);
        if (pieces == 0) body.length = 12345;
        detail::rendezvous_request_body read;
        REQUIRE(read.load(stored(body)));
        CHECK(read.stream == 7);
        CHECK(read.copy == 3);
        CHECK(read.length == body.length);
        REQUIRE(read.source.count == pieces);
        for (std::uint32_t n = 0; n < pieces; ++n) CHECK(read.source.at[n].address == 0x1000 + n);
    }
}

TEST_CASE("requests that cannot be are not loaded") {
    detail::rendezvous_request_body read;
    const auto good = stored(request(2));
    const std::span<const std::byte> all(good);
    CHECK(read.load(all));
    for (const std::size_t bytes : {0u, 15u, 17u, 39u, 41u, 63u}) CHECK_FALSE(read.load(all.first(bytes)));
    CHECK_FALSE(read.load(std::vector<std::byte>(16 + 17 * 24)));  // 17 pieces
    auto changed = request(2);
    changed.stream = detail::most_streams;
    CHECK_FALSE(read.load(stored(changed)));
    changed = request(2);
    changed.length = 21;  // not the sum of the pieces
    CHECK_FALSE(read.load(stored(changed)));
    changed = request(0);
    changed.length = (std::uint64_t{1} << 62) + 1;
    CHECK_FALSE(read.load(stored(changed)));
    changed = request(2);
    changed.source.at[0].length = ~std::uint64_t{0};  // the sum overflows
    changed.length = 9;
    CHECK(changed.source.bytes() == ~std::uint64_t{0});
    CHECK_FALSE(read.load(stored(changed)));
}

TEST_CASE("ready is an offset and at least one piece") {
    detail::rendezvous_ready_body body;
    body.offset = 0x0807060504030201;
    CHECK(stored(body).size() == 8);
    detail::rendezvous_ready_body read;
    CHECK_FALSE(read.load(stored(body)));
    body.destination.add({0x1000, 10, 1});
    REQUIRE(read.load(stored(body)));
    CHECK(read.offset == body.offset);
    CHECK(read.destination.bytes() == 10);
    auto raw = stored(body);
    CHECK(raw[0] == std::byte{1});
    CHECK(raw[7] == std::byte{8});
    raw.pop_back();
    CHECK_FALSE(read.load(raw));
}

}  // namespace test_protocol_detail_rendezvous_wire
