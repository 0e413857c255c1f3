#include <rdmacoro/service/node_options.hpp>

#include "support/catch.hpp"

namespace test_service_node_options {

using namespace rdmacoro;

TEST_CASE("the limits of a node are such that each is inside the one around it") {
    const node_options usual;
    CHECK(usual.connections > 0);
    CHECK(usual.unnamed_connections > 0);
    CHECK(usual.first_pause < usual.longest_pause);
    CHECK(usual.longest_pause < usual.connect_limit);
    CHECK(usual.attempt_limit < usual.connect_limit);
    CHECK(usual.hello_limit <= usual.attempt_limit);
    CHECK(usual.born == generation{});
    CHECK(node_event{}.missed == 0);
}

}  // namespace test_service_node_options
