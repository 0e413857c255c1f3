#include <rdmacoro/transport/sim/memory_watch.hpp>

#include "support/catch.hpp"

#include <array>
#include <random>

namespace test_transport_sim_memory_watch {

using rdmacoro::detail::sim::memory_watch;

TEST_CASE("a set of bytes knows what overlaps it and what it contains, after any adds and removes") {
    std::array<std::byte, 64> memory{};
    std::array<bool, 64> in_set{};
    memory_watch watch;
    std::mt19937 random(11);
    const auto part = [&](std::size_t from, std::size_t bytes) {
        return std::span(memory).subspan(from, bytes);
    };
    unsigned overlapped = 0;
    unsigned contained = 0;
    for (int step = 0; step < 3000; ++step) {
        const std::size_t from = random() % 60;
        const std::size_t bytes = random() % (64 - from) % 9;
        const bool add = random() % 2 == 0;
        if (add) {
            watch.add(part(from, bytes));
        } else {
            watch.remove(part(from, bytes));
        }
        for (std::size_t n = from; n < from + bytes; ++n) in_set[n] = add;
        const std::size_t at = random() % 60;
        const std::size_t length = 1 + random() % 4;
        bool any = false;
        bool all = true;
        for (std::size_t n = at; n < at + length; ++n) {
            any = any || in_set[n];
            all = all && in_set[n];
        }
        REQUIRE(watch.overlaps(part(at, length)) == any);
        REQUIRE(watch.contains(part(at, length)) == all);
        overlapped += any ? 1u : 0u;
        contained += all ? 1u : 0u;
    }
    CHECK(overlapped > contained);
    CHECK(contained > 0);
    CHECK_FALSE(watch.overlaps({}));
    CHECK(watch.contains({}));
}

}  // namespace test_transport_sim_memory_watch
