#include <rdmacoro/protocol/detail/posted_receives.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace test_protocol_detail_posted_receives {

using namespace rdmacoro;
using detail::posted_receives;

namespace {

struct receive final : detail::receive_request {
    receive(tag_match wanted, std::uint64_t sequence) noexcept
        : receive_request(nullptr, wanted, 0, mutable_buffers(), nullptr) {
        sequence_ = sequence;
    }
};

}  // namespace

TEST_CASE("the oldest receive that takes a tag is found, with a mask or without") {
    posted_receives all;
    CHECK(all.empty());
    receive odd(tag_match(1, 1), 1);
    receive seven(7, 2);
    receive any(any_tag, 3);
    receive eight(8, 4);
    for (receive* r : {&odd, &seven, &any, &eight}) all.add(*r);
    CHECK(all.first(7) == &odd);
    CHECK(all.first(8) == &any);
    CHECK(all.first_masked(8) == &any);
    all.remove(odd);
    CHECK(all.first(7) == &seven);
    CHECK(all.first_masked(7) == &any);
    all.remove(any);
    CHECK(all.first(8) == &eight);
    CHECK(all.first(9) == nullptr);
    CHECK(all.first_masked(8) == nullptr);
    CHECK_FALSE(all.empty());
    all.remove(seven);
    all.remove(eight);
    CHECK(all.empty());
    CHECK(all.first(8) == nullptr);
}

TEST_CASE("the receives of a tag before the last one are counted up to a limit") {
    posted_receives all;
    std::deque<receive> made;
    const auto add = [&](tag_match wanted) -> receive& {
        all.add(made.emplace_back(wanted, made.size() + 1));
        return made.back();
    };
    CHECK(all.before(add(7), 3) == 0u);
    add(any_tag);
    CHECK(all.before(add(7), 3) == 1u);
    CHECK(all.before(add(7), 3) == 2u);
    CHECK(all.before(add(7), 3) == 3u);
    CHECK_FALSE(all.before(add(7), 3).has_value());
    CHECK(all.before(add(7), 5) == 5u);
    for (receive& r : made) all.remove(r);
    CHECK(all.before(add(7), 0) == 0u);
    all.remove(made.back());
}

TEST_CASE("receives are visited by tag or all, and may be taken out meanwhile") {
    posted_receives all;
    receive a(7, 1), b(8, 2), c(7, 3), masked(any_tag, 4);
    for (receive* r : {&a, &b, &c, &masked}) all.add(*r);
    std::vector<detail::receive_request*> seen;
    all.each_exact(7, [&](detail::receive_request& r) {
        seen.push_back(&r);
        all.remove(r);
    });
    CHECK(seen == std::vector<detail::receive_request*>{&a, &c});
    seen.clear();
    all.each([&](detail::receive_request& r) {
        seen.push_back(&r);
        all.remove(r);
    });
    CHECK(seen == std::vector<detail::receive_request*>{&b, &masked});
    CHECK(all.empty());
}

TEST_CASE("receives with a mask that fill large tables may all be taken out while they are visited") {
    // Enough that a table which has become empty gives its memory back amid the visit.
    constexpr tag_type high = tag_type{1} << 63;
    constexpr std::size_t many = 2000;
    posted_receives all;
    std::deque<receive> made;
    for (std::size_t n = 0; n < many; ++n) {
        made.emplace_back(tag_match(tag_type{n}, 0xffff), 2 * n);
        all.add(made.back());
        made.emplace_back(tag_match(high | n, high | 0xffff), 2 * n + 1);
        all.add(made.back());
    }
    CHECK(all.first(high | 1999) == &made[2 * 1999]);
    std::size_t visited = 0;
    all.each([&](detail::receive_request& r) {
        ++visited;
        all.remove(r);
    });
    CHECK(visited == 2 * many);
    CHECK(all.empty());
    CHECK(all.first(high | 1999) == nullptr);
    all.add(made.front());
    CHECK(all.first(tag_type{5} << 16) == &made.front());
    all.remove(made.front());
}

}  // namespace test_protocol_detail_posted_receives
