#include <rdmacoro/service/detail/choice_limits.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace test_service_detail_choice_limits {

using namespace rdmacoro;

namespace {

using limits = std::vector<std::pair<std::size_t, int>>;

/// As `for_each_limit` finds them.
template <class Choice>
limits found(std::size_t longest, Choice choice_at) {
    limits all;
    detail::for_each_limit(longest, choice_at,
                           [&](std::size_t bytes, int choice) { all.emplace_back(bytes, choice); });
    return all;
}
/// By asking at every length.
template <class Choice>
limits of_all_lengths(std::size_t longest, Choice choice_at) {
    limits all{{0, choice_at(std::size_t{0})}};
    for (std::size_t bytes = 8; bytes <= longest; bytes += 8) {
        const int choice = choice_at(bytes);
        if (choice != all.back().second) all.emplace_back(bytes, choice);
    }
    return all;
}

}  // namespace

TEST_CASE("every change within a doubling is found") {
    const auto choice = [](std::size_t bytes) {
        return bytes <= 4096 ? 0 : bytes < 4400 ? 1 : bytes < 6000 ? 2 : bytes < 6008 ? 3 : 4;
    };
    CHECK(found(1 << 20, choice) == limits{{0, 0}, {4104, 1}, {4400, 2}, {6000, 3}, {6008, 4}});
    // Also where the first one comes back, behind a limit that is a power of two.
    const auto back = [](std::size_t bytes) { return bytes > 1024 && bytes < 1800 ? 1 : 0; };
    CHECK(found(1 << 20, back) == limits{{0, 0}, {1032, 1}, {1800, 0}});
}

TEST_CASE("nothing is asked beyond the longest length, and every two limits are found") {
    for (const std::size_t longest : {std::size_t{0}, std::size_t{8}, std::size_t{16}, std::size_t{64},
                                      std::size_t{100}, std::size_t{128}, std::size_t{136}}) {
        for (std::size_t first = 0; first <= 144; first += 8) {
            for (std::size_t second = first; second <= 144; second += 8) {
                const auto choice = [&](std::size_t bytes) {
                    CHECK(bytes <= longest);
                    return bytes >= second ? 2 : bytes >= first ? 1 : 0;
                };
                INFO(longest << ' ' << first << ' ' << second);
                CHECK(found(longest, choice) == of_all_lengths(longest, choice));
            }
        }
    }
}

}  // namespace test_service_detail_choice_limits
