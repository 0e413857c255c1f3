#include <rdmacoro/service/detail/algorithms.hpp>

#include "support/collective_plans.hpp"
#include "support/sanitizer.hpp"

#include <algorithm>

namespace test_service_detail_algorithms {

using namespace rdmacoro;
using namespace rdmacoro::test;

// On two hosts: the first half of the ranks on one, or every other one.
[[nodiscard]] std::vector<unsigned> in_halves(unsigned size) {
    std::vector<unsigned> hosts;
    for (unsigned rank = 0; rank < size; ++rank) hosts.push_back(rank < size / 2 ? 0 : 1);
    return hosts;
}
[[nodiscard]] std::vector<unsigned> in_turns(unsigned size) {
    std::vector<unsigned> hosts;
    for (unsigned rank = 0; rank < size; ++rank) hosts.push_back(rank % 2);
    return hosts;
}
/// Ranks at the most in a sweep, whose work grows with their square.
constexpr unsigned most_ranks = under_sanitizer ? 9 : 17;
/// The algorithms for several hosts: one of each kind, and the ring from host to host.
constexpr std::size_t for_hosts = collective_kinds + 1;

TEST_CASE("every algorithm gives every rank what it must have, for any small number of ranks, whatever the "
          "order of events") {
    collective_findings found;
    for (unsigned size = 1; size <= most_ranks; ++size) {
        collective_plan how;
        how.roots = some_roots(size);
        how.lengths = short_lengths(size);
        try_ranks(size, how, size, ranks<sim>::usual(), found);
    }
    check_right(found);
    check_complete(found, 2, most_ranks, false);
}

TEST_CASE("algorithms in two levels give the same wherever the ranks are") {
    collective_findings found;
    for (unsigned size = 3; size <= most_ranks; ++size) {
        collective_plan how;
        how.roots = some_roots(size);
        how.lengths = short_lengths(size);
        how.hosts = 2;
        std::vector<unsigned> threes;
        for (unsigned rank = 0; rank < size; ++rank) threes.push_back(rank / 3);
        try_ranks(size, how, size, ranks<sim>::usual(), found, in_halves(size));
        how.in_turn = true;
        try_ranks(size, how, 100 + size, ranks<sim>::usual(), found, in_turns(size));
        how.in_turn = false;
        how.hosts = threes.back() + 1;
        if (how.hosts > 1) try_ranks(size, how, 200 + size, ranks<sim>::usual(), found, threes);
    }
    check_right(found);
    check_complete(found, 3, most_ranks, true);
}

TEST_CASE("algorithms carry long messages, which no buffer holds") {
    collective_findings found;
    for (const unsigned size : {2u, 3u, 5u, 8u}) {
        collective_plan how;
        how.roots = {size - 1};
        how.lengths = {(64u << 10) / sizeof(std::uint32_t), 20'000 + size};
        how.variants = size == 5;
        try_ranks(size, how, size, ranks<sim>::usual(), found);
    }
    check_right(found);
}

TEST_CASE("no algorithm relies on a message being buffered: every one by rendezvous") {
    collective_findings found;
    for (unsigned size = 2; size <= most_ranks; ++size) {
        collective_plan how;
        how.roots = {size / 2};
        how.lengths = {1, size + 1};
        how.variants = size % 4 == 3;
        how.counted = &metrics::get_sent;
        try_ranks(size, how, 1000 + size, by_rendezvous(), found);
    }
    check_right(found);
    check_complete(found, 2, most_ranks, false);
    check_happened(found, 30);
}

TEST_CASE("no algorithm in two levels relies on a message being buffered: every one by rendezvous") {
    collective_findings found;
    for (unsigned size = 3; size <= std::min(most_ranks, 12u); ++size) {
        collective_plan how;
        how.roots = {size / 2};
        how.lengths = {1, size + 1};
        how.variants = size % 4 == 3;
        how.counted = &metrics::get_sent;
        how.hosts = 2;
        try_ranks(size, how, 3000 + size, by_rendezvous(), found, in_halves(size));
        how.in_turn = true;
        try_ranks(size, how, 4000 + size, by_rendezvous(), found, in_turns(size));
    }
    check_right(found);
    check_complete(found, 3, std::min(most_ranks, 12u), true);
    check_happened(found, for_hosts);
}

TEST_CASE("no algorithm relies on room for its messages: all with a store that is too small for them") {
    collective_findings found;
    for (const unsigned size : {2u, 3u, 4u, 5u, 6u, 8u}) {
        const message_pool pool(64u << 10);
        collective_plan how;
        how.roots = {size - 1};
        how.lengths = {80'000 + size};
        how.variants = false;
        how.counted = &metrics::credit_waits;
        try_ranks(size, how, 2000 + size, short_of_memory(pool), found);
    }
    check_right(found);
    check_happened(found, 30);
    CHECK(found.waits > 0);
}

TEST_CASE("no algorithm in two levels relies on room for its messages") {
    collective_findings found;
    for (const unsigned size : {3u, 4u, 5u, 8u}) {
        // Each belongs to one scheduler.
        const message_pool pool(64u << 10);
        const message_pool another(64u << 10);
        collective_plan how;
        how.roots = {size - 1};
        how.lengths = {80'000 + size};
        how.variants = false;
        how.counted = &metrics::credit_waits;
        how.hosts = 2;
        try_ranks(size, how, 5000 + size, short_of_memory(pool), found, in_halves(size));
        how.in_turn = true;
        try_ranks(size, how, 6000 + size, short_of_memory(another), found, in_turns(size));
    }
    check_right(found);
    check_happened(found, for_hosts);
    CHECK(found.waits > 0);
}

}  // namespace test_service_detail_algorithms
