#include "policies.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

using put_list = protocols<put_rendezvous<>>;

TEMPLATE_LIST_TEST_CASE("put_rendezvous: everything arrives, whatever it is sent from and received into", "",
                        every_transport) {
    conform_all<put_list, TestType>();
}
TEMPLATE_LIST_TEST_CASE("put_rendezvous: a message of 64 MiB and 3 bytes", "", every_real_transport) {
    conform<TestType>(carries_huge_message<put_list, typename TestType::transport_type>);
}
TEMPLATE_LIST_TEST_CASE("put_rendezvous: both ends give up while the other is at work", "",
                        every_real_transport) {
    cancel_across_threads<put_list, TestType>();
}
