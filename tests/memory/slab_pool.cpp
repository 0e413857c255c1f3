#include <rdmacoro/memory/slab_pool.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace test_memory_slab_pool {

using namespace rdmacoro;

TEST_CASE("blocks are aligned, distinct, and at least as large as asked") {
    slab_pool pool(100, 4, 100);
    CHECK(pool.block_bytes() == 128);
    std::set<std::byte*> seen;
    for (int n = 0; n < 10; ++n) {
        std::byte* block = pool.take();
        REQUIRE(block != nullptr);
        CHECK(reinterpret_cast<std::uintptr_t>(block) % slab_pool::alignment == 0);
        CHECK(seen.insert(block).second);
        std::memset(block, n, pool.block_bytes());
    }
    CHECK(pool.in_use() == 10);
    CHECK(pool.capacity() == 12);
    CHECK(pool.slabs() == 3);
    for (std::byte* block : seen) {
        const std::byte first = block[0];
        for (std::size_t i = 0; i < pool.block_bytes(); ++i) CHECK(block[i] == first);
        pool.give(block);
    }
    CHECK(pool.in_use() == 0);
}

TEST_CASE("the limit holds, and a block given back is there again") {
    slab_pool pool(64, 2, 5);
    std::vector<std::byte*> taken;
    while (std::byte* block = pool.take()) taken.push_back(block);
    CHECK(taken.size() == 4);  // whole slabs, not above the limit
    pool.give(taken.back());
    CHECK(pool.take() == taken.back());
    CHECK(pool.take() == nullptr);
    for (std::byte* block : taken) pool.give(block);
}

TEST_CASE("one slab is always allowed") {
    slab_pool pool(64, 8, 1);
    for (int n = 0; n < 8; ++n) CHECK(pool.take() != nullptr);
    CHECK(pool.take() == nullptr);
}

TEST_CASE("blocks of no bytes are distinct and slabs of more bytes than there are addresses give none") {
    slab_pool empty(0, 4, 8);
    std::set<std::byte*> taken;
    while (std::byte* const block = empty.take()) {
        if (!taken.insert(block).second) break;
    }
    CHECK(taken.size() == 8);
    CHECK(empty.block_bytes() >= 1);
    for (std::byte* const block : taken) empty.give(block);
    constexpr std::size_t most = static_cast<std::size_t>(-1);
    for (const std::size_t bytes : {most, most - 63, most / 16, std::size_t{1} << 60}) {
        slab_pool pool(bytes, 16, 16);
        CHECK(pool.take() == nullptr);
    }
    slab_pool many(64, most, most);
    CHECK(many.take() == nullptr);
    slab_pool none(64, 0, 16);
    CHECK(none.take() == nullptr);
}

TEST_CASE("every block lies in a slab that can be registered") {
    slab_pool pool(192, 5, 100);
    for (int n = 0; n < 12; ++n) {
        std::byte* block = pool.take();
        bool found = false;
        for (std::size_t s = 0; s < pool.slabs(); ++s) {
            const std::span<std::byte> slab = pool.slab(s);
            CHECK(slab.size() == 192 * 5);
            found |= block >= slab.data() && block + 192 <= slab.data() + slab.size();
        }
        CHECK(found);
    }
}

TEST_CASE("a pool that has grown allocates nothing") {
    if (!test::counts_allocations) SKIP_TEST("a sanitizer has operator new");
    slab_pool pool(64, 16, 1000);
    std::vector<std::byte*> taken(64);
    for (std::byte*& block : taken) block = pool.take();
    for (std::byte* block : taken) pool.give(block);
    const std::size_t before = test::allocations();
    std::mt19937 random(7);
    std::vector<std::byte*> now;
    now.reserve(64);
    const std::size_t after_reserve = test::allocations();
    for (int n = 0; n < 5000; ++n) {
        if (now.size() < 64 && random() % 2 == 0) {
            now.push_back(pool.take());
        } else if (!now.empty()) {
            std::swap(now[random() % now.size()], now.back());
            pool.give(now.back());
            now.pop_back();
        }
    }
    CHECK(test::allocations() == after_reserve);
    CHECK(after_reserve == before + 1);
    CHECK(pool.in_use() == now.size());
}

TEST_CASE("trimming frees the slabs, and moving takes them along") {
    slab_pool pool(64, 4, 100);
    pool.give(pool.take());
    CHECK(pool.slabs() == 1);
    pool.trim();
    CHECK(pool.slabs() == 0);
    std::byte* block = pool.take();
    slab_pool moved(std::move(pool));
    CHECK(moved.in_use() == 1);
    moved.give(block);
    CHECK(moved.take() == block);
}

TEST_CASE("AddressSanitizer reports a read of a block that was returned, or was never taken") {
    if (!detail::poisons) SKIP_TEST("not built with AddressSanitizer");
    slab_pool pool(64, 4, 100);
    std::byte* const block = pool.take();
    CHECK_FALSE(detail::is_poisoned(block));
    CHECK_FALSE(detail::is_poisoned(block + 63));
    CHECK(detail::is_poisoned(pool.slab(0).data() + 3 * 64));
    pool.give(block);
    CHECK(detail::is_poisoned(block));
    const test::death seen = test::dies([&] { std::printf("%d", static_cast<int>(block[5])); });
    CHECK(seen.status != 0);
    CHECK(seen.said.find("use-after-poison") != std::string::npos);
    CHECK(pool.take() == block);
    std::memset(block, 1, 64);
    pool.give(block);
}

}  // namespace test_memory_slab_pool
