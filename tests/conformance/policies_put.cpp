#include "support/policy_cases.hpp"

namespace test_conformance_policies_put {

using namespace rdmacoro;
using namespace rdmacoro::test;

CONFORMANCE_CASE("put_rendezvous: everything arrives, whatever it is sent from and received into",
                 every_transport) {
    conform_all(over, list_name::put);
}
CONFORMANCE_CASE("put_rendezvous: a message of 64 MiB and 3 bytes", every_real_transport) {
    conform(over, list_name::put, carries_huge_message);
}
CONFORMANCE_CASE("put_rendezvous: both ends give up while the other is at work", every_real_transport) {
    cancel_across_threads(over, list_name::put);
}

}  // namespace test_conformance_policies_put
