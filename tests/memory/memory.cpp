#include <rdmacoro/memory/memory.hpp>

#include "support/catch.hpp"

#include <type_traits>

namespace test_memory_memory {

using namespace rdmacoro;

TEST_CASE("one header brings the whole room") {
    static_assert(std::is_default_constructible_v<const_buffers>);
    static_assert(std::is_default_constructible_v<lent_buffer>);
    static_assert(std::is_default_constructible_v<region>);
    static_assert(std::is_constructible_v<slab_pool, std::size_t, std::size_t, std::size_t>);
    std::vector<detail::region_entry> storage(1);
    detail::region_table table(storage);
    slab_pool pool(64, 1, 1);
    std::byte* block = pool.take();
    const remote_region there = table.add({block, 64}, access_rights::all);
    CHECK(table.check(there.key, there.address, 64, access_rights::all) == errc::ok);
    table.remove(there.key);
    pool.give(block);
}

}  // namespace test_memory_memory
