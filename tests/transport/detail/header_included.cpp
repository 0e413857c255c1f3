#include <rdmacoro/transport/detail/header_included.hpp>

// Before the headers of the transports: their names are declared.
static_assert(sizeof(rdmacoro::shm*) + sizeof(rdmacoro::tcp*) + sizeof(rdmacoro::verbs_rc*) != 0);

#include <rdmacoro/transport/sim.hpp>

#include "support/catch.hpp"

// What it says of those without their header is in compile_fail/transport_without_its_header.cpp.
TEST_CASE("a transport with its header passes, and so does what is no transport") {
    CHECK(rdmacoro::detail::header_included<int>);
    CHECK(rdmacoro::transport<rdmacoro::sim>);
    CHECK_FALSE(rdmacoro::transport<int>);
}
