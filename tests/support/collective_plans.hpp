#pragma once

// All algorithms of all kinds over a simulated network, with what they carried and what went wrong.

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <bit>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// Which algorithms have run, for how many ranks.
using seen_runs = std::map<std::pair<std::string, std::string>, std::set<unsigned>>;

struct collective_findings {
    std::vector<std::string> wrong;
    std::size_t done = 0;
    seen_runs seen;
};

template <class T, class Op>
task<> try_case(ranks<sim>& all, const collective_case& of, const algorithm& by, collective_findings& found) {
    forced_algorithm = &by;
    forced_kind = of.kind;
    forced_runs = 0;
    for (unsigned rank = 0; rank < all.size(); ++rank) all.state(rank).choose_by(&by_force);
    unsigned entered = 0;
    const auto body = [&](group& g) -> task<> {
        const std::string wrong = co_await perform<T>(g, of, Op{}, entered);
        if (!wrong.empty() && found.wrong.size() < 20)
            found.wrong.push_back(of.text(by.name, all.size()) + ": " + wrong);
    };
    std::string failed;
    try {
        co_await all.each(body);
    } catch (const std::exception& e) {
        failed = e.what();
    }
    if (!failed.empty()) {
        found.wrong.push_back(of.text(by.name, all.size()) + ": " + failed);
        throw std::runtime_error(found.wrong.back());
    }
    if (all.size() > 1 && forced_runs != all.size())
        found.wrong.push_back(of.text(by.name, all.size()) + ": another algorithm ran");
    ++found.done;
    found.seen[{std::string(name_of(of.kind)), std::string(by.name)}].insert(all.size());
}

/// Every algorithm that admits it, with every variant of each kind.
struct collective_plan {
    std::vector<unsigned> roots;
    std::vector<std::size_t> lengths;
    unsigned hosts = 1;
    bool variants = true;  // uneven, in place, in order, reproducible
    std::string only{};    // not empty: the algorithm of that name
};

template <class T, class Op>
task<> try_kind(ranks<sim>& all, collective_kind kind, const collective_plan& how, bool in_order,
                collective_findings& found) {
    const std::vector<collective_case> cases = cases_of(kind, how.roots, how.lengths, how.variants);
    for (const algorithm& by : algorithms_of(kind)) {
        if (!how.only.empty() && by.name != how.only) continue;
        for (const collective_case& one : cases) {
            if (!by.admits(one.shape(sizeof(T), all.size(), how.hosts, in_order))) continue;
            co_await try_case<T, Op>(all, one, by, found);
        }
    }
}

inline task<> try_all_kinds(ranks<sim>& all, const collective_plan& how, collective_findings& found) {
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const auto kind = static_cast<collective_kind>(which);
        co_await try_kind<std::uint32_t, std::plus<>>(all, kind, how, false, found);
        if (is_reduction(kind) && how.variants)
            co_await try_kind<matrix, product>(all, kind, how, true, found);
    }
}

inline task<> open_unchecked(ranks<sim>& all) {
    co_await all.open();
    for (unsigned rank = 0; rank < all.size(); ++rank) {
        all.state(rank).checks = false;
    }
}

/// A world in which messages of different links take any order.
inline sim_world_options unordered(std::uint64_t seed) {
    sim_world_options o;
    o.seed = seed;
    o.jitter = std::chrono::microseconds(3);
    o.faults.delayed = 20000;
    o.faults.delay = std::chrono::microseconds(30);
    return o;
}

[[nodiscard]] inline std::vector<unsigned> some_roots(unsigned size) {
    std::vector<unsigned> all{0};
    for (const unsigned one : {size / 2, size - 1}) {
        if (one != all.back()) all.push_back(one);
    }
    return all;
}
[[nodiscard]] inline std::vector<std::size_t> short_lengths(unsigned size) {
    std::set<std::size_t> all{0, 1, size - 1, size, size + 1};
    return {all.begin(), all.end()};
}

inline void try_ranks(unsigned size, const collective_plan& how, std::uint64_t seed,
                      const node_options& options, collective_findings& found,
                      std::vector<unsigned> hosts = {}) {
    run_simulated(unordered(seed), [&](sim_world& world) -> task<> {
        sim_options network;
        network.world = &world;
        ranks<sim> all(size, hosts, options, network);
        co_await open_unchecked(all);
        co_await try_all_kinds(all, how, found);
    });
}

/// Every message with a payload waits for its receive.
inline node_options by_rendezvous() {
    node_options o = ranks<sim>::usual();
    o.mailbox.limits.eager_limit = 0;
    o.mailbox.limits.rendezvous_limit = 0;
    return o;
}
/// Messages come in pieces, into a store that has no room for them.
inline node_options short_of_memory(const message_pool& pool) {
    node_options o = ranks<sim>::usual();
    o.mailbox.limits.rendezvous_limit = std::size_t{1} << 40;
    o.mailbox.unexpected_bytes = 256u << 10;
    o.mailbox.pool = &pool;
    return o;
}

/// All algorithms, those for several hosts included where they can run, were seen with all these numbers of ranks.
inline void check_complete(const collective_findings& found, unsigned least, unsigned most, bool hosts) {
    std::string missing;
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const auto kind = static_cast<collective_kind>(which);
        for (const algorithm& by : algorithms_of(kind)) {
            if ((by.name == "hierarchical") != hosts) continue;
            const auto at = found.seen.find({std::string(name_of(kind)), std::string(by.name)});
            for (unsigned size = least; size <= most; ++size) {
                collective_case any;
                any.kind = kind;
                any.elements = 10'000;
                if (!by.admits(any.shape(4, size, hosts ? 2 : 1, false))) continue;
                if (at == found.seen.end() || !at->second.contains(size))
                    missing += std::string(name_of(kind)) + " by " + std::string(by.name) + " with " +
                               std::to_string(size) + " ranks\n";
            }
        }
    }
    CHECK(missing == "");
}
inline void check_right(const collective_findings& found) {
    std::string all;
    for (const std::string& one : found.wrong) all += one + "\n";
    CHECK(all == "");
    CHECK(found.done > 0);
}

}  // namespace rdmacoro::test
