#include <rdmacoro/protocol/detail/staged_wire.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <span>

namespace test_protocol_detail_staged_wire {

using namespace rdmacoro;

namespace {
constexpr std::size_t limit = 1000;
}  // namespace

TEST_CASE("a staged request is 24 bytes, little-endian") {
    const detail::staged_request_body body{0x01, 0x0302, 0x1122334455667780, 0x99};
    std::byte raw[detail::staged_request_body::wire_bytes];
    CHECK(body.store(raw).size() == 24);
    const unsigned char expected[] = {1,    0,    0,    0,    2,    3, 0, 0, 0x80, 0x77, 0x66, 0x55,
                                      0x44, 0x33, 0x22, 0x11, 0x99, 0, 0, 0, 0,    0,    0,    0};
    static_assert(sizeof expected == sizeof raw);
    CHECK(std::memcmp(raw, expected, sizeof raw) == 0);
}

TEST_CASE("staged requests are loaded as they were stored, and those that cannot be are not") {
    std::byte raw[detail::staged_request_body::wire_bytes];
    detail::staged_request_body read;
    const auto loads = [&](const detail::staged_request_body& body) {
        return read.load(body.store(raw), limit);
    };
    REQUIRE(loads({detail::most_staged - 1, limit, 128, 5}));
    CHECK(read.block == detail::most_staged - 1);
    CHECK(read.length == limit);
    CHECK(read.address == 128);
    CHECK(read.key == 5);
    CHECK_FALSE(loads({detail::most_staged, limit, 128, 5}));
    CHECK_FALSE(loads({0, limit + 1, 128, 5}));
    CHECK_FALSE(loads({0, limit, 129, 5}));
    CHECK_FALSE(read.load(std::span(raw).first(23), limit));
}

TEST_CASE("a staged request costs what an empty message does, and behind leaving what it is stored in") {
    const std::uint32_t empty = detail::message_cost(0);
    CHECK(detail::staged_cost(5000, false, 1000) == empty);
    CHECK(detail::staged_cost(0, true, 1000) == empty);
    CHECK(detail::staged_cost(5000, true, 1'000'000) == detail::message_cost(5000));
    CHECK(detail::staged_cost(5000, true, 7) == 7);
    CHECK(detail::staged_bytes(0) == 0);
    CHECK(detail::staged_bytes(1) == detail::staging_alignment);
    CHECK(detail::staged_bytes(detail::staging_alignment) == detail::staging_alignment);
}

}  // namespace test_protocol_detail_staged_wire
