#include "policies.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

using get_list = protocols<get_rendezvous<>>;

TEMPLATE_LIST_TEST_CASE("get_rendezvous: everything arrives, whatever it is sent from and received into", "",
                        every_transport) {
    conform_all<get_list, TestType>();
}
TEMPLATE_LIST_TEST_CASE("get_rendezvous: a message of 64 MiB and 3 bytes", "", every_real_transport) {
    conform<TestType>(carries_huge_message<get_list, typename TestType::transport_type>);
}
TEMPLATE_LIST_TEST_CASE("get_rendezvous: both ends give up while the other is at work", "",
                        every_real_transport) {
    cancel_across_threads<get_list, TestType>();
}
