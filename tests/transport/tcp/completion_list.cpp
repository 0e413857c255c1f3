#include <rdmacoro/transport/tcp/completion_list.hpp>

#include "support/catch.hpp"

namespace test_transport_tcp_completion_list {

using namespace rdmacoro;
using namespace rdmacoro::detail;

TEST_CASE("completions leave a list from either end, and from the middle without a search") {
    completion c[4];
    tcp_completion_list list;
    CHECK(list.empty());
    CHECK(list.pop_front() == nullptr);
    CHECK(list.pop_back() == nullptr);
    for (completion& one : c) list.push_back(one);
    CHECK(posted_as(c[1]) == tcp_posted::listed);
    tcp_completion_list::remove(c[1]);
    CHECK(c[1].transport_state == nullptr);
    CHECK(list.pop_back() == &c[3]);
    CHECK(list.pop_front() == &c[0]);
    CHECK(list.pop_front() == &c[2]);
    CHECK(list.empty());
}

TEST_CASE("a list that is appended to another keeps its order and is empty then") {
    completion c[4];
    tcp_completion_list one;
    tcp_completion_list other;
    one.splice_back(other);
    CHECK(one.empty());
    one.push_back(c[0]);
    one.push_back(c[1]);
    other.push_back(c[2]);
    other.push_back(c[3]);
    one.splice_back(other);
    CHECK(other.empty());
    tcp_completion_list::remove(c[2]);
    CHECK(one.pop_front() == &c[0]);
    CHECK(one.pop_front() == &c[1]);
    CHECK(one.pop_front() == &c[3]);
    CHECK(one.empty());
}

}  // namespace test_transport_tcp_completion_list
