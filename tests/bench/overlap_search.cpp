#include "../../bench/common/overlap_search.hpp"

#include "support/catch.hpp"

#include <cmath>
#include <cstdint>

namespace test_bench_overlap_search {

using bench::overlap_search;

namespace {

/// A transfer of which everything is known: t1 is spent in the call that starts it, t2 passes without the processor, t3 is
/// spent when it is awaited.
struct transfer {
    double t1;
    double t2;
    double t3;

    [[nodiscard]] double total() const { return t1 + t2 + t3; }
    [[nodiscard]] double loop(double computation) const { return t1 + std::fmax(t2, computation) + t3; }
};

/// From -1 to 1, the same at each run.
double noise(std::uint64_t& state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1;
}

/// `part`: by how much of themselves the loops' times are wrong at most.
overlap_search search_for(const transfer& one, double part = 0) {
    std::uint64_t state = 1;
    overlap_search search(one.total());
    while (search.goes_on()) {
        const double computation = search.next();
        search.took(computation, one.loop(computation) * (1 + part * noise(state)));
    }
    return search;
}

}  // namespace

TEST_CASE("the ratio is the part of a transfer that needs no processor") {
    for (const transfer one : {transfer{100, 800, 100}, transfer{500, 400, 100}, transfer{50, 950, 0},
                               transfer{0, 1e6, 0}, transfer{700, 50, 250}, transfer{0.9, 0.1, 0}}) {
        const double known = one.t2 / one.total();
        CAPTURE(one.t1, one.t2, one.t3);
        const overlap_search search = search_for(one);
        CHECK(std::fabs(search.ratio() - known) <= 0.05 * known);
        CHECK(search.last().loop < 1.1 * one.total());
        CHECK(search.steps().back().loop >= 1.1 * one.total());
    }
}

TEST_CASE("the ratio is found among times that are a little wrong") {
    for (const transfer one : {transfer{100, 800, 100}, transfer{500, 400, 100}, transfer{0, 900, 100}}) {
        CAPTURE(one.t1, one.t2, one.t3);
        CHECK(std::fabs(search_for(one, 0.01).ratio() - one.t2 / one.total()) <= 0.05);
    }
}

TEST_CASE("a transfer that the processor does alone overlaps with nothing") {
    const overlap_search search = search_for({600, 0, 400});
    CHECK(std::fabs(search.ratio()) < 1e-9);
    CHECK(search.last().computation > 0);
}

TEST_CASE("the computation grows by a tenth from a hundredth on") {
    const overlap_search search = search_for({0, 1000, 0});
    REQUIRE(search.steps().size() > 40);
    CHECK(std::fabs(search.steps()[0].computation - 10) < 1e-9);
    for (std::size_t i = 1; i < search.steps().size(); ++i) {
        CHECK(std::fabs(search.steps()[i].computation / search.steps()[i - 1].computation - 1.1) < 1e-9);
    }
    CHECK(search.no_computation() == 1000);
}

TEST_CASE("a first step that is too long leaves nothing") {
    overlap_search search(1000);
    REQUIRE(search.goes_on());
    CHECK_FALSE(search.too_long(1099));
    CHECK(search.too_long(1101));
    search.took(search.next(), 1200);
    CHECK_FALSE(search.goes_on());
    CHECK(search.ratio() == 0);
    CHECK(search.last().computation == 0);
}

TEST_CASE("a loop that never becomes longer ends the search all the same") {
    overlap_search search(1000);
    std::size_t steps = 0;
    for (; search.goes_on(); ++steps) search.took(search.next(), 1000);
    CHECK(steps < 100);
    CHECK(search.ratio() > 2);
}

}  // namespace test_bench_overlap_search
