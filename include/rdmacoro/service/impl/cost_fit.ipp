// Bodies of cost_fit.hpp: least squares of relative errors, with weights that leave outliers out.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/service/cost_fit.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace rdmacoro {

namespace detail {

using cost_terms = std::array<double, 3>;  // start, extra, per byte

[[nodiscard]] inline double relative_error(const cost_sample& of, const cost_terms& terms) noexcept {
    return 1 - linear_cost{terms[0], terms[1], terms[2]}.at(static_cast<double>(of.bytes)) / of.ns;
}

/// Tukey's weight of an error against the usual one; `far`: the distance from which on it is 0.
[[nodiscard]] inline double tukey_weight(double error, double far) noexcept {
    const double share = error / far;
    return std::abs(share) < 1 ? (1 - share * share) * (1 - share * share) : 0;
}

[[nodiscard]] inline double median_of(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// The distance from which on an error is an outlier's.
[[nodiscard]] inline double far_error(std::span<const cost_sample> samples, const cost_terms& terms) {
    std::vector<double> sizes;
    for (const cost_sample& one : samples) sizes.push_back(std::abs(relative_error(one, terms)));
    return 4.685 * std::max(1.4826 * median_of(std::move(sizes)), 0.01);
}

/// One improvement of the terms: Levenberg and Marquardt's step, within the terms that are not negative.
class cost_step {
public:
    cost_step(std::span<const cost_sample> samples, std::span<const double> weights) noexcept
        : samples_(samples), weights_(weights) {}

    [[nodiscard]] double badness(const cost_terms& terms) const noexcept {
        double sum = 0;
        for (std::size_t at = 0; at < samples_.size(); ++at) {
            const double error = relative_error(samples_[at], terms);
            sum += weights_[at] * error * error;
        }
        return sum;
    }

    /// False: there is no better one.
    [[nodiscard]] bool improve(cost_terms& terms, double& damping) const noexcept {
        std::array<cost_terms, 3> matrix{};
        cost_terms right{};
        for (std::size_t at = 0; at < samples_.size(); ++at) {
            const double carried = static_cast<double>(samples_[at].bytes) * terms[2];
            const double whole = terms[0] + carried;
            const double square = whole * whole;
            const double bytes = static_cast<double>(samples_[at].bytes);
            const cost_terms slope{(1 - terms[1] * carried / square) / samples_[at].ns,
                                   carried / whole / samples_[at].ns,
                                   bytes * (1 + terms[1] * terms[0] / square) / samples_[at].ns};
            const double error = relative_error(samples_[at], terms);
            for (std::size_t row = 0; row < 3; ++row) {
                right[row] += weights_[at] * slope[row] * error;
                for (std::size_t column = 0; column < 3; ++column)
                    matrix[row][column] += weights_[at] * slope[row] * slope[column];
            }
        }
        const double before = badness(terms);
        for (; damping < 1e12; damping *= 10) {
            const cost_terms change = solve(matrix, right, terms, damping);
            cost_terms next = terms;
            for (std::size_t row = 0; row < 3; ++row) next[row] = std::max(0.0, terms[row] + change[row]);
            next[0] = std::max(next[0], 1e-6);
            const double after = badness(next);
            if (!(after < before)) continue;
            terms = next;
            damping = std::max(damping / 10, 1e-12);
            return before - after > 1e-14 * before;
        }
        return false;
    }

private:
    /// A term that is 0, and would become negative, stays.
    [[nodiscard]] static cost_terms solve(std::array<cost_terms, 3> matrix, cost_terms right,
                                          const cost_terms& terms, double damping) noexcept {
        for (std::size_t row = 0; row < 3; ++row) {
            matrix[row][row] *= 1 + damping;
            const bool stays = (terms[row] <= 0 && right[row] <= 0) || !(matrix[row][row] > 0);
            if (!stays) continue;
            for (std::size_t other = 0; other < 3; ++other) matrix[row][other] = matrix[other][row] = 0;
            matrix[row][row] = 1;
            right[row] = 0;
        }
        // Cholesky's way would need a positive matrix; with a damped diagonal plain elimination is as good.
        for (std::size_t pivot = 0; pivot < 3; ++pivot) {
            for (std::size_t row = pivot + 1; row < 3; ++row) {
                const double factor = matrix[row][pivot] / matrix[pivot][pivot];
                for (std::size_t column = pivot; column < 3; ++column)
                    matrix[row][column] -= factor * matrix[pivot][column];
                right[row] -= factor * right[pivot];
            }
        }
        cost_terms change{};
        for (std::size_t row = 3; row-- != 0;) {
            double sum = right[row];
            for (std::size_t column = row + 1; column < 3; ++column)
                sum -= matrix[row][column] * change[column];
            change[row] = sum / matrix[row][row];
        }
        return change;
    }

    std::span<const cost_sample> samples_;
    std::span<const double> weights_;
};

/// From `terms` on: first every sample by the size of its error, so that no outlier leads, then without the outliers.
inline void fit_from(std::span<const cost_sample> samples, cost_terms& terms) {
    std::vector<double> weights(samples.size(), 1.0);
    for (int turn = 0; turn < 60; ++turn) {
        const bool by_size = turn < 30;
        const double far = by_size ? 0 : far_error(samples, terms);
        for (std::size_t at = 0; at < samples.size(); ++at) {
            const double error = std::abs(relative_error(samples[at], terms));
            weights[at] = by_size ? 1 / std::max(error, 0.001) : tukey_weight(error, far);
        }
        const cost_step step(samples, weights);
        double damping = 1e-3;
        for (int times = 0; times < 20 && step.improve(terms, damping); ++times) {}
    }
}

}  // namespace detail

RDMACORO_COLD cost_fit fit_cost(std::span<const cost_sample> samples) {
    std::vector<cost_sample> sorted(samples.begin(), samples.end());
    std::sort(sorted.begin(), sorted.end(),
              [](const cost_sample& a, const cost_sample& b) { return a.bytes < b.bytes; });
    std::size_t lengths = sorted.empty() ? 0 : 1;
    for (std::size_t at = 1; at < sorted.size(); ++at)
        lengths += sorted[at].bytes != sorted[at - 1].bytes ? 1 : 0;
    if (lengths < 3) throw error(errc::invalid_argument, "fit_cost: needs messages of three lengths");
    for (const cost_sample& one : sorted) {
        if (!(one.ns > 0) || !std::isfinite(one.ns))
            throw error(errc::invalid_argument, "fit_cost: a time is not above 0");
    }
    // The slopes between long messages, and what is left of them at no bytes.
    std::vector<double> slopes;
    for (std::size_t a = sorted.size() / 2; a < sorted.size(); ++a) {
        for (std::size_t b = a + 1; b < sorted.size(); ++b) {
            if (sorted[a].bytes != sorted[b].bytes)
                slopes.push_back((sorted[b].ns - sorted[a].ns) /
                                 static_cast<double>(sorted[b].bytes - sorted[a].bytes));
        }
    }
    const double longest = static_cast<double>(sorted.back().bytes);
    const double slope = slopes.empty() ? sorted.back().ns / longest : detail::median_of(std::move(slopes));
    const double per_byte = std::max(slope, sorted.front().ns / longest / 100);
    std::vector<double> shortest;
    for (const cost_sample& one : sorted) {
        if (one.bytes == sorted.front().bytes) shortest.push_back(one.ns);
    }
    const double start = detail::median_of(std::move(shortest));

    cost_fit best;
    double least = std::numeric_limits<double>::infinity();
    for (const double extra : {0.0, start, 8 * start}) {
        detail::cost_terms terms{start, extra, per_byte};
        detail::fit_from(sorted, terms);
        std::vector<double> errors;
        for (const cost_sample& one : sorted) errors.push_back(std::abs(detail::relative_error(one, terms)));
        const double usual = detail::median_of(errors);
        double mean = 0;
        for (const double error : errors) mean += std::min(error, 10 * std::max(usual, 0.001));
        if (mean >= least) continue;
        least = mean;
        best = {{terms[0], terms[1], terms[2]}, 0, 0, 0};
        const double far = detail::far_error(sorted, terms);
        double sum = 0;
        for (const double error : errors) {
            if (error >= far) {
                ++best.outliers;
            } else {
                sum += error;
                best.largest_error = std::max(best.largest_error, error);
            }
        }
        best.mean_error = sum / static_cast<double>(errors.size() - best.outliers);
    }
    return best;
}

}  // namespace rdmacoro
