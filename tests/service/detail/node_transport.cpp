#include <rdmacoro/service/detail/node_transport.hpp>

#include "support/bare_node.hpp"
#include "support/catch.hpp"
#include "support/scripted_transport.hpp"

namespace test_service_detail_node_transport {

using namespace rdmacoro::test;

TEST_CASE("a transport takes the URLs of its scheme, the whole of it and no more") {
    bare_node of;
    const scripted_transport tcp(*of.core, 0, "tcp");
    CHECK(tcp.has_scheme_of("tcp://"));
    CHECK(tcp.has_scheme_of("tcp://host:1"));
    CHECK_FALSE(tcp.has_scheme_of("tcp:/host:1"));
    CHECK_FALSE(tcp.has_scheme_of("tcp"));
    CHECK_FALSE(tcp.has_scheme_of("tc"));
    CHECK_FALSE(tcp.has_scheme_of(""));
    CHECK_FALSE(tcp.has_scheme_of("tcp6://host:1"));
    CHECK_FALSE(tcp.has_scheme_of("ofi+tcp://host:1"));
    CHECK_FALSE(tcp.has_scheme_of("Tcp://host:1"));
}

TEST_CASE("shared memory reaches nodes of this host only") {
    bare_node of;
    CHECK(scripted_transport(*of.core, 0, "shm").is_within_host());
    CHECK_FALSE(scripted_transport(*of.core, 1, "tcp").is_within_host());
}

}  // namespace test_service_detail_node_transport
