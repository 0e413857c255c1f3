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
    // How often what the plan is for has happened, in all and by algorithm.
    std::map<std::pair<std::string, std::string>, std::uint64_t> happened;
    std::uint64_t waits = 0;  // for credit or room
};

template <class T, class Op>
task<> try_case(ranks<sim>& all, const collective_case& of, const algorithm& by,
                std::uint64_t metrics::* counted, collective_findings& found) {
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
    const std::uint64_t before = counted != nullptr ? all.sum_of(counted) : 0;
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
    if (counted != nullptr)
        found.happened[{std::string(name_of(of.kind)), std::string(by.name)}] += all.sum_of(counted) - before;
    found.seen[{std::string(name_of(of.kind)), std::string(by.name)}].insert(all.size());
}

/// Every algorithm that admits it, with every variant of each kind.
struct collective_plan {
    std::vector<unsigned> roots;
    std::vector<std::size_t> lengths;
    unsigned hosts = 1;
    bool in_turn = false;                        // ranks of one host do not follow each other
    bool variants = true;                        // uneven, in place, in order, reproducible
    std::string only{};                          // not empty: the algorithm of that name
    std::uint64_t metrics::* counted = nullptr;  // what must happen in each algorithm
};

template <class T, class Op>
task<> try_kind(ranks<sim>& all, collective_kind kind, const collective_plan& how,
                collective_findings& found) {
    const bool left_fold = !is_associative<Op, T>;
    const bool in_order = left_fold || !is_commutative<Op, T>;
    const std::vector<collective_case> cases = cases_of(kind, how.roots, how.lengths, how.variants);
    for (const algorithm& by : algorithms_of(kind)) {
        if (!how.only.empty() && by.name != how.only) continue;
        if (how.hosts > 1 && !is_for_hosts(by.name)) continue;
        for (const collective_case& one : cases) {
            collective_shape shape = one.shape(sizeof(T), all.size(), how.hosts, in_order, left_fold);
            shape.in_turn = how.in_turn;
            if (!by.admits(shape)) continue;
            co_await try_case<T, Op>(all, one, by, how.counted, found);
        }
    }
}

inline task<> try_all_kinds(ranks<sim>& all, const collective_plan& how, collective_findings& found) {
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const auto kind = static_cast<collective_kind>(which);
        co_await try_kind<std::uint32_t, std::plus<>>(all, kind, how, found);
        if (is_reduction(kind) && how.variants) {
            co_await try_kind<matrix, product>(all, kind, how, found);
            co_await try_kind<std::uint32_t, mixing>(all, kind, how, found);
        }
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
        found.waits += all.sum_of(&metrics::credit_waits) + all.sum_of(&metrics::room_waits);
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
            if (is_for_hosts(by.name) != hosts) continue;
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
/// What the plan counts has happened in each algorithm that moves elements, of at least so many.
inline void check_happened(const collective_findings& found, std::size_t least) {
    std::string never;
    for (const auto& [which, sizes] : found.seen) {
        const auto at = found.happened.find(which);
        if (which.first != "barrier" && (at == found.happened.end() || at->second == 0))
            never += which.first + " by " + which.second + "\n";
    }
    CHECK(never == "");
    CHECK(found.seen.size() >= least);
}
inline void check_right(const collective_findings& found) {
    std::string all;
    for (const std::string& one : found.wrong) all += one + "\n";
    CHECK(all == "");
    CHECK(found.done > 0);
}

}  // namespace rdmacoro::test
