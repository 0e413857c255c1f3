#include <rdmacoro/transport/tcp/frame.hpp>

#include "support/catch.hpp"

#include <vector>

namespace test_transport_tcp_frame {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

std::vector<std::byte> bytes(std::initializer_list<unsigned> values) {
    std::vector<std::byte> made;
    for (const unsigned value : values) made.push_back(static_cast<std::byte>(value));
    return made;
}

template <class Head>
std::vector<std::byte> stored(const Head& head) {
    std::vector<std::byte> made(Head::wire_bytes, std::byte{0xee});
    head.store(made.data());
    return made;
}

}  // namespace

// Golden bytes: a change of any of these is a change of the wire format and needs another `tcp_version`.

TEST_CASE("the greeting is on the wire as it always was") {
    tcp_greeting greeting;
    greeting.nonce = 0x1122334455667788;
    const auto golden =
        bytes({'r', 'd', 'm',  'a', 'c', 'o', 'r', 'o', '-',  't',  'c',  'p',  1,    0,    0,    0,
               0,   0,   0x10, 0,   0,   0,   0,   0,   0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11});
    const auto made = greeting.store();
    CHECK(std::vector<std::byte>(made.begin(), made.end()) == golden);
    const tcp_greeting read = tcp_greeting::load(made);
    CHECK(read.version == 1);
    CHECK(read.most_message == 1 << 20);
    CHECK(read.nonce == 0x1122334455667788);
}

TEST_CASE("frame words are on the wire as they always were") {
    std::vector<std::byte> made(4);
    tcp_word{tcp_frame::message, 0x0bcdef}.store(made.data());
    CHECK(made == bytes({0xef, 0xcd, 0x0b, 0x10}));
    tcp_word{tcp_frame::get_request, 0}.store(made.data());
    CHECK(made == bytes({0, 0, 0, 0x20}));
    tcp_word{tcp_frame::get_data, 8}.store(made.data());
    CHECK(made == bytes({8, 0, 0, 0x30}));
    tcp_word{tcp_frame::put_data, 8}.store(made.data());
    CHECK(made == bytes({8, 0, 0, 0x40}));
    tcp_word{tcp_frame::one_sided_status, 0}.store(made.data());
    CHECK(made == bytes({0, 0, 0, 0x50}));
}

TEST_CASE("heads of one-sided frames are on the wire as they always were") {
    CHECK(
        stored(get_request{0x0102030405060708, 0x1112131415161718, 0x2122232425262728, 0x31323334}) ==
        bytes({8,    7,    6,    5,    4,    3,    2,    1,    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
               0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 0,    0,    0,    0}));
    CHECK(
        stored(put_data{0x0102030405060708, 0x1112131415161718, 0x2122232425262728, 0x31323334}) ==
        bytes({8,    7,    6,    5,    4,    3,    2,    1,    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
               0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 0,    0,    0,    0}));
    CHECK(stored(get_data{7}) == bytes({7, 0, 0, 0, 0, 0, 0, 0}));
    CHECK(stored(one_sided_status{7, errc::ok}) == bytes({7, 0, 0, 0, 0, 0, 0, 0}));
    CHECK(stored(one_sided_status{7, errc::bad_key}) == bytes({7, 0, 0, 0, 1, 0, 0, 0}));
    CHECK(stored(one_sided_status{7, errc::out_of_bounds}) == bytes({7, 0, 0, 0, 2, 0, 0, 0}));
    CHECK(stored(one_sided_status{7, errc::access_denied}) == bytes({7, 0, 0, 0, 3, 0, 0, 0}));
    CHECK(stored(one_sided_status{7, errc::canceled}) == bytes({7, 0, 0, 0, 4, 0, 0, 0}));
}

TEST_CASE("a status says after the wire what it said before") {
    const auto outcome = GENERATE(errc::ok, errc::bad_key, errc::out_of_bounds, errc::access_denied,
                                  errc::canceled, errc::no_resources);
    const auto made = stored(one_sided_status{3, outcome});
    CHECK(one_sided_status::load(made.data()).outcome == outcome);
    CHECK(one_sided_status::load(made.data()).operation == 3);
}

TEST_CASE("only known kinds with lengths in their limits have a head") {
    CHECK(tcp_word{tcp_frame::message, 0}.head_bytes() == 16);
    CHECK(tcp_word{tcp_frame::message, tcp_most_message}.head_bytes() == 16);
    CHECK(tcp_word{tcp_frame::message, tcp_most_message + 1}.head_bytes() == 0);
    CHECK(tcp_word{tcp_frame::get_request, 0}.head_bytes() == 36);
    CHECK(tcp_word{tcp_frame::get_request, 1}.head_bytes() == 0);
    CHECK(tcp_word{tcp_frame::get_data, 0}.head_bytes() == 0);
    CHECK(tcp_word{tcp_frame::get_data, tcp_most_part}.head_bytes() == 12);
    CHECK(tcp_word{tcp_frame::get_data, tcp_most_part + 1}.head_bytes() == 0);
    CHECK(tcp_word{tcp_frame::put_data, 0}.head_bytes() == 36);
    CHECK(tcp_word{tcp_frame::put_data, tcp_most_part + 1}.head_bytes() == 0);
    CHECK(tcp_word{tcp_frame::one_sided_status, 0}.head_bytes() == 12);
    CHECK(tcp_word{tcp_frame::one_sided_status, 1}.head_bytes() == 0);
    for (unsigned kind = 0; kind < 16; ++kind) {
        if (kind >= 1 && kind <= 5) continue;
        CHECK(tcp_word{static_cast<tcp_frame>(kind), 0}.head_bytes() == 0);
    }
}

}  // namespace test_transport_tcp_frame
