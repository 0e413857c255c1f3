// From measured links to the algorithms that cost the least.
#pragma once

#include "measure.hpp"

#include <rdmacoro/service/collectives_by_costs.hpp>
#include <rdmacoro/service/cost_fit.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace tune {

/// A link and its model.
struct fitted_link {
    link_samples samples;
    std::array<rdmacoro::cost_fit, 3> fits{};  ///< by `what`
    rdmacoro::link_costs costs{};
};

/// Throws `pingpong::run_error` where a cost has too few measurements, or none that is finite fits them.
[[nodiscard]] fitted_link fit_link(link_samples samples);

/// From this length on, up to the next one's, an algorithm costs the least.
struct choice {
    rdmacoro::collective_kind kind{};
    unsigned ranks = 0;
    std::size_t from = 0;  ///< bytes
    const rdmacoro::costed_algorithm* by = nullptr;
    double ns = 0;                                       ///< at `from`
    const rdmacoro::costed_algorithm* direct = nullptr;  ///< the best that is no substitute
    double direct_ns = 0;
};

/// For elements of 8 bytes, up to 64 MiB: of each kind, for each number of ranks.
[[nodiscard]] std::vector<choice> choose_all(const std::vector<unsigned>& ranks, unsigned hosts,
                                             const rdmacoro::link_costs& within,
                                             const rdmacoro::link_costs& between);

}  // namespace tune
