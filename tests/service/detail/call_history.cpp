#include <rdmacoro/service/detail/call_history.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <malloc.h>

namespace test_service_detail_call_history {

using namespace rdmacoro::detail;
using rdmacoro::test::counts_allocations;
using fate = call_history::fate;

namespace {
std::size_t heap_bytes() {
    const auto all = ::mallinfo2();
    return all.uordblks + all.hblkhd;
}
}  // namespace

TEST_CASE("what became of a call is known for the last four thousand") {
    call_history h;
    CHECK(h.of(77) == fate::unknown);
    constexpr std::uint64_t first = 5'000'000'000'123;  // numbers begin anywhere
    for (std::uint64_t n = first; n < first + 10000; ++n) {
        CHECK(h.of(n) == fate::unknown);
        h.set(n, n % 2 == 0 ? fate::ended : fate::canceled);
    }
    const std::uint64_t last = first + 9999;
    std::size_t wrong = 0;
    for (std::uint64_t n = first; n <= last; ++n) {
        const fate should = last - n >= call_history::window ? fate::old
                            : n % 2 == 0                     ? fate::ended
                                                             : fate::canceled;
        if (h.of(n) != should) ++wrong;
    }
    CHECK(wrong == 0);
    h.set(first, fate::answered);  // too late
    CHECK(h.of(first) == fate::old);
    h.set(last - 100, fate::answered);
    CHECK(h.of(last - 100) == fate::answered);
    CHECK(h.of(last - 101) != fate::answered);
    CHECK(h.of(last - 99) != fate::answered);
    CHECK(h.of(last + 1) == fate::unknown);
}

TEST_CASE("calls whose numbers were left out, or go round, are known like others") {
    call_history h;
    const std::uint64_t most = call_number_mask & ~caller_writes_bit;
    std::map<std::uint64_t, fate> model;
    std::uint64_t number = most - 20000;
    std::uint32_t seed = 5;
    for (int n = 0; n < 20000; ++n) {
        seed = seed * 1664525 + 1013904223;
        number = (number + 1 + (seed >> 28)) & most;
        const auto what = static_cast<fate>(1 + (seed >> 16) % 3);
        h.set(number | ((seed & 1) != 0 ? caller_writes_bit : 0), what);
        model[number] = what;
    }
    CHECK(number < 1'000'000);  // it has gone round
    std::size_t wrong = 0;
    std::size_t known = 0;
    for (std::uint64_t behind = 0; behind < 10000; ++behind) {
        const std::uint64_t one = (number - behind) & most;
        const auto found = model.find(one);
        const fate should = found == model.end()             ? fate::unknown
                            : behind >= call_history::window ? fate::old
                                                             : found->second;
        if (h.of(one) != should) ++wrong;
        if (found != model.end() && behind < call_history::window) ++known;
    }
    CHECK(wrong == 0);
    CHECK(known > 400);
    h.set((number + 100000) & most, fate::ended);  // all before are old
    CHECK(h.of(number) == fate::old);
    CHECK(h.of((number + 99999) & most) == fate::unknown);
}

TEST_CASE("of calls that are older than four thousand later ones those that never came are known") {
    call_history h;
    constexpr std::uint64_t first = 7'000'000'000'000;
    for (std::uint64_t n = first; n < first + 5000; ++n) h.set(n, fate::ended);
    // Twenty thousand did not come.
    constexpr std::uint64_t later = first + 25'000;
    for (std::uint64_t n = later; n < later + 5000; ++n) h.set(n, fate::ended);
    CHECK(h.of(first - 1) == fate::unknown);
    CHECK(h.of(first) == fate::old);
    CHECK(h.of(first + 4999) == fate::old);
    CHECK(h.of(first + 5000) == fate::unknown);
    CHECK(h.of(first + 12'000) == fate::unknown);
    CHECK(h.of(later - 1) == fate::unknown);
    CHECK(h.of(later) == fate::old);
    CHECK(h.of(later + 4999) == fate::ended);

    // They are canceled in any order; each is unknown to the end, and once.
    std::vector<std::uint64_t> canceled;
    for (std::uint64_t n = first + 5000; n < later; ++n) canceled.push_back(n);
    std::mt19937 random(7);
    std::shuffle(canceled.begin(), canceled.begin() + 500, random);
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < canceled.size(); ++at) {
        if (h.of(canceled[at]) != fate::unknown) ++wrong;
        h.set(canceled[at], fate::answered);
        if (h.of(canceled[at]) != fate::answered) ++wrong;
        if (at + 1 < canceled.size() && h.of(canceled[at + 1]) != fate::unknown) ++wrong;
    }
    CHECK(wrong == 0);
    CHECK(h.of(canceled.front()) == fate::old);
    CHECK(h.of(first - 1) == fate::unknown);

    // One that is being received when it is canceled ends afterwards.
    h.set(canceled.back(), fate::ended);
    CHECK(h.of(canceled.back()) == fate::ended);
}

TEST_CASE("whatever numbers a peer gives, what is known of them takes bounded memory") {
    call_history h;
    std::mt19937_64 random(11);
    std::uint64_t number = 1;
    const std::size_t before = heap_bytes();
    for (int n = 0; n < 300'000; ++n) {
        switch (random() % 4) {
            case 0: number = random() & call_number_mask; break;
            case 1: number += random() % 20'000; break;
            default: number += 2; break;
        }
        h.set(number & call_number_mask, static_cast<fate>(1 + random() % 3));
        h.set((number - random() % 50'000) & call_number_mask, fate::answered);
    }
    if (counts_allocations) CHECK(heap_bytes() - before < 64 * 1024);
}

}  // namespace test_service_detail_call_history
