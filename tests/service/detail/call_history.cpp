#include <rdmacoro/service/detail/call_history.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <map>

namespace test_service_detail_call_history {

using namespace rdmacoro::detail;
using fate = call_history::fate;

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
        const fate should = behind >= call_history::window ? fate::old
                            : found == model.end()         ? fate::unknown
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

}  // namespace test_service_detail_call_history
