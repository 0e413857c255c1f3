#include "support/policy_cases.hpp"

namespace test_conformance_policies_mixed {

using namespace rdmacoro;
using namespace rdmacoro::test;

CONFORMANCE_CASE("eager, get and put by size: everything arrives, whatever it is sent from and received into",
                 every_transport) {
    conform_all(over, list_name::by_size);
}
CONFORMANCE_CASE("eager, get and put by size: a message of 64 MiB and 3 bytes", every_real_transport) {
    conform(over, list_name::by_size, carries_huge_message);
}
CONFORMANCE_CASE("eager, get and put by size: both ends give up while the other is at work",
                 every_real_transport) {
    cancel_across_threads(over, list_name::by_size);
}

}  // namespace test_conformance_policies_mixed
