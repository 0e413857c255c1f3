#include <rdmacoro/transport/sim/local_memory.hpp>

#include "support/catch.hpp"

#include <vector>

namespace test_transport_sim_local_memory {

using namespace rdmacoro;
using detail::sim::local_cache;
using detail::sim::local_registrar;

static_assert(registrar<local_registrar>);

TEST_CASE(
    "a registration of local memory is reported to its node, and one that is cached is not made again") {
    std::size_t reported = 0;
    local_registrar node{
        [](void* count, std::size_t bytes) noexcept { *static_cast<std::size_t*>(count) += bytes; },
        &reported};
    local_cache cache(node);
    std::vector<std::byte> memory(10'000);
    {
        const local_cache::lease lease = cache.acquire(memory, access_rights::all);
        CHECK(reported >= memory.size());
    }
    const std::size_t once = reported;
    const local_cache::lease again = cache.acquire(memory, access_rights::all);
    const bool cached = cache.statistics().hits == 1;
    CHECK(reported == (cached ? once : 2 * once));
}

}  // namespace test_transport_sim_local_memory
