#include <rdmacoro/coro/intrusive_list.hpp>

#include "support/catch.hpp"

#include <vector>

namespace test_coro_intrusive_list {

using namespace rdmacoro::detail;

namespace {

struct other_tag;
struct item : list_node<item>, list_node<other_tag> {
    explicit item(int n) : number(n) {}
    int number;
};
using items = intrusive_list<item>;

std::vector<int> numbers(items& list) {
    std::vector<int> seen;
    for (item* at = list.front(); at != nullptr; at = list.next(*at)) seen.push_back(at->number);
    return seen;
}

}  // namespace

TEST_CASE("a list keeps the order in which items are pushed") {
    items list;
    item a(1), b(2), c(3);
    CHECK(list.empty());
    CHECK(list.front() == nullptr);
    CHECK(list.back() == nullptr);
    CHECK(list.pop_front() == nullptr);
    list.push_back(b);
    list.push_back(c);
    list.push_front(a);
    CHECK(numbers(list) == std::vector<int>{1, 2, 3});
    CHECK(list.front() == &a);
    CHECK(list.back() == &c);
    CHECK(list.pop_front() == &a);
    CHECK(list.pop_front() == &b);
    CHECK(list.pop_front() == &c);
    CHECK(list.empty());
}

TEST_CASE("an item unlinks itself from wherever it is, and again without harm") {
    items list;
    item a(1), b(2), c(3);
    for (item* each : {&a, &b, &c}) list.push_back(*each);
    static_cast<list_node<item>&>(b).unlink();
    CHECK_FALSE(static_cast<list_node<item>&>(b).linked());
    CHECK(numbers(list) == std::vector<int>{1, 3});
    static_cast<list_node<item>&>(b).unlink();
    static_cast<list_node<item>&>(a).unlink();
    static_cast<list_node<item>&>(c).unlink();
    CHECK(list.empty());
    list.push_back(b);
    CHECK(numbers(list) == std::vector<int>{2});
}

TEST_CASE("an item sits in two lists of different tags at a time") {
    items list;
    intrusive_list<item, other_tag> other;
    item a(1), b(2);
    list.push_back(a);
    list.push_back(b);
    other.push_back(b);
    CHECK(list.pop_front() == &a);
    CHECK(list.pop_front() == &b);
    CHECK(other.front() == &b);
}

TEST_CASE("splicing moves everything to the end and leaves the other list usable") {
    items list, more;
    item a(1), b(2), c(3), d(4);
    list.splice_back(more);
    CHECK(list.empty());
    list.push_back(a);
    more.push_back(b);
    more.push_back(c);
    list.splice_back(more);
    CHECK(numbers(list) == std::vector<int>{1, 2, 3});
    CHECK(more.empty());
    more.push_back(d);
    list.splice_back(more);
    CHECK(numbers(list) == std::vector<int>{1, 2, 3, 4});
}

TEST_CASE("a node takes the place of another, wherever that sat") {
    using node = list_node<item>;
    for (const int at : {1, 2, 3}) {
        items list;
        item a(1), b(2), c(3), other(4);
        for (item* i : {&a, &b, &c}) list.push_back(*i);
        node& was = at == 1 ? a : at == 2 ? b : c;
        static_cast<node&>(other).take_place_of(was);
        CHECK_FALSE(was.linked());
        std::vector<int> expected{1, 2, 3};
        expected[static_cast<std::size_t>(at) - 1] = 4;
        CHECK(numbers(list) == expected);
        static_cast<node&>(other).unlink();
        CHECK(numbers(list).size() == 2);
    }
    item alone(1), other(2);
    static_cast<node&>(other).take_place_of(alone);
    CHECK_FALSE(static_cast<node&>(other).linked());
}

}  // namespace test_coro_intrusive_list
