#include "support/policy_cases.hpp"

namespace test_conformance_policies_reuse {

using namespace rdmacoro;
using namespace rdmacoro::test;

CONFORMANCE_CASE(
    "reuse_aware_eager and rendezvous: everything arrives, whatever it is sent from and received into",
    every_transport) {
    conform_all(over, list_name::reuse_aware);
}
CONFORMANCE_CASE("reuse_aware_eager and rendezvous: a message of 64 MiB and 3 bytes", every_real_transport) {
    conform(over, list_name::reuse_aware, carries_huge_message);
}
CONFORMANCE_CASE("reuse_aware_eager and rendezvous: both ends give up while the other is at work",
                 every_real_transport) {
    cancel_across_threads(over, list_name::reuse_aware);
}

}  // namespace test_conformance_policies_reuse
