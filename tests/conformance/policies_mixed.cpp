#include "policies.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

using mixed_list = protocols<eager<>, get_rendezvous<up_to<65536>>, put_rendezvous<>>;

TEMPLATE_LIST_TEST_CASE(
    "eager, get and put by size: everything arrives, whatever it is sent from and received into", "",
    every_transport) {
    conform_all<mixed_list, TestType>();
}
TEMPLATE_LIST_TEST_CASE("eager, get and put by size: a message of 64 MiB and 3 bytes", "",
                        every_real_transport) {
    conform<TestType>(carries_huge_message<mixed_list, typename TestType::transport_type>);
}
TEMPLATE_LIST_TEST_CASE("eager, get and put by size: both ends give up while the other is at work", "",
                        every_real_transport) {
    cancel_across_threads<mixed_list, TestType>();
}
