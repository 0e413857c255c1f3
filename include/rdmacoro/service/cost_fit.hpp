// cost_fit: from measured times to a linear_cost.
#pragma once

#include <rdmacoro/service/link_costs.hpp>

#include <cstddef>
#include <span>

namespace rdmacoro {

/// One measurement.
struct cost_sample {
    std::size_t bytes = 0;  ///< of the message
    double ns = 0;          ///< that it took
};

/// A model of measurements, and how far it is from them.
struct cost_fit {
    linear_cost cost{};        ///< the model
    double mean_error = 0;     ///< |measured - model| / measured, the mean of those that are no outliers
    double largest_error = 0;  ///< the largest of them
    std::size_t outliers = 0;  ///< measurements that the model leaves out: something else happened there
};

/// The model with the least relative errors: short and long messages count alike. Measurements far from all others (more than 4.7 times their
/// usual distance, which is taken to be 1 % at least) do not count. No term is negative. Needs three lengths; several measurements of one length are welcome.
/// Throws `errc::invalid_argument` for fewer, and for a time that is not above 0.
[[nodiscard]] cost_fit fit_cost(std::span<const cost_sample> samples);

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/cost_fit.ipp>
#endif
