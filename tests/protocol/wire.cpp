#include <rdmacoro/protocol/wire.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <vector>

namespace test_protocol_wire {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using rdmacoro::test::raw;

static_assert(fingerprint_of("") == 0xcbf29ce484222325);
static_assert(fingerprint_of("a") == 0xaf63dc4c8601ec8c);  // FNV-1a's published value
static_assert(fingerprint_of("ab") == fingerprint_of("b", fingerprint_of("a")));

TEST_CASE("a header is these twelve bytes") {
    const wire_header h{0x08, 0x01, 0x1234, 0x1122334455667788};
    const message_header stored = h.store();
    const auto golden = raw({0x08, 0x01, 0x34, 0x12, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11});
    CHECK(std::equal(stored.begin(), stored.end(), golden.begin(), golden.end()));
    const wire_header back = wire_header::load(stored);
    CHECK(back.kind == h.kind);
    CHECK(back.flags == h.flags);
    CHECK(back.credits == h.credits);
    CHECK(back.tag == h.tag);
}

TEST_CASE("a hello is these thirty-two bytes") {
    const wire_hello h{.budget = 0x01020304, .fingerprint = 0x1122334455667788, .withheld = 0x0a0b0c0d};
    const auto stored = h.store();
    const auto golden = raw({'r',  'd',  'm',  'a',  'c',  'o',  'r',  'o',   // magic
                             0x03, 0x00, 0x00, 0x00,                          // version
                             0x04, 0x03, 0x02, 0x01,                          // budget
                             0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  // fingerprint
                             0x0d, 0x0c, 0x0b, 0x0a,                          // withheld
                             0x00, 0x00, 0x00, 0x00});
    CHECK(std::equal(stored.begin(), stored.end(), golden.begin(), golden.end()));
    const auto back = wire_hello::load(stored);
    REQUIRE(back.has_value());
    CHECK(back->version == wire_version);
    CHECK(back->budget == 0x01020304);
    CHECK(back->fingerprint == 0x1122334455667788);
    CHECK(back->withheld == 0x0a0b0c0d);
}

TEST_CASE("a hello that is short, long or of another magic is none") {
    const auto good = wire_hello{}.store();
    for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
        CHECK_FALSE(wire_hello::load(std::span(good).first(bytes)).has_value());
    }
    std::vector<std::byte> with_text(most_copied);
    std::copy(good.begin(), good.end(), with_text.begin());
    CHECK(wire_hello::load(with_text).has_value());
    with_text.push_back(std::byte{'x'});
    CHECK_FALSE(wire_hello::load(with_text).has_value());
    for (std::size_t i = 0; i < 8; ++i) {
        auto wrong = good;
        wrong[i] ^= std::byte{1};
        CHECK_FALSE(wire_hello::load(wrong).has_value());
    }
}

TEST_CASE("numbers are little-endian on every machine") {
    std::byte bytes[8];
    store_number(bytes, std::uint32_t{0x01020304});
    CHECK(bytes[0] == std::byte{4});
    CHECK(bytes[3] == std::byte{1});
    CHECK(load_number<std::uint32_t>(bytes) == 0x01020304);
    store_number(bytes, std::uint64_t{0x0102030405060708});
    CHECK(bytes[0] == std::byte{8});
    CHECK(bytes[7] == std::byte{1});
    store_number(bytes, std::uint16_t{0x0102});
    CHECK(bytes[0] == std::byte{2});
    CHECK(bytes[1] == std::byte{1});
}

}  // namespace test_protocol_wire
