#include <rdmacoro/protocol/detail/masked_receives.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

namespace test_protocol_detail_masked_receives {

using namespace rdmacoro;
using detail::masked_receives;
namespace test = rdmacoro::test;

namespace {

constexpr tag_type low_half = 0xffffffff;

struct receive final : detail::receive_request {
    receive(tag_match wanted, std::uint64_t sequence) noexcept
        : receive_request(nullptr, wanted, 0, mutable_buffers(), nullptr) {
        sequence_ = sequence;
    }
};

/// Receives that were added, and the places in which they are found.
struct posted {
    masked_receives all;
    std::list<receive> made;  // in the order of their posting

    receive& add(tag_match wanted) {
        receive& r = made.emplace_back(wanted, made.size() + 1);
        all.add(r);
        return r;
    }
    void remove(receive& r) {
        all.remove(r);
        r.sequence_ = 0;
    }
    ~posted() {
        for (receive& r : made) {
            if (r.sequence_ != 0) all.remove(r);
        }
    }
    /// Those that no table has: the first list that is visited.
    std::size_t in_list() {
        std::size_t count = 0;
        bool first = true;
        all.for_each_list([&](detail::intrusive_list<detail::receive_request>& list) {
            for (auto* r = list.front(); first && r != nullptr; r = list.next(*r)) ++count;
            first = false;
        });
        return count;
    }
    std::size_t visited() {
        std::size_t count = 0;
        all.for_each_list([&](detail::intrusive_list<detail::receive_request>& list) {
            for (auto* r = list.front(); r != nullptr; r = list.next(*r)) ++count;
        });
        return count;
    }
};

}  // namespace

TEST_CASE("of many receives with one mask each is found by the bits that it compares") {
    posted p;
    std::vector<receive*> of;
    for (tag_type n = 0; n < 1000; ++n) of.push_back(&p.add({n, low_half}));
    for (tag_type n = 0; n < 1000; ++n)
        REQUIRE(p.all.older((tag_type{7} << 40) | n, nullptr) == of[static_cast<std::size_t>(n)]);
    CHECK(p.all.older(1000, nullptr) == nullptr);
    CHECK(p.visited() == 1000);
}

TEST_CASE(
    "of receives with several masks the oldest that takes the tag is found, older than one that is known") {
    posted p;
    for (tag_type n = 0; n < 20; ++n) p.add({100 + n, low_half});
    receive& any = p.add(any_tag);
    receive& later = p.add({5, low_half});
    CHECK(p.all.older(5, nullptr) == &any);
    CHECK(p.all.older(5, &later) == &any);
    receive known(5, 3);
    CHECK(p.all.older(5, &known) == &known);
    CHECK(p.all.older(101, &known) == &*std::next(p.made.begin()));
    p.remove(any);
    CHECK(p.all.older(5, nullptr) == &later);
    p.remove(later);
    CHECK(p.all.older(5, nullptr) == nullptr);
}

TEST_CASE("receives of more masks than have tables are found, and the order of one mask stays") {
    posted p;
    std::vector<receive*> of;
    constexpr std::size_t masks = masked_receives::most_masks + 5;
    for (std::size_t round = 0; round < 4; ++round) {
        for (std::size_t n = 0; n < masks; ++n) {
            const tag_type bit = tag_type{1} << n;
            of.push_back(&p.add({bit, bit}));
        }
    }
    CHECK(p.visited() == of.size());
    for (std::size_t n = 0; n < masks; ++n) CHECK(p.all.older(tag_type{1} << n, nullptr) == of[n]);
    // The masks that had tables are given up; what is posted of those in the list does not overtake.
    for (std::size_t round = 0; round < 4; ++round) {
        for (std::size_t n = 0; n < masked_receives::most_masks; ++n) p.remove(*of[round * masks + n]);
    }
    receive& again = p.add({tag_type{1} << (masks - 1), tag_type{1} << (masks - 1)});
    CHECK(p.all.older(tag_type{1} << (masks - 1), nullptr) == of[masks - 1]);
    for (std::size_t round = 0; round < 4; ++round) {
        for (std::size_t n = masked_receives::most_masks; n < masks; ++n) p.remove(*of[round * masks + n]);
    }
    CHECK(p.all.older(tag_type{1} << (masks - 1), nullptr) == &again);
    p.remove(again);
    CHECK(p.all.empty());
    CHECK(p.visited() == 0);
}

TEST_CASE("a receive of a ninth mask keeps no other in the list once fewer masks are in use") {
    posted p;
    const auto own_mask = [](std::size_t n) {
        return tag_match(tag_type{1} << (40 + n), tag_type{1} << (40 + n));
    };
    std::vector<receive*> of;
    for (std::size_t n = 0; n < masked_receives::most_masks; ++n) of.push_back(&p.add(own_mask(n)));
    receive& ninth = p.add(own_mask(masked_receives::most_masks));
    CHECK(p.in_list() == 1);
    const tag_type of_ninth = tag_type{1} << (40 + masked_receives::most_masks);
    p.remove(*of[3]);
    p.remove(*of[5]);
    receive& younger = p.add(own_mask(masked_receives::most_masks));
    for (tag_type n = 0; n < 1000; ++n) p.add({n, low_half});
    CHECK(p.in_list() == 0);
    CHECK(p.visited() == 6 + 2 + 1000);
    CHECK(p.all.older(of_ninth, nullptr) == &ninth);
    p.remove(ninth);
    CHECK(p.all.older(of_ninth, nullptr)->sequence_ == younger.sequence_);
    CHECK(p.all.older(5, nullptr)->wanted_.tag == 5);
    receive& tenth = p.add(own_mask(masked_receives::most_masks + 1));
    CHECK(p.in_list() == 1);
    p.remove(tenth);
}

TEST_CASE("a few receives with masks take no memory, nor do many that are posted again and again") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted here");
    masked_receives all;
    std::vector<std::unique_ptr<receive>> of;
    for (std::size_t n = 0; n < 300; ++n)
        of.push_back(std::make_unique<receive>(tag_match(n, low_half), n + 1));
    std::size_t before = test::allocations();
    for (std::size_t n = 0; n < masked_receives::most_in_list; ++n) all.add(*of[n]);
    CHECK(test::allocations() == before);
    for (std::size_t n = masked_receives::most_in_list; n < of.size(); ++n) all.add(*of[n]);
    CHECK(test::allocations() > before);
    before = test::allocations();
    std::uint64_t sequence = of.size();
    for (std::size_t n = 0; n < 10 * of.size(); ++n) {
        receive& r = *of[n % of.size()];
        all.remove(r);
        r.sequence_ = ++sequence;
        all.add(r);
    }
    CHECK(test::allocations() == before);
    for (std::unique_ptr<receive>& r : of) all.remove(*r);
}

TEST_CASE("where there is no memory for tables receives wait in the list, and the oldest is found") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted here");
    masked_receives all;
    std::vector<std::unique_ptr<receive>> of;
    for (std::size_t n = 0; n < 40; ++n)
        of.push_back(std::make_unique<receive>(tag_match(n % 20, low_half), n + 1));
    const std::size_t before = test::allocations();
    {
        const test::failing_allocations none(0, ~std::size_t{0});
        for (std::unique_ptr<receive>& r : of) all.add(*r);
        CHECK(all.older(13, nullptr) == of[13].get());
        all.remove(*of[13]);
        CHECK(all.older(13, nullptr) == of[33].get());
    }
    CHECK(test::allocations() > before);  // it was tried
    of.push_back(std::make_unique<receive>(tag_match(13, low_half), 41));
    all.add(*of.back());  // all go to tables
    CHECK(all.older(13, nullptr) == of[33].get());
    all.remove(*of[33]);
    CHECK(all.older(13, nullptr) == of.back().get());
    for (std::unique_ptr<receive>& r : of) {
        if (r != of[13] && r != of[33]) all.remove(*r);
    }
    CHECK(all.empty());
}

}  // namespace test_protocol_detail_masked_receives
