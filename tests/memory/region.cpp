#include <rdmacoro/memory/region.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace test_memory_region {

using namespace rdmacoro;

static_assert(allows(access_rights::all, access_rights::remote_read));
static_assert(allows(access_rights::all, access_rights::remote_read | access_rights::remote_write));
static_assert(!allows(access_rights::remote_read, access_rights::remote_write));
static_assert(!allows(access_rights::remote_read, access_rights::all));
static_assert(allows(access_rights::none, access_rights::none));
static_assert(!allows(access_rights::none, access_rights::remote_read));
static_assert((access_rights::remote_read | access_rights::remote_write) == access_rights::all);

namespace {
struct owner final : detail::region_owner {
    std::vector<std::uint64_t> gone;
    void deregister(std::uint64_t key) noexcept override { gone.push_back(key); }
};
}  // namespace

TEST_CASE("a remote region travels as 32 bytes and comes back the same") {
    const remote_region here{0x1000, 0x2000, 0x3000, access_rights::remote_read};
    std::byte wire[sizeof here];
    std::memcpy(wire, &here, sizeof here);
    remote_region there;
    std::memcpy(&there, wire, sizeof wire);
    CHECK(there.address == 0x1000);
    CHECK(there.size() == 0x2000);
    CHECK(there.key == 0x3000);
    CHECK(there.rights == access_rights::remote_read);
}

TEST_CASE("a part of a remote region keeps its key and rights") {
    constexpr remote_region whole{1000, 500, 9, access_rights::all};
    constexpr remote_region part = whole.part(100, 50);
    static_assert(part.address == 1100 && part.length == 50 && part.key == 9 &&
                  part.rights == access_rights::all);
    CHECK(part.part(10, 5).address == 1110);
}

TEST_CASE("a region is deregistered once, when it goes, and not when it moves") {
    owner registry;
    std::vector<std::byte> memory(10);
    {
        region first(registry, memory, {1, 10, 5, access_rights::all});
        CHECK(first);
        CHECK(first.memory().data() == memory.data());
        CHECK(first.remote().key == 5);
        region second(std::move(first));
        CHECK_FALSE(first);
        region third(registry, memory, {1, 10, 6, access_rights::all});
        third = std::move(second);
        CHECK(registry.gone == std::vector<std::uint64_t>{6});
        CHECK(third.remote().key == 5);
        region fourth(registry, memory, {1, 10, 7, access_rights::all});
        fourth.reset();
        fourth.reset();
        CHECK(registry.gone == std::vector<std::uint64_t>{6, 7});
        region& itself = third;
        third = std::move(itself);
        CHECK(third);
    }
    CHECK(registry.gone == std::vector<std::uint64_t>{6, 7, 5});
}

}  // namespace test_memory_region
