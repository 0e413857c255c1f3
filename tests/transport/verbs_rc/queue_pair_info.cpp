#include <rdmacoro/transport/verbs_rc/queue_pair_info.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstring>

namespace test_transport_verbs_rc_queue_pair_info {

using namespace rdmacoro::detail::verbs;

TEST_CASE("the data of a queue pair lies on the wire in little-endian numbers behind the greeting, as "
          "docs/wire-format.md says") {
    queue_pair_info own;
    greeting hello;
    hello.slot_bytes = 8192;
    hello.credits = 64;
    own.hello = hello.store();
    own.number = 0x123456;
    own.sequence = 0xabcdef;
    own.lid = 0x1718;
    own.mtu = 5;
    own.read_depth = 16;
    own.flags = 0x01020304;
    for (std::size_t n = 0; n < sizeof own.gid.raw; ++n) own.gid.raw[n] = static_cast<std::uint8_t>(0xf0 + n);
    std::array<std::byte, queue_pair_info::wire_bytes + 1> raw{};
    raw.back() = std::byte{0x77};
    own.store(raw.data());
    CHECK(raw.back() == std::byte{0x77});
    CHECK(std::memcmp(raw.data(), own.hello.data(), own.hello.size()) == 0);
    static constexpr unsigned char expected[16] = {0x56, 0x34, 0x12, 0,  0xef, 0xcd, 0xab, 0,
                                                   0x18, 0x17, 5,    16, 4,    3,    2,    1};
    CHECK(std::memcmp(raw.data() + greeting::wire_bytes, expected, sizeof expected) == 0);
    CHECK(std::memcmp(raw.data() + greeting::wire_bytes + sizeof expected, own.gid.raw, sizeof own.gid.raw) ==
          0);

    queue_pair_info back;
    back.load(raw.data());
    CHECK(back.hello == own.hello);
    CHECK(back.number == own.number);
    CHECK(back.sequence == own.sequence);
    CHECK(back.lid == own.lid);
    CHECK(back.mtu == own.mtu);
    CHECK(back.read_depth == own.read_depth);
    CHECK(back.flags == own.flags);
    CHECK(std::memcmp(back.gid.raw, own.gid.raw, sizeof own.gid.raw) == 0);
}

TEST_CASE("numbers of queue pairs and packets have 24 bits, whatever a peer sends") {
    std::array<std::byte, queue_pair_info::wire_bytes> raw{};
    raw.fill(std::byte{0xff});
    queue_pair_info theirs;
    theirs.load(raw.data());
    CHECK(theirs.number == 0xffffff);
    CHECK(theirs.sequence == 0xffffff);
    CHECK(theirs.lid == 0xffff);
    CHECK(theirs.mtu == 0xff);  // kept within the device's bounds where it is used
    CHECK(theirs.read_depth == 0xff);
}

}  // namespace test_transport_verbs_rc_queue_pair_info
