#include "policies.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

using reuse_list = protocols<reuse_aware_eager<>, cooperative_rendezvous<>, get_rendezvous<>>;

TEMPLATE_LIST_TEST_CASE(
    "reuse_aware_eager and rendezvous: everything arrives, whatever it is sent from and received into", "",
    every_transport) {
    conform_all<reuse_list, TestType>();
}
TEMPLATE_LIST_TEST_CASE("reuse_aware_eager and rendezvous: a message of 64 MiB and 3 bytes", "",
                        every_real_transport) {
    conform<TestType>(carries_huge_message<reuse_list, typename TestType::transport_type>);
}
TEMPLATE_LIST_TEST_CASE("reuse_aware_eager and rendezvous: both ends give up while the other is at work", "",
                        every_real_transport) {
    cancel_across_threads<reuse_list, TestType>();
}
