#include <rdmacoro/transport/verbs_rc/address.hpp>

#include <rdmacoro/coro/error.hpp>

#include "support/catch.hpp"

#include <string>

namespace test_transport_verbs_rc_address {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::detail::verbs;
using namespace rdmacoro::test;

namespace {

inet_endpoint endpoint_in(const std::string& text) {
    return inet_resolved::ask(parse_address(text), AI_NUMERICHOST).endpoints.at(0);
}

}  // namespace

TEST_CASE("an address is a host and a port, with or without the scheme; any other text is refused with an "
          "example") {
    for (const char* text : {"10.0.0.1:7471", "verbs://10.0.0.1:7471"}) {
        CAPTURE(text);
        const inet_address parsed = parse_address(text);
        CHECK(parsed.whole == text);
        CHECK(parsed.host == "10.0.0.1");
        CHECK(parsed.port == "7471");
    }
    CHECK(parse_address("[fd97::1]:7").host == "fd97::1");
    CHECK(parse_address("*:7").host.empty());
    for (const char* text : {"", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:65536", "tcp://10.0.0.1:1"}) {
        CAPTURE(text);
        try {
            static_cast<void>(parse_address(text));
            FAIL_CHECK("it was taken");
        } catch (const error& why) {
            CHECK(why.code() == errc::address_invalid);
            CHECK_THAT(why.what(), contains("verbs"));
            CHECK_THAT(why.what(), contains("192.168.7.1:7471"));
        }
    }
}

TEST_CASE("addresses are the same whatever their ports, and never of two families") {
    CHECK(same_address(endpoint_in("10.0.0.1:1"), endpoint_in("10.0.0.1:2")));
    CHECK_FALSE(same_address(endpoint_in("10.0.0.1:1"), endpoint_in("10.0.0.2:1")));
    CHECK(same_address(endpoint_in("[fd97::1]:1"), endpoint_in("[fd97::1]:2")));
    CHECK_FALSE(same_address(endpoint_in("[fd97::1]:1"), endpoint_in("[fd97::2]:1")));
    CHECK_FALSE(same_address(endpoint_in("10.0.0.1:1"), endpoint_in("[::ffff:10.0.0.1]:1")));
}

TEST_CASE("the port of an address of either family is read and set") {
    for (const char* text : {"10.0.0.1:513", "[fd97::1]:513"}) {
        inet_endpoint at = endpoint_in(text);
        CHECK(port_of(at) == 513);
        set_port(at, 7471);
        CHECK(port_of(at) == 7471);
        CHECK(same_address(at, endpoint_in(text)));
    }
}

TEST_CASE("a socket address becomes an endpoint where it is one of the internet") {
    for (const char* text : {"10.0.0.1:513", "[fd97::1]:513"}) {
        const inet_endpoint at = endpoint_in(text);
        const inet_endpoint copy = verbs::endpoint_of(at.get());
        CHECK(copy.bytes == at.bytes);
        CHECK(copy.text() == text);
    }
    CHECK(verbs::endpoint_of(nullptr).bytes == 0);
    sockaddr other{};
    other.sa_family = AF_UNIX;
    CHECK(verbs::endpoint_of(&other).bytes == 0);
}

}  // namespace test_transport_verbs_rc_address
