#include "../../tools/soaking/watch.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace test_tools_growth {

using soak::growth;
using soak::holdings;

namespace {

constexpr std::size_t hour = 3600;  // of looks

/// A process with 100 MB, 200 descriptors and 300 mappings, times `factor(part of its life)`, as a look each second finds it.
template <class Factor>
std::string judged(std::size_t looks, Factor factor) {
    growth held;
    for (std::size_t n = 0; n < looks; ++n) {
        const double times = factor(static_cast<double>(n) / static_cast<double>(looks));
        const auto of = [&](double usual) { return static_cast<std::uint64_t>(usual * times); };
        held.add({static_cast<double>(n), of(100 * 1024), of(200), of(300)});
    }
    return held.judge();
}

bool names(const std::string& text, const char* what) { return text.find(what) != std::string::npos; }

/// Random numbers around 1, each near the one before for about so many looks.
class restless {
public:
    restless(unsigned seed, double deviation, double looks)
        : random_(seed),
          keeps_(std::exp(-1 / looks)),
          step_(0, deviation * std::sqrt(1 - keeps_ * keeps_)),
          now_(std::normal_distribution<>(0, deviation)(random_)) {}

    double operator()() {
        now_ = keeps_ * now_ + step_(random_);
        return std::max(0.1, 1 + now_);
    }

private:
    std::mt19937 random_;
    double keeps_;
    std::normal_distribution<> step_;
    double now_;
};

}  // namespace

TEST_CASE("a leak of each resource is named, with what there was and what there is") {
    const std::string all = judged(hour, [](double part) { return 1 + 2 * part; });
    CHECK(names(all, "resident KB 179"));
    CHECK(names(all, "to 281"));
    CHECK(names(all, "descriptors 3"));
    CHECK(names(all, "mappings 5"));
    CHECK_FALSE(names(all, "steadily"));
    growth held;
    for (std::uint64_t n = 0; n < 60; ++n) held.add({static_cast<double>(n), 100'000, 200 + 5 * n, 300});
    CHECK(names(held.judge(), "descriptors"));
    CHECK_FALSE(names(held.judge(), "resident"));
    CHECK_FALSE(names(held.judge(), "mappings"));
}

TEST_CASE("a life of less than a minute is not judged, and looks at a process that has gone do not count") {
    growth held;
    for (std::uint64_t n = 0; n < 59; ++n)
        held.add({static_cast<double>(n), 100'000 * (n + 1), n * n, n * n});
    CHECK_FALSE(held.long_enough());
    held.add({59, 0, 0, 0});
    CHECK_FALSE(held.long_enough());
    CHECK(held.judge().empty());
}

TEST_CASE("a flat life is not accused, nor one that rises and falls") {
    CHECK(judged(hour, [](double) { return 1.0; }).empty());
    CHECK(judged(hour, [](double part) { return 1.5 + 0.5 * std::sin(part * 40); }).empty());
    for (const double looks : {1.0, 10.0, 100.0}) {
        for (unsigned seed = 0; seed < 200; ++seed) {
            restless factor(seed, 0.08, looks);
            const std::string grown = judged(hour, [&](double) { return factor(); });
            CAPTURE(looks, seed, grown);
            REQUIRE(grown.empty());
        }
    }
}

TEST_CASE("a life that grows only at first is not accused, nor one that settles") {
    for (const std::size_t looks : {hour / 2, hour}) {
        CAPTURE(looks);
        CHECK(judged(looks, [](double part) { return 1 + std::min(part, 0.25) * 8; }).empty());
        CHECK(judged(looks, [](double part) { return 2 - std::exp(-part * 8); }).empty());
        CHECK(judged(looks, [](double part) { return 1 + 0.1 * std::log(1 + 100 * part); }).empty());
    }
}

TEST_CASE("a leak of less than a quarter and 32 MB is found within an hour when it is steady") {
    // 20 MB of 100, among sessions that come and go.
    for (unsigned seed = 0; seed < 50; ++seed) {
        restless factor(seed, 0.05, 1);
        const std::string grown = judged(hour, [&](double part) { return factor() + 0.2 * part; });
        CAPTURE(seed, grown);
        REQUIRE(names(grown, "resident KB"));
        REQUIRE(names(grown, "steadily"));
    }
    // Less than 8 MB, or in a life in which what settles slowly may look like that.
    CHECK(judged(hour, [](double part) { return 1 + 0.05 * part; }).empty());
    CHECK(judged(hour / 3, [](double part) { return 1 + 0.2 * part; }).empty());
}

}  // namespace test_tools_growth
