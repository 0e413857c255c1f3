#include "support/policy_cases.hpp"

namespace test_conformance_policies_cooperative {

using namespace rdmacoro;
using namespace rdmacoro::test;

CONFORMANCE_CASE("cooperative_rendezvous: everything arrives, whatever it is sent from and received into",
                 every_transport) {
    conform_all(over, list_name::cooperative);
}
CONFORMANCE_CASE("cooperative_rendezvous: a message of 64 MiB and 3 bytes", every_real_transport) {
    conform(over, list_name::cooperative, carries_huge_message);
}
CONFORMANCE_CASE("cooperative_rendezvous: both ends give up while the other is at work",
                 every_real_transport) {
    cancel_across_threads(over, list_name::cooperative);
}

}  // namespace test_conformance_policies_cooperative
