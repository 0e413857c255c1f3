#include <rdmacoro/service/detail/algorithms.hpp>

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <bit>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Which algorithms have run, for how many ranks.
using seen_runs = std::map<std::pair<std::string, std::string>, std::set<unsigned>>;

struct findings {
    std::vector<std::string> wrong;
    std::size_t done = 0;
    seen_runs seen;
};

template <class T, class Op>
task<> try_case(ranks<sim>& all, const collective_case& of, const algorithm& by, findings& found) {
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
struct plan {
    std::vector<unsigned> roots;
    std::vector<std::size_t> lengths;
    unsigned hosts = 1;
    bool variants = true;  // uneven, in place, in order, reproducible
    std::string only{};    // not empty: the algorithm of that name
};

template <class T, class Op>
task<> try_kind(ranks<sim>& all, collective_kind kind, const plan& how, bool in_order, findings& found) {
    std::vector<collective_case> cases;
    const std::vector<unsigned> roots = has_root(kind) ? how.roots : std::vector<unsigned>{0};
    for (const unsigned at : roots) {
        for (const std::size_t n : how.lengths) {
            collective_case one;
            one.kind = kind;
            one.root = at;
            one.elements = n;
            cases.push_back(one);
            if (!how.variants) continue;
            if (may_be_uneven(kind)) {
                collective_case other = one;
                other.uneven = true;
                cases.push_back(other);
            }
            if (may_be_in_place(kind)) {
                collective_case other = one;
                other.in_place = true;
                cases.push_back(other);
            }
            if (is_reduction(kind) && kind != collective_kind::scan && kind != collective_kind::exscan) {
                collective_case other = one;
                other.is_reproducible = true;
                cases.push_back(other);
            }
            if (kind == collective_kind::barrier) break;
        }
    }
    for (const algorithm& by : algorithms_of(kind)) {
        if (!how.only.empty() && by.name != how.only) continue;
        for (const collective_case& one : cases) {
            if (!by.admits(one.shape(sizeof(T), all.size(), how.hosts, in_order))) continue;
            co_await try_case<T, Op>(all, one, by, found);
        }
    }
}

task<> try_all_kinds(ranks<sim>& all, const plan& how, findings& found) {
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const auto kind = static_cast<collective_kind>(which);
        co_await try_kind<std::uint32_t, std::plus<>>(all, kind, how, false, found);
        if (is_reduction(kind) && how.variants)
            co_await try_kind<matrix, product>(all, kind, how, true, found);
    }
}

task<> open(ranks<sim>& all) {
    co_await all.open();
    for (unsigned rank = 0; rank < all.size(); ++rank) {
        all.state(rank).checks = false;
    }
}

/// A world in which messages of different links take any order.
sim_world_options unordered(std::uint64_t seed) {
    sim_world_options o;
    o.seed = seed;
    o.jitter = 3us;
    o.faults.delayed = 20000;
    o.faults.delay = 30us;
    return o;
}

[[nodiscard]] std::vector<unsigned> some_roots(unsigned size) {
    std::vector<unsigned> all{0};
    for (const unsigned one : {size / 2, size - 1}) {
        if (one != all.back()) all.push_back(one);
    }
    return all;
}
[[nodiscard]] std::vector<std::size_t> short_lengths(unsigned size) {
    std::set<std::size_t> all{0, 1, size - 1, size, size + 1};
    return {all.begin(), all.end()};
}

void try_ranks(unsigned size, const plan& how, std::uint64_t seed, const node_options& options,
               findings& found, std::vector<unsigned> hosts = {}) {
    run_simulated(unordered(seed), [&](sim_world& world) -> task<> {
        sim_options network;
        network.world = &world;
        ranks<sim> all(size, hosts, options, network);
        co_await open(all);
        co_await try_all_kinds(all, how, found);
    });
}

/// Every message with a payload waits for its receive.
node_options by_rendezvous() {
    node_options o = ranks<sim>::usual();
    o.mailbox.limits.eager_limit = 0;
    o.mailbox.limits.rendezvous_limit = 0;
    return o;
}
/// Messages come in pieces, into a store that has no room for them.
node_options short_of_memory(const message_pool& pool) {
    node_options o = ranks<sim>::usual();
    o.mailbox.limits.rendezvous_limit = std::size_t{1} << 40;
    o.mailbox.unexpected_bytes = 256u << 10;
    o.mailbox.pool = &pool;
    return o;
}

/// All algorithms, those for several hosts included where they can run, were seen with all these numbers of ranks.
void check_complete(const findings& found, unsigned least, unsigned most, bool hosts) {
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
void check_right(const findings& found) {
    std::string all;
    for (const std::string& one : found.wrong) all += one + "\n";
    CHECK(all == "");
    CHECK(found.done > 0);
}

}  // namespace

TEST_CASE(
    "every algorithm gives every rank what it must have, for 1 to 17 ranks, whatever the order of events") {
    findings found;
    for (unsigned size = 1; size <= 17; ++size) {
        plan how;
        how.roots = some_roots(size);
        how.lengths = short_lengths(size);
        try_ranks(size, how, size, ranks<sim>::usual(), found);
    }
    check_right(found);
    check_complete(found, 2, 17, false);
}

TEST_CASE("algorithms in two levels give the same wherever the ranks are") {
    findings found;
    for (unsigned size = 3; size <= 17; ++size) {
        plan how;
        how.roots = some_roots(size);
        how.lengths = short_lengths(size);
        how.hosts = 2;
        how.only = "hierarchical";
        std::vector<unsigned> halves, turns, threes;
        for (unsigned rank = 0; rank < size; ++rank) {
            halves.push_back(rank < size / 2 ? 0 : 1);
            turns.push_back(rank % 2);
            threes.push_back(rank / 3);
        }
        try_ranks(size, how, size, ranks<sim>::usual(), found, halves);
        try_ranks(size, how, 100 + size, ranks<sim>::usual(), found, turns);
        how.hosts = threes.back() + 1;
        if (how.hosts > 1) try_ranks(size, how, 200 + size, ranks<sim>::usual(), found, threes);
    }
    check_right(found);
    check_complete(found, 3, 17, true);
}

TEST_CASE("algorithms carry long messages, which no buffer holds") {
    findings found;
    for (const unsigned size : {2u, 3u, 5u, 8u}) {
        plan how;
        how.roots = {size - 1};
        how.lengths = {(64u << 10) / sizeof(std::uint32_t), 20'000 + size};
        how.variants = size == 5;
        try_ranks(size, how, size, ranks<sim>::usual(), found);
    }
    check_right(found);
}

TEST_CASE("no algorithm relies on a message being buffered: every one by rendezvous") {
    findings found;
    for (unsigned size = 2; size <= 17; ++size) {
        plan how;
        how.roots = {size / 2};
        how.lengths = {1, size + 1};
        how.variants = size % 4 == 3;
        try_ranks(size, how, 1000 + size, by_rendezvous(), found);
    }
    check_right(found);
    check_complete(found, 2, 17, false);
}

TEST_CASE("no algorithm relies on room for its messages: all with a store that is too small for them") {
    findings found;
    for (const unsigned size : {2u, 3u, 4u, 5u, 6u, 8u}) {
        const message_pool pool(64u << 10);
        plan how;
        how.roots = {size - 1};
        how.lengths = {80'000 + size};
        how.variants = false;
        try_ranks(size, how, 2000 + size, short_of_memory(pool), found);
    }
    check_right(found);
}
