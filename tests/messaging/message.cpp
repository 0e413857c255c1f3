#include <rdmacoro/messaging/message.hpp>

#include "support/catch.hpp"

#include <utility>

using namespace rdmacoro;

namespace {
int given_back = 0;
message made(std::span<const std::byte> bytes) {
    return message({bytes.size(), 7, 3},
                   lent_buffer(bytes, [](void*, std::uint64_t) noexcept { ++given_back; }, nullptr, 0));
}
}  // namespace

TEST_CASE("a message says what it is and gives its memory back once") {
    given_back = 0;
    const std::byte bytes[5] = {};
    {
        message first = made(bytes);
        CHECK(first.size() == 5);
        CHECK(first.tag() == 7);
        CHECK(first.source() == 3);
        CHECK(first.bytes().data() == bytes);
        message second(std::move(first));
        CHECK(second.bytes().data() == bytes);
        CHECK(given_back == 0);
        second.release();
        CHECK(given_back == 1);
        CHECK(second.size() == 0);
        CHECK(second.tag() == 7);
        second = made(bytes);
        second = made(bytes);
        CHECK(given_back == 2);
    }
    CHECK(given_back == 3);
    const message none;
    CHECK(none.size() == 0);
}
