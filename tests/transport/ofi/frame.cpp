#include <rdmacoro/transport/ofi/frame.hpp>

#include "support/catch.hpp"

#include <vector>

namespace test_transport_ofi_frame {

using namespace rdmacoro;
using namespace rdmacoro::detail::fabric;

TEST_CASE("a frame word on the wire: kind and sequence, credits, the receiver's link") {
    std::vector<std::byte> raw(frame_bytes);
    frame{frame_kind::message, 0x1234, 0x5abc, 0x1122334455667788}.store(raw.data());
    const int expected[] = {0xc1, 0xab, 0x34, 0x12, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
    for (std::size_t i = 0; i < frame_word_bytes; ++i) CHECK(static_cast<int>(raw[i]) == expected[i]);
    frame back;
    REQUIRE(back.load(raw.data(), raw.size()));
    CHECK(back.kind == frame_kind::message);
    CHECK(back.credits == 0x1234);
    CHECK(back.sequence == 0xabc);
    CHECK(back.link == 0x1122334455667788);
    CHECK(place_of(back.link) == 0x7788);
}

TEST_CASE("frames that can't be are refused") {
    std::vector<std::byte> raw(512);
    frame f;
    frame{}.store(raw.data());
    for (std::size_t bytes = 0; bytes < frame_bytes; ++bytes) CHECK_FALSE(f.load(raw.data(), bytes));
    CHECK(f.load(raw.data(), frame_bytes));
    struct known {
        frame_kind kind;
        std::size_t bytes;
    };
    const known all[] = {{frame_kind::credit, 12},  {frame_kind::hello, 12},   {frame_kind::bye, 12},
                         {frame_kind::get, 60},     {frame_kind::put, 60},     {frame_kind::status, 20},
                         {frame_kind::fetched, 16}, {frame_kind::withdraw, 16}};
    for (const known& one : all) {
        frame{one.kind, 7, 0, 0}.store(raw.data());
        CHECK(f.load(raw.data(), one.bytes));
        CHECK_FALSE(f.load(raw.data(), one.bytes + 1));
        CHECK_FALSE(f.load(raw.data(), one.bytes - 1));
    }
    frame{frame_kind::tagged_address, 0, 0, 0}.store(raw.data());
    CHECK_FALSE(f.load(raw.data(), frame_word_bytes));
    CHECK(f.load(raw.data(), frame_word_bytes + 1));
    CHECK(f.load(raw.data(), frame_word_bytes + most_address_bytes));
    CHECK_FALSE(f.load(raw.data(), frame_word_bytes + most_address_bytes + 1));
    for (const int kind : {0, 11, 15}) {
        raw[0] = static_cast<std::byte>(kind);
        for (const std::size_t bytes : {std::size_t{12}, std::size_t{20}, std::size_t{60}})
            CHECK_FALSE(f.load(raw.data(), bytes));
    }
}

TEST_CASE("a request to serve a get or put on the wire") {
    std::vector<std::byte> raw(service_request::wire_bytes);
    service_request{1, 2, 3, 4, 5, 6}.store(raw.data());
    for (std::size_t i = 0; i < 6; ++i) CHECK(raw[8 * i] == static_cast<std::byte>(i + 1));
    const service_request back = service_request::load(raw.data());
    CHECK(back.key == 1);
    CHECK(back.address == 2);
    CHECK(back.length == 3);
    CHECK(back.own_key == 4);
    CHECK(back.own_address == 5);
    CHECK(back.operation == 6);
}

TEST_CASE("the head of a tagged message on the wire, and those that can't be") {
    std::vector<std::byte> raw(64);
    tagged_head{1, 2, 3, 4, 5, 6}.store(raw.data());
    CHECK(raw[0] == std::byte{1});
    CHECK(raw[8] == std::byte{2});
    CHECK(raw[12] == std::byte{3});
    CHECK(raw[16] == std::byte{4});
    CHECK(raw[24] == std::byte{5});
    CHECK(raw[32] == std::byte{6});
    tagged_head back;
    CHECK(back.load(raw.data(), tagged_head::long_wire_bytes));
    CHECK(back.link == 1);
    CHECK(back.note == 2);
    CHECK(back.number == 3);
    CHECK(back.length == 4);
    CHECK(back.address == 5);
    CHECK(back.key == 6);
    CHECK(back.bytes() == tagged_head::long_wire_bytes);
    for (const std::size_t bytes : {0u, 15u, 16u, 39u, 41u}) CHECK_FALSE(back.load(raw.data(), bytes));
    tagged_head{7, 8, 0, 99, 99, 99}.store(raw.data());
    CHECK(raw[16] == std::byte{4});  // not touched: the payload begins here
    CHECK(back.load(raw.data(), 24));
    CHECK(back.link == 7);
    CHECK(back.note == 8);
    CHECK(back.length == 8);
    CHECK(back.address + back.key == 0);
    CHECK(back.bytes() == tagged_head::wire_bytes);
    CHECK(back.load(raw.data(), 16));
    CHECK(back.length == 0);
    CHECK_FALSE(back.load(raw.data(), 15));
}

TEST_CASE("a connect_info says the same behind the wire, and what can't be is not good") {
    connect_info said;
    said.slot_bytes = 8192;
    said.credits = 64;
    said.flags = connect_info::served;
    said.address_format = 3;
    said.link = 0x1122334455667788;
    said.host = 99;
    said.nonce = 0x01020304;
    said.address_bytes = 16;
    said.name_provider("tcp;ofi_rxm");
    said.address[15] = std::byte{7};
    std::vector<std::byte> raw(connect_info::wire_bytes);
    said.store(raw.data());
    CHECK(raw[0] == std::byte{'R'});
    CHECK(raw[3] == std::byte{'F'});
    CHECK(raw[44] == std::byte{4});
    connect_info back;
    back.load(raw.data());
    CHECK(back.good());
    CHECK(back.magic == connect_info::right_magic);
    CHECK(back.version == connect_info::own_version);
    CHECK(back.slot_bytes == 8192);
    CHECK(back.credits == 64);
    CHECK(back.flags == connect_info::served);
    CHECK(back.address_format == 3);
    CHECK(back.link == said.link);
    CHECK(back.host == 99);
    CHECK(back.nonce == 0x01020304);
    CHECK(back.address_bytes == 16);
    CHECK(back.provider_name() == "tcp;ofi_rxm");
    CHECK(back.address == said.address);

    const auto spoilt = [&](auto change) {
        connect_info bad = said;
        change(bad);
        return bad.good();
    };
    CHECK_FALSE(spoilt([](connect_info& c) { c.slot_bytes = connect_info::least_slot - 1; }));
    CHECK_FALSE(spoilt([](connect_info& c) { c.slot_bytes = connect_info::most_slot + 1; }));
    CHECK_FALSE(spoilt([](connect_info& c) { c.credits = connect_info::least_credits - 1; }));
    CHECK_FALSE(spoilt([](connect_info& c) { c.credits = connect_info::most_credits + 1; }));
    CHECK_FALSE(spoilt([](connect_info& c) { c.address_bytes = 0; }));
    CHECK_FALSE(spoilt([](connect_info& c) { c.address_bytes = connect_info::most_address + 1; }));
    CHECK_FALSE(spoilt([](connect_info& c) { c.provider.fill('x'); }));
}

}  // namespace test_transport_ofi_frame
