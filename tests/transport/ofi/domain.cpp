#include <rdmacoro/transport/ofi/domain.hpp>

#include "ofi/pair.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("two schedulers that park at every wait lose no wake-up, where the provider has a descriptor") {
    CHECK(rounds_with_sleep<ofi_fabric>(ofi_here("tcp")));
}

TEST_CASE("where the provider has no descriptor a scheduler yields, and nothing is lost") {
    CHECK_FALSE(rounds_with_sleep<ofi_fabric>(ofi_here("shm")));
}

TEST_CASE("a domain that may not park is polled") {
    ofi_options o = ofi_here("tcp");
    o.may_park = false;
    CHECK_FALSE(rounds_with_sleep<ofi_fabric>(o));
}
