#include "model.hpp"

#include "../pingpong/failure.hpp"

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
            choice before = at(kind, of, 0);
            all.push_back(before);
            if (kind == rc::collective_kind::barrier) continue;
            for (std::size_t bytes = 8; bytes <= longest; bytes *= 2) {
                choice now = at(kind, of, bytes);
                if (now.by == before.by) continue;
                // The limit is between the length before and this one.
                std::size_t low = bytes / 2 / 8;
                std::size_t high = bytes / 8;
                while (low + 1 < high) {
                    const std::size_t middle = low + (high - low) / 2;
                    (at(kind, of, middle * 8).by == now.by ? high : low) = middle;
                }
                before = at(kind, of, high * 8);
                all.push_back(before);
            }
        }
    }
    return all;
}

}  // namespace tune
