#include <rdmacoro/transport/verbs_rc/domain.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"

namespace test_transport_verbs_rc_domain {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("two schedulers that park at every wait lose no wake-up") {
    FOR_EACH_VERBS_DEVICE(way);
    CHECK(rounds_with_sleep<verbs_fabric>(way.options));
}

}  // namespace test_transport_verbs_rc_domain
