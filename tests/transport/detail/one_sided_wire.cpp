#include <rdmacoro/transport/detail/one_sided_wire.hpp>

#include "support/catch.hpp"

#include <array>

namespace test_transport_detail_one_sided_wire {

using namespace rdmacoro;
using namespace rdmacoro::detail;

TEST_CASE("numbers are little-endian on the wire") {
    std::array<std::byte, 4> wire{};
    store_number(wire.data(), std::uint32_t{0x01020304});
    CHECK(wire == std::array{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}});
    CHECK(load_number<std::uint32_t>(wire.data()) == 0x01020304);
}

TEST_CASE("a get and a put are 32 bytes on the wire, in this order") {
    std::array<std::byte, 32> wire{};
    const get_request get{0x11, 0x22, 0x33, 0x44};
    get.store(wire.data());
    CHECK(wire[0] == std::byte{0x11});
    CHECK(wire[8] == std::byte{0x22});
    CHECK(wire[16] == std::byte{0x33});
    CHECK(wire[24] == std::byte{0x44});
    const get_request loaded = get_request::load(wire.data());
    CHECK((loaded.key == get.key && loaded.address == get.address && loaded.length == get.length &&
           loaded.operation == get.operation));
    const put_data put{1, 2, 3, 4};
    put.store(wire.data());
    const put_data again = put_data::load(wire.data());
    CHECK((again.key == 1 && again.address == 2 && again.remaining == 3 && again.operation == 4));
    get_data{7}.store(wire.data());
    CHECK(get_data::load(wire.data()).operation == 7);
}

TEST_CASE("each outcome has a number of the wire; a code without one is no_resources, an unknown number a "
          "violation") {
    std::array<std::byte, one_sided_status::wire_bytes> wire{};
    const auto over_the_wire = [&](errc outcome) {
        one_sided_status{1, outcome}.store(wire.data());
        return one_sided_status::load(wire.data()).outcome;
    };
    for (const errc outcome : {errc::ok, errc::bad_key, errc::out_of_bounds, errc::access_denied,
                               errc::canceled, errc::no_resources})
        CHECK(over_the_wire(outcome) == outcome);
    CHECK(over_the_wire(errc::unsupported) == errc::no_resources);
    store_number(wire.data() + 4, std::uint32_t{6});
    CHECK(one_sided_status::load(wire.data()).outcome == errc::protocol_violation);
}

}  // namespace test_transport_detail_one_sided_wire
