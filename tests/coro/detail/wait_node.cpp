#include <rdmacoro/coro/detail/wait_node.hpp>

#include "support/catch.hpp"

#include <utility>

namespace test_coro_detail_wait_node {

using namespace rdmacoro::detail;

namespace {
struct waiting : wait_node<waiting> {};
}  // namespace

TEST_CASE("a wait node that is moved begins unlinked, and the old one stays where it was") {
    intrusive_list<waiting> list;
    waiting first;
    list.push_back(first);
    waiting second(std::move(first));
    CHECK_FALSE(second.linked());
    CHECK(list.front() == &first);
    first.unlink();
    CHECK(list.empty());
}

}  // namespace test_coro_detail_wait_node
