#include <rdmacoro/protocol/detail/reuse_watch.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <vector>

namespace test_protocol_detail_reuse_watch {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;

namespace {
/// A link that can prepare any memory, until it is told to refuse.
struct preparing_link {
    bool refuses = false;
    bool mapped = true;
    unsigned prepared = 0;

    bool prepare_in_place(std::span<const std::byte>) noexcept {
        if (!refuses) ++prepared;
        return !refuses;
    }
    [[nodiscard]] bool in_place(std::span<const std::byte>) const noexcept { return prepared != 0 && mapped; }
};
}  // namespace

TEST_CASE("memory is sent in place from the use on at which preparing pays, and once it is prepared") {
    virtual_time world;
    reuse_watch watch(world.on);
    REQUIRE(watch.open());
    CHECK(watch.open());
    preparing_link link;
    const std::vector<std::byte> memory(1000);
    for (unsigned n = 1; n < reuse_threshold::first_uses; ++n)
        CHECK_FALSE(watch.look_at(link, memory).in_place);
    CHECK(link.prepared == 0);
    CHECK(watch.look_at(link, memory).in_place);
    CHECK(watch.look_at(link, memory).in_place);
    CHECK(link.prepared == 1);
    CHECK(watch.statistics().registrations == 1);
}

TEST_CASE("memory that is prepared no longer is forgotten, and counts from its first use again") {
    virtual_time world;
    reuse_watch watch(world.on);
    REQUIRE(watch.open());
    preparing_link link;
    const std::vector<std::byte> memory(1000);
    for (unsigned n = 0; n < reuse_threshold::first_uses; ++n) static_cast<void>(watch.look_at(link, memory));
    link.mapped = false;
    CHECK_FALSE(watch.look_at(link, memory).in_place);
    CHECK(watch.statistics().forgotten == 1);
}

TEST_CASE("memory that the link refuses to prepare is copied, and counts anew") {
    virtual_time world;
    reuse_watch watch(world.on);
    REQUIRE(watch.open());
    preparing_link link;
    link.refuses = true;
    const std::vector<std::byte> memory(1000);
    for (unsigned n = 0; n < reuse_threshold::first_uses; ++n)
        CHECK_FALSE(watch.look_at(link, memory).in_place);
    CHECK(watch.statistics().refused == 1);
    CHECK_FALSE(watch.look_at(link, memory).in_place);
    CHECK(watch.statistics().refused == 1);
}

}  // namespace test_protocol_detail_reuse_watch
