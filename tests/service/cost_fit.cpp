#include <rdmacoro/service/cost_fit.hpp>

#include "support/catch.hpp"

#include <rdmacoro/coro/error.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace test_service_cost_fit {

using namespace rdmacoro;

namespace {

/// Measurements of that cost: lengths 0, 1, 8, 64, ... and each a few times, with relative errors below `noise`.
std::vector<cost_sample> measured(const linear_cost& of, double noise = 0, unsigned seed = 1, int times = 1) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> off(-noise, noise);
    std::vector<cost_sample> all;
    for (int n = 0; n < times; ++n) {
        all.push_back({0, of.at(0) * (1 + off(random))});
        for (std::size_t bytes = 1; bytes <= (4u << 20); bytes *= 4)
            all.push_back({bytes, of.at(static_cast<double>(bytes)) * (1 + off(random))});
    }
    return all;
}

[[nodiscard]] bool near(double is, double wanted, double share) {
    return std::abs(is - wanted) <= share * wanted;
}

const linear_cost known[] = {
    {4000, 13000, 3.89}, {200, 900, 0.1}, {3500, 0, 0.3}, {7, 500, 0.004}, {100'000, 20'000, 12}};

}  // namespace

TEST_CASE("exact measurements give back the cost that they are of") {
    for (const linear_cost& cost : known) {
        const cost_fit found = fit_cost(measured(cost));
        INFO(cost.start_ns << ' ' << found.cost.start_ns << ' ' << found.cost.extra_ns << ' '
                           << found.cost.ns_per_byte);
        CHECK(near(found.cost.start_ns, cost.start_ns, 0.001));
        CHECK(std::abs(found.cost.extra_ns - cost.extra_ns) <= 0.002 * (cost.extra_ns + cost.start_ns));
        CHECK(near(found.cost.ns_per_byte, cost.ns_per_byte, 0.001));
        CHECK(found.mean_error < 0.001);
        CHECK(found.outliers == 0);
    }
}

TEST_CASE("measurements with noise give the cost within it, and say how large it is") {
    for (unsigned seed = 1; seed <= 10; ++seed) {
        for (const linear_cost& cost : known) {
            const cost_fit found = fit_cost(measured(cost, 0.05, seed, 4));
            INFO(seed << ": " << cost.start_ns << ' ' << found.cost.start_ns << ' ' << found.cost.extra_ns
                      << ' ' << found.cost.ns_per_byte);
            CHECK(near(found.cost.start_ns, cost.start_ns, 0.05));
            CHECK(near(found.cost.ns_per_byte, cost.ns_per_byte, 0.06));
            CHECK(found.mean_error > 0.01);
            CHECK(found.mean_error < 0.04);
            CHECK(found.largest_error <= 0.12);
            // Between the lengths that were measured, too.
            for (double bytes = 3; bytes < 1e6; bytes *= 7)
                CHECK(near(found.cost.at(bytes), cost.at(bytes), 0.06));
        }
    }
}

TEST_CASE("outliers, above and below, short and long, are left out and counted") {
    for (unsigned seed = 1; seed <= 5; ++seed) {
        for (const linear_cost& cost : known) {
            std::vector<cost_sample> samples = measured(cost, 0.02, seed, 2);
            samples[1].ns *= 20;
            samples[6].ns *= 3;
            samples[samples.size() - 1].ns *= 5;
            samples[samples.size() - 4].ns /= 4;
            const cost_fit found = fit_cost(samples);
            INFO(seed << ": " << cost.start_ns << ' ' << found.cost.start_ns << ' ' << found.cost.extra_ns
                      << ' ' << found.cost.ns_per_byte);
            CHECK(found.outliers >= 4);
            CHECK(found.outliers <= 6);
            for (double bytes = 0; bytes < 4e6; bytes = bytes * 5 + 1)
                CHECK(near(found.cost.at(bytes), cost.at(bytes), 0.05));
        }
    }
}

TEST_CASE("a cost without a third term is found without one, and none is negative") {
    const cost_fit line = fit_cost(measured({1000, 0, 0.5}, 0.02, 3, 3));
    CHECK(line.cost.extra_ns < 60);
    // Long messages go faster than the short ones promise: no term of the model says that.
    std::vector<cost_sample> faster;
    for (std::size_t bytes = 1; bytes <= (1u << 20); bytes *= 2)
        faster.push_back({bytes, 500 + std::pow(static_cast<double>(bytes), 0.8)});
    const cost_fit bent = fit_cost(faster);
    CHECK(bent.cost.start_ns > 0);
    CHECK(bent.cost.extra_ns >= 0);
    CHECK(bent.cost.ns_per_byte > 0);
    // The same time whatever the length.
    const std::vector<cost_sample> flat{{0, 100}, {10, 100}, {1000, 100}, {100'000, 100}};
    const cost_fit same = fit_cost(flat);
    CHECK(near(same.cost.at(0), 100, 0.02));
    CHECK(near(same.cost.at(100'000), 100, 0.02));
}

TEST_CASE("too few lengths, and times that are none, are refused") {
    const auto refused = [](std::vector<cost_sample> samples) {
        try {
            static_cast<void>(fit_cost(samples));
        } catch (const std::system_error& e) {
            return e.code() == errc::invalid_argument;
        }
        return false;
    };
    CHECK(refused({}));
    CHECK(refused({{1, 1}, {1, 2}, {2, 3}, {2, 4}}));
    CHECK(refused({{1, 1}, {2, 0}, {3, 3}}));
    CHECK(refused({{1, 1}, {2, -1}, {3, 3}}));
    CHECK(refused({{1, 1}, {2, std::numeric_limits<double>::quiet_NaN()}, {3, 3}}));
    CHECK(refused({{1, 1}, {2, std::numeric_limits<double>::infinity()}, {3, 3}}));
    CHECK(!refused({{1, 1}, {2, 2}, {3, 3}}));
}

}  // namespace test_service_cost_fit
