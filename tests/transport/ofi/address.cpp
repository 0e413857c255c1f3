#include <rdmacoro/transport/ofi/address.hpp>

#include "support/catch.hpp"

#include <rdmacoro/coro/error.hpp>

#include <string>

namespace test_transport_ofi_address {

using namespace rdmacoro;
using rdmacoro::detail::fabric::parse_address;

TEST_CASE("an address is a host and a port, with or without the profile's scheme") {
    for (const char* const text : {"10.0.0.1:7471", "ofi+tcp://10.0.0.1:7471"}) {
        CAPTURE(text);
        const auto parsed = parse_address("ofi+tcp", text);
        CHECK(parsed.host == "10.0.0.1");
        CHECK(parsed.port == "7471");
        CHECK(parsed.whole.find("10.0.0.1:7471") != std::string::npos);
    }
    const auto v6 = parse_address("ugni", "ugni://[fd00::1]:80");
    CHECK(v6.host == "fd00::1");
    CHECK(v6.port == "80");
    CHECK(parse_address("ofi", "*:0").host.empty());
}

TEST_CASE("an address of another scheme, or without a port, is refused with an example") {
    for (const char* const text :
         {"verbs://10.0.0.1:7471", "ofi+shm://10.0.0.1:7471", "10.0.0.1", "10.0.0.1:", ""}) {
        CAPTURE(text);
        try {
            static_cast<void>(parse_address("ofi+tcp", text));
            FAIL("it was taken");
        } catch (const error& refused) {
            CHECK(refused.code() == errc::address_invalid);
            CHECK(std::string(refused.what()).find("ofi+tcp") != std::string::npos);
        }
    }
}

}  // namespace test_transport_ofi_address
