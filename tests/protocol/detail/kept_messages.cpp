#include <rdmacoro/protocol/detail/kept_messages.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace test_protocol_detail_kept_messages {

using namespace rdmacoro;
using detail::unexpected_message;

namespace {

struct message final : unexpected_message {
    explicit message(tag_type its_tag, std::uint64_t its_number = 0) noexcept {
        tag = its_tag;
        number = its_number;
    }
};

template <class Which>
std::vector<unexpected_message*> all_of(detail::kept_messages<Which>& of) {
    std::vector<unexpected_message*> seen;
    of.each([&](unexpected_message& m) { seen.push_back(&m); });
    return seen;
}

}  // namespace

TEST_CASE("a message may be kept in two places, and is found and taken out in each by itself") {
    detail::kept_messages<detail::of_all> all;
    detail::kept_messages<detail::of_source> some;
    message a(1, 1), b(2, 2), c(1, 3);
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
    CHECK(all_of(some).empty());
    all.remove(a);
    CHECK(all.find(1) == &c);
    message whole(2, 2);
    all.replace(b, whole);
    CHECK(all_of(all) == std::vector<unexpected_message*>{&whole, &c});
    CHECK(all.find(2) == &whole);
    std::vector<unexpected_message*> seen;
    all.each([&](unexpected_message& m) {
        seen.push_back(&m);
        all.remove(m);
    });
    CHECK(seen == std::vector<unexpected_message*>{&whole, &c});
    CHECK(all.count() == 0);
}

TEST_CASE("messages keep their order among classes of tags, which come when there are many and go when they "
          "are gone") {
    detail::kept_messages<detail::of_source> all;
    std::deque<message> messages;
    std::vector<unexpected_message*> expected;
    constexpr tag_type classes = 30;
    for (std::uint64_t n = 0; n < 1000; ++n) {
        messages.emplace_back((n % classes) << 44 | n, n + 1);
        all.add(messages.back());
        expected.push_back(&messages.back());
        REQUIRE(all.footprint() <= all.count() * 16);
    }
    CHECK(all_of(all) == expected);
    CHECK(all.find(any_tag) == &messages[0]);
    for (tag_type n = 0; n < classes; ++n)
        CHECK(all.find(tag_match(n << 44, ~tag_type{0} << 44)) == &messages[n]);
    CHECK(all.find(tag_match(classes << 44, ~tag_type{0} << 44)) == nullptr);
    // One in the middle, by bits that do not name a class.
    CHECK(all.find(tag_match(777, 0xfff)) == &messages[777]);
    // Those of one class, first to last, while the others stay.
    for (std::size_t n = 7; n < messages.size(); n += classes) {
        REQUIRE(all.find(tag_match(tag_type{7} << 44, ~tag_type{0} << 44)) == &messages[n]);
        all.remove(messages[n]);
        std::erase(expected, &messages[n]);
    }
    CHECK(all_of(all) == expected);
    all.forget();
    CHECK(all.count() == 0);
    CHECK(all.footprint() == 0);
    CHECK(all_of(all).empty());
    CHECK(all.find(any_tag) == nullptr);
    message last(3, 2000);
    all.add(last);
    CHECK(all.find(3) == &last);
    all.remove(last);
}

TEST_CASE(
    "the messages that a mask accepts are visited once, with classes or without, and may be taken out") {
    for (const std::size_t count : {std::size_t{20}, std::size_t{3000}}) {
        CAPTURE(count);
        detail::kept_messages<detail::of_all> all;
        std::deque<message> messages;
        for (std::size_t n = 0; n < count; ++n)
            all.add(messages.emplace_back((tag_type{n % 5} << 60) | (n % 2), n + 1));
        const tag_match odd_of_three((tag_type{3} << 60) | 1, (tag_type{15} << 60) | 1);
        std::size_t visits = 0;
        all.each_masked(odd_of_three, [&](unexpected_message& m) {
            CHECK(odd_of_three.accepts(m.tag));
            all.remove(m);
            return ++visits != 2;
        });
        CHECK(visits == 2);
        all.each_masked(any_tag, [&](unexpected_message& m) {
            all.remove(m);
            return ++visits != 0;
        });
        CHECK(visits == count);
        CHECK(all.count() == 0);
        CHECK(all.footprint() <= 8192);
    }
}

TEST_CASE("messages of classes that are skipped are not looked at") {
    detail::kept_messages<detail::of_source> all;
    std::deque<message> messages;
    constexpr std::uint64_t count = 3000;
    constexpr tag_type key_bits = detail::kept_messages<detail::of_source>::key_bits;
    constexpr tag_type many = tag_type{5} << 44;
    constexpr tag_type wanted = tag_type{6} << 44;
    for (std::uint64_t n = 0; n < count; ++n)
        all.add(messages.emplace_back((n % 1000 == 999 ? wanted : many) | n, n + 1));
    std::size_t of_many = 0;
    std::size_t found = 0;
    all.each_masked(
        any_tag, [](tag_type of_class) { return (of_class & key_bits) == many; },
        [&](const unexpected_message& m) {
            ++((m.tag & key_bits) == wanted ? found : of_many);
            return true;
        });
    CHECK(found == 3);
    CHECK(of_many <= 64);  // those that came before there were classes
    all.each_masked(
        any_tag, [](tag_type) { return false; }, [&](const unexpected_message&) { return ++found != 0; });
    CHECK(found == 3 + count);
    while (unexpected_message* const m = all.find(any_tag)) all.remove(*m);
}

}  // namespace test_protocol_detail_kept_messages
