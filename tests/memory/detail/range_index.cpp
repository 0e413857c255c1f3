#include <rdmacoro/memory/detail/range_index.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace test_memory_detail_range_index {

using namespace rdmacoro::detail;

namespace {

struct entry {
    address_range pages;
    int kind = 0;
};

bool contains(const address_range& outer, const address_range& inner) {
    return outer.start <= inner.start && inner.end <= outer.end;
}
bool overlap(const address_range& a, const address_range& b) { return a.start < b.end && b.start < a.end; }

}  // namespace

TEST_CASE("an index finds what a search of all entries finds") {
    std::mt19937 random(rdmacoro::test::seed());
    const auto range = [&] {
        const std::uintptr_t start = 1 + random() % 200;
        return address_range{start, start + 1 + random() % 20};
    };
    std::vector<entry> all(64);
    std::vector<entry*> in;
    range_index<entry> index(64);
    std::vector<entry*> out;
    for (entry& e : all) out.push_back(&e);
    for (int round = 0; round < 4000; ++round) {
        const address_range asked = range();
        if (random() % 2 == 0 && !out.empty()) {
            const bool fits = std::none_of(in.begin(), in.end(), [&](const entry* e) {
                return contains(e->pages, asked) || contains(asked, e->pages);
            });
            if (fits) {
                entry* const added = out.back();
                out.pop_back();
                *added = {asked, static_cast<int>(random() % 2)};
                index.insert(*added);
                in.push_back(added);
            }
        } else if (!in.empty() && random() % 3 == 0) {
            std::swap(in[random() % in.size()], in.back());
            index.erase(*in.back());
            out.push_back(in.back());
            in.pop_back();
        }
        REQUIRE(index.size() == in.size());
        const entry* const around = index.find(asked, [](const entry& e) { return e.kind == 1; });
        const bool exists = std::any_of(
            in.begin(), in.end(), [&](const entry* e) { return e->kind == 1 && contains(e->pages, asked); });
        REQUIRE((around != nullptr) == exists);
        if (around != nullptr) REQUIRE(contains(around->pages, asked));

        const entry* const across = index.overlapping(asked);
        REQUIRE((across != nullptr) ==
                std::any_of(in.begin(), in.end(), [&](const entry* e) { return overlap(e->pages, asked); }));
        if (across != nullptr) REQUIRE(overlap(across->pages, asked));

        std::ptrdiff_t visited = 0;
        index.for_each_within(asked, [&](const entry& e) { visited += contains(asked, e.pages) ? 1 : 1000; });
        REQUIRE(visited == std::count_if(in.begin(), in.end(),
                                         [&](const entry* e) { return contains(asked, e->pages); }));
        REQUIRE((index.within(asked) != nullptr) == (visited != 0));
    }
}

}  // namespace test_memory_detail_range_index
