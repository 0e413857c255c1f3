#include <rdmacoro/protocol/detail/kept_messages.hpp>

#include "support/catch.hpp"

#include <vector>

using namespace rdmacoro;
using detail::unexpected_message;

namespace {

struct message final : unexpected_message {
    explicit message(tag_type its_tag) noexcept { tag = its_tag; }
};

}  // namespace

TEST_CASE("a message may be kept in two places, and is found and taken out in each by itself") {
    detail::kept_messages<detail::of_all> all;
    detail::kept_messages<detail::of_source> some;
    message a(1), b(2), c(1);
    for (message* m : {&a, &b, &c}) all.add(*m);
    some.add(c);
    CHECK(all.count() == 3);
    CHECK(some.count() == 1);
    CHECK(all.find(1) == &a);
    CHECK(some.find(1) == &c);
    CHECK(some.find(2) == nullptr);
    CHECK(all.find(tag_match(2, 2)) == &b);
    CHECK(some.find(any_tag) == &c);
    some.remove(c);
    CHECK(some.front() == nullptr);
    all.remove(a);
    CHECK(all.find(1) == &c);
    message whole(2);
    all.replace(b, whole);
    CHECK(all.front() == &whole);
    CHECK(all.next(whole) == &c);
    CHECK(all.find(2) == &whole);
    std::vector<unexpected_message*> seen;
    all.each([&](unexpected_message& m) {
        seen.push_back(&m);
        all.remove(m);
    });
    CHECK(seen == std::vector<unexpected_message*>{&whole, &c});
    CHECK(all.count() == 0);
}
