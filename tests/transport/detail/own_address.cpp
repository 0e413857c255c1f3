#include <rdmacoro/transport/detail/own_address.hpp>

#include "support/catch.hpp"

#include <rdmacoro/transport/detail/inet_address.hpp>

namespace test_transport_detail_own_address {

using namespace rdmacoro;

TEST_CASE("the address of this host is one in numbers, and not the loopback; a host may have none") {
    const std::string own = detail::own_inet_address();
    if (own.empty()) SKIP_TEST("this host has no address but the loopback");
    const auto found = detail::inet_resolved::ask(detail::inet_address::parse("tcp", own + ":0", ""),
                                                  AI_PASSIVE | AI_NUMERICHOST);
    REQUIRE(found.endpoints.size() == 1);
    CHECK(found.endpoints.front().text() == own + ":0");
    CHECK_FALSE(own.starts_with("127."));
    CHECK(own != "[::1]");
}

}  // namespace test_transport_detail_own_address
