#include <rdmacoro/protocol/detail/speculation_wire.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <vector>

namespace test_protocol_detail_speculation_wire {

using namespace rdmacoro;

namespace {

std::vector<std::byte> stored(const detail::announcement_body& body) {
    std::byte raw[detail::announcement_body::most_bytes];
    const auto bytes = body.store(raw);
    return {bytes.begin(), bytes.end()};
}
detail::announcement_body announcement() {
    detail::announcement_body body;
    body.number = 5;
    body.ahead = 0x0102;
    body.seen = 0x0807060504030201;
    body.destination.add({0x1000, 100, 0x55});
    return body;
}

}  // namespace

TEST_CASE("an announcement is little-endian: number, ahead, seen, and 24 bytes for each piece") {
    const auto raw = stored(announcement());
    const unsigned char expected[] = {5, 0, 0, 0, 2,   1, 0, 0, 1, 2, 3, 4, 5,    6, 7, 8, 0, 0x10, 0, 0,
                                      0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0x55, 0, 0, 0, 0, 0,    0, 0};
    REQUIRE(raw.size() == sizeof expected);
    CHECK(std::memcmp(raw.data(), expected, sizeof expected) == 0);
}

TEST_CASE("announcements are loaded as they were stored, and those that cannot be are not") {
    detail::announcement_body read;
    REQUIRE(read.load(stored(announcement())));
    CHECK(read.number == 5);
    CHECK(read.ahead == 0x0102);
    CHECK(read.seen == 0x0807060504030201);
    CHECK(read.destination.bytes() == 100);

    auto body = announcement();
    body.number = detail::most_announcements;
    CHECK_FALSE(read.load(stored(body)));
    body = announcement();
    body.destination.count = 0;
    CHECK_FALSE(read.load(stored(body)));
    body = announcement();
    body.destination.at[0].length = 0;
    CHECK_FALSE(read.load(stored(body)));
    body.destination.at[0].length = (std::uint64_t{1} << 62) + 1;
    CHECK_FALSE(read.load(stored(body)));
    auto raw = stored(announcement());
    raw.pop_back();
    CHECK_FALSE(read.load(raw));
    CHECK_FALSE(read.load(std::span(raw).first(15)));
}

}  // namespace test_protocol_detail_speculation_wire
