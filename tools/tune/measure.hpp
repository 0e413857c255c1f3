// Measures messages between two ranks, in two processes, as the algorithms of collectives send them.
#pragma once

#include <rdmacoro/service/cost_fit.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tune {

/// The measured quantities: the terms of `rdmacoro::link_costs`.
enum class what : unsigned { message, exchange, next };
inline constexpr std::array<std::string_view, 3> names{"message", "exchange", "next"};

struct plan {
    std::vector<std::size_t> sizes;
    std::size_t rounds = 12;
    double seconds = 0.001;  ///< of one loop, about
    std::array<int, 2> cpus{};
    bool spins = true;  ///< the two processes have a CPU each
    std::chrono::seconds limit{600};
};

/// The lower quartile of the rounds for each size.
struct link_samples {
    std::string transport;
    std::array<std::vector<rdmacoro::cost_sample>, 3> of;  ///< by `what`
    double touch_ns_per_byte = 0;
};

/// The transports of this build.
[[nodiscard]] std::vector<std::string> transport_names();

/// `progress` is told what is measured now. Throws `pingpong::run_error` where the other process ends, or fewer than three sizes have
/// costs that stand out of the noise, and what the transport throws.
[[nodiscard]] link_samples measure_link(const std::string& transport, const plan& how,
                                        const std::function<void(const std::string&)>& progress);

}  // namespace tune
