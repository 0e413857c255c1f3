#include <rdmacoro/messaging/message.hpp>

#include "support/catch.hpp"

#include <utility>

namespace test_messaging_message {

using namespace rdmacoro;

namespace {
int given_back = 0;
message made(std::span<const std::byte> bytes) {
    return message({bytes.size(), 7, 3},
                   lent_buffer(bytes, [](void*, std::uint64_t) noexcept { ++given_back; }, nullptr, 0));
}
}  // namespace

TEST_CASE("a short message is in the object, and moves with it") {
    detail::loan loan;
    const auto place = loan.place(5);
    for (std::size_t i = 0; i < place.size(); ++i) place[i] = static_cast<std::byte>(i);
    message first({5, 7, 3}, std::move(loan));
    CHECK(loan.bytes().empty());
    const auto here = [](const message& of) {
        const auto* const at = reinterpret_cast<const std::byte*>(&of);
        return of.bytes().data() >= at && of.bytes().data() < at + sizeof of;
    };
    CHECK(first.size() == 5);
    CHECK(here(first));
    message second(std::move(first));
    CHECK(second.size() == 5);
    CHECK(here(second));
    CHECK(second.bytes()[4] == std::byte{4});
    CHECK(first.size() == 0);
    const std::byte bytes[100] = {};
    given_back = 0;
    first = made(bytes);
    first = std::move(second);
    CHECK(given_back == 1);
    CHECK(first.bytes()[3] == std::byte{3});
    first.release();
    CHECK(first.size() == 0);
    CHECK(first.tag() == 7);
}

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

}  // namespace test_messaging_message
