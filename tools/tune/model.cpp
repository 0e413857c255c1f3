#include "model.hpp"

#include "../pingpong/failure.hpp"

#include <rdmacoro/service/detail/choice_limits.hpp>

#include <cmath>
#include <utility>

namespace tune {

namespace rc = rdmacoro;

fitted_link fit_link(link_samples samples) {
    fitted_link made;
    for (std::size_t kind = 0; kind < 3; ++kind) {
        try {
            made.fits[kind] = rc::fit_cost(samples.of[kind]);
        } catch (const rc::error& e) {
            throw pingpong::run_error(samples.transport + ", " + std::string(names[kind]) + ": " + e.what());
        }
    }
    for (std::size_t kind = 0; kind < 3; ++kind) {
        const rc::linear_cost& cost = made.fits[kind].cost;
        if (!std::isfinite(cost.start_ns) || !std::isfinite(cost.extra_ns) ||
            !std::isfinite(cost.ns_per_byte))
            throw pingpong::run_error(samples.transport + ", " + std::string(names[kind]) +
                                      ": no finite cost fits the measurements");
    }
    made.costs = {made.fits[0].cost, made.fits[1].cost, made.fits[2].cost, samples.touch_ns_per_byte};
    made.samples = std::move(samples);
    return made;
}

std::vector<choice> choose_all(const std::vector<unsigned>& ranks, unsigned hosts,
                               const rc::link_costs& within, const rc::link_costs& between) {
    constexpr std::size_t longest = std::size_t{64} << 20;
    std::vector<choice> all;
    const auto at = [&](rc::collective_kind kind, unsigned of, std::size_t bytes) {
        rc::collective_shape shape;
        shape.kind = kind;
        shape.bytes = bytes;
        shape.elements = bytes / 8;
        shape.ranks = of;
        shape.hosts = hosts < of ? hosts : of;
        const rc::cheapest best = rc::cheapest_algorithm(shape, within, between);
        return choice{kind, of, bytes, best.found, best.ns, best.direct, best.direct_ns};
    };
    for (std::size_t which = 0; which < rc::collective_kinds; ++which) {
        const auto kind = static_cast<rc::collective_kind>(which);
        for (const unsigned of : ranks) {
            const std::size_t to = kind == rc::collective_kind::barrier ? 0 : longest;
            rc::detail::for_each_limit(
                to, [&](std::size_t bytes) { return at(kind, of, bytes).by; },
                [&](std::size_t bytes, const rc::costed_algorithm*) { all.push_back(at(kind, of, bytes)); });
        }
    }
    return all;
}

}  // namespace tune
