#pragma once

// One collective of a group at all ranks, of any kind, against what each rank must have in the end.

#include <rdmacoro/service/group.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rdmacoro::test {

[[nodiscard]] constexpr std::uint32_t mixed(std::uint32_t a, std::uint32_t b) noexcept {
    std::uint32_t x = (a + 1) * 0x9e3779b1u ^ (b + 1) * 0x85ebca6bu;
    x ^= x >> 15;
    return x * 0x2c1b3c6du;
}

/// A 2 x 2 matrix modulo 2^32.
struct matrix {
    std::array<std::uint32_t, 4> at{1, 0, 0, 1};
    friend bool operator==(const matrix&, const matrix&) = default;
};
/// Associative, not commutative.
struct product {
    matrix operator()(const matrix& a, const matrix& b) const {
        return {{a.at[0] * b.at[0] + a.at[1] * b.at[2], a.at[0] * b.at[1] + a.at[1] * b.at[3],
                 a.at[2] * b.at[0] + a.at[3] * b.at[2], a.at[2] * b.at[1] + a.at[3] * b.at[3]}};
    }
};

/// Commutative, not associative.
struct mixing {
    static constexpr bool commutative = true;
    static constexpr bool associative = false;
    std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return (a + b) * 0x9e3779b1u + 1; }
};

/// Element number `at` of what a rank gives.
template <class T>
[[nodiscard]] T given_by(unsigned rank, std::size_t at) {
    const auto place = static_cast<std::uint32_t>(at);
    if constexpr (std::is_same_v<T, matrix>) {
        return {{mixed(rank, 4 * place), mixed(rank, 4 * place + 1), mixed(rank, 4 * place + 2),
                 mixed(rank, 4 * place + 3)}};
    } else if constexpr (std::is_floating_point_v<T>) {
        return static_cast<T>(mixed(rank, place)) / static_cast<T>(1u << (mixed(place, rank) % 30));
    } else {
        return static_cast<T>(mixed(rank, place));
    }
}

/// The program of all ranks.
struct collective_case {
    collective_kind kind{};
    unsigned root = 0;
    std::size_t elements = 0;  ///< of the whole, or of one rank's block
    bool in_place = false;
    bool uneven = false;
    bool is_reproducible = false;

    /// Elements of that rank's block.
    [[nodiscard]] std::size_t count(unsigned rank) const {
        if (!uneven) return elements;
        return rank % 3 == 1 ? 0 : elements + rank % 4;
    }
    [[nodiscard]] std::vector<std::size_t> counts(unsigned size) const {
        std::vector<std::size_t> all;
        for (unsigned rank = 0; rank < size; ++rank) all.push_back(count(rank));
        return all;
    }
    /// The choice of algorithms of the group.
    [[nodiscard]] collective_shape shape(std::size_t element, unsigned ranks, unsigned hosts, bool in_order,
                                         bool left_fold = false) const {
        collective_shape s;
        s.kind = kind;
        s.elements = kind == collective_kind::barrier || uneven ? 0 : elements;
        s.bytes = s.elements * element;
        s.ranks = ranks;
        s.hosts = hosts;
        s.uneven = uneven;
        s.in_order = in_order;
        s.left_fold = left_fold;
        s.reproducible = is_reproducible;
        return s.for_choice();
    }
    [[nodiscard]] std::string text(std::string_view algorithm, unsigned ranks) const {
        return std::string(name_of(kind)) + " by " + std::string(algorithm) + ", " + std::to_string(ranks) +
               " ranks, root " + std::to_string(root) + ", " + std::to_string(elements) + " elements" +
               (in_place ? ", in place" : "") + (uneven ? ", uneven" : "") +
               (is_reproducible ? ", reproducible" : "");
    }
};

[[nodiscard]] constexpr bool has_root(collective_kind kind) {
    using enum collective_kind;
    return kind == broadcast || kind == scatter || kind == gather || kind == reduce;
}
[[nodiscard]] constexpr bool is_reduction(collective_kind kind) {
    using enum collective_kind;
    return kind == reduce || kind == allreduce || kind == reduce_scatter || kind == scan || kind == exscan;
}
[[nodiscard]] constexpr bool may_be_uneven(collective_kind kind) {
    using enum collective_kind;
    return kind == scatter || kind == gather || kind == allgather || kind == alltoall ||
           kind == reduce_scatter;
}
[[nodiscard]] constexpr bool may_be_in_place(collective_kind kind) {
    return kind != collective_kind::barrier && kind != collective_kind::broadcast;
}

/// Of one kind: for each root and length, with its variants where they are wanted: uneven, in place, reproducible.
[[nodiscard]] inline std::vector<collective_case> cases_of(collective_kind kind,
                                                           const std::vector<unsigned>& roots,
                                                           const std::vector<std::size_t>& lengths,
                                                           bool with_variants) {
    std::vector<collective_case> cases;
    for (const unsigned at : has_root(kind) ? roots : std::vector<unsigned>{0}) {
        for (const std::size_t n : lengths) {
            collective_case one;
            one.kind = kind;
            one.root = at;
            one.elements = n;
            cases.push_back(one);
            if (!with_variants) continue;
            if (may_be_uneven(kind)) {
                cases.push_back(one);
                cases.back().uneven = true;
            }
            if (may_be_in_place(kind)) {
                cases.push_back(one);
                cases.back().in_place = true;
            }
            if (may_be_in_place(kind) && may_be_uneven(kind)) {
                cases.push_back(one);
                cases.back().in_place = cases.back().uneven = true;
            }
            if (is_reduction(kind)) {
                cases.push_back(one);
                cases.back().is_reproducible = true;
            }
            if (kind == collective_kind::barrier) break;
        }
    }
    return cases;
}

/// This rank's part. `entered`: how many ranks have begun it. Ends with what is wrong with the result; empty: nothing.
template <class T, class Op>
task<std::string> perform(group& g, collective_case of, Op op, unsigned& entered) {
    using enum collective_kind;
    const unsigned rank = g.rank();
    const unsigned size = g.size();
    const std::size_t n = of.elements;
    const std::vector<std::size_t> counts = of.counts(size);
    std::size_t total = 0;
    std::vector<std::size_t> offsets;
    for (const std::size_t count : counts) {
        offsets.push_back(total);
        total += count;
    }
    // Elements `from` on of what a rank gives.
    const auto row = [](unsigned of_rank, std::size_t from, std::size_t count) {
        std::vector<T> all;
        all.reserve(count);
        for (std::size_t at = 0; at < count; ++at) all.push_back(given_by<T>(of_rank, from + at));
        return all;
    };
    // The same of all ranks up to, not including, `last`, combined in their order. What all ranks must have is found once.
    struct known {
        unsigned last = 0;
        std::size_t from = 0;
        std::vector<T> row{};
    };
    static known once;
    const auto combined = [&](unsigned last, std::size_t from, std::size_t count) {
        if (last != 0 && once.last == last && once.from == from && once.row.size() == count) return once.row;
        std::vector<T> all = row(0, from, count);
        for (unsigned other = 1; other < last; ++other) {
            for (std::size_t at = 0; at < count; ++at) all[at] = op(all[at], given_by<T>(other, from + at));
        }
        once = {last, from, all};
        return all;
    };
    const T none = given_by<T>(99999, 0);
    std::vector<T> got;
    std::vector<T> wanted;
    ++entered;
    switch (of.kind) {
        case barrier: {
            co_await g.barrier();
            if (entered != size) co_return "left while only " + std::to_string(entered) + " had entered";
            break;
        }
        case broadcast: {
            got = rank == of.root ? row(of.root, 0, n) : std::vector<T>(n, none);
            co_await g.broadcast(got, root(of.root));
            wanted = row(of.root, 0, n);
            break;
        }
        case scatter: {
            const std::vector<T> all = rank == of.root ? row(of.root, 0, total) : std::vector<T>();
            got.assign(counts[rank], none);
            if (of.in_place) {
                if (rank == of.root) got = all;
                if (of.uneven) {
                    co_await g.scatterv(in_place, got, counts, root(of.root));
                } else {
                    co_await g.scatter(in_place, got, root(of.root));
                }
                wanted = rank == of.root ? all : row(of.root, offsets[rank], counts[rank]);
                break;
            }
            if (of.uneven) {
                co_await g.scatterv(all, counts, got, root(of.root));
            } else {
                co_await g.scatter(all, got, root(of.root));
            }
            wanted = row(of.root, offsets[rank], counts[rank]);
            break;
        }
        case gather: {
            const std::vector<T> mine = row(rank, 0, counts[rank]);
            if (rank == of.root) got.assign(total, none);
            if (of.in_place) {
                if (rank == of.root) {
                    std::copy(mine.begin(), mine.end(),
                              got.begin() + static_cast<std::ptrdiff_t>(offsets[rank]));
                } else {
                    got = mine;
                }
                if (of.uneven) {
                    co_await g.gatherv(in_place, got, counts, root(of.root));
                } else {
                    co_await g.gather(in_place, got, root(of.root));
                }
                if (rank != of.root) wanted = mine;
            } else if (of.uneven) {
                co_await g.gatherv(mine, got, counts, root(of.root));
            } else {
                co_await g.gather(mine, got, root(of.root));
            }
            if (rank != of.root) break;
            for (unsigned other = 0; other < size; ++other) {
                for (const T& one : row(other, 0, counts[other])) wanted.push_back(one);
            }
            break;
        }
        case allgather: {
            const std::vector<T> mine = row(rank, 0, counts[rank]);
            got.assign(total, none);
            if (of.in_place) {
                std::copy(mine.begin(), mine.end(), got.begin() + static_cast<std::ptrdiff_t>(offsets[rank]));
                if (of.uneven) {
                    co_await g.allgatherv(in_place, got, counts);
                } else {
                    co_await g.allgather(in_place, got);
                }
            } else if (of.uneven) {
                co_await g.allgatherv(mine, got, counts);
            } else {
                co_await g.allgather(mine, got);
            }
            for (unsigned other = 0; other < size; ++other) {
                for (const T& one : row(other, 0, counts[other])) wanted.push_back(one);
            }
            break;
        }
        case alltoall: {
            // Rank a gives rank b a block of count(a + b) elements: elements 1000 b on of its row.
            const auto between = [&](unsigned a, unsigned b) { return of.count((a + b) % size); };
            std::vector<T> out;
            std::vector<std::size_t> both;
            for (unsigned other = 0; other < size; ++other) {
                both.push_back(between(rank, other));
                for (const T& one : row(rank, 1000 * other, both.back())) out.push_back(one);
                for (const T& one : row(other, 1000 * rank, both.back())) wanted.push_back(one);
            }
            if (of.in_place) {
                got = out;
                if (of.uneven) {
                    co_await g.alltoallv(in_place, got, both);
                } else {
                    co_await g.alltoall(in_place, got);
                }
            } else if (of.uneven) {
                got.assign(wanted.size(), none);
                co_await g.alltoallv(out, both, got, both);
            } else {
                got.assign(wanted.size(), none);
                co_await g.alltoall(out, got);
            }
            break;
        }
        case reduce: {
            const std::vector<T> mine = row(rank, 0, n);
            if (of.in_place) {
                got = mine;
                if (of.is_reproducible) {
                    co_await g.reduce(in_place, got, op, root(of.root), reproducible);
                } else {
                    co_await g.reduce(in_place, got, op, root(of.root));
                }
                wanted = rank == of.root ? combined(size, 0, n) : mine;
            } else {
                if (rank == of.root) got.assign(n, none);
                if (of.is_reproducible) {
                    co_await g.reduce(mine, got, op, root(of.root), reproducible);
                } else {
                    co_await g.reduce(mine, got, op, root(of.root));
                }
                if (rank == of.root) wanted = combined(size, 0, n);
                if (mine != row(rank, 0, n)) co_return "its contribution was changed";
            }
            break;
        }
        case allreduce: {
            const std::vector<T> mine = row(rank, 0, n);
            got = of.in_place ? mine : std::vector<T>(n, none);
            if (of.in_place && of.is_reproducible) {
                co_await g.allreduce(in_place, got, op, reproducible);
            } else if (of.in_place) {
                co_await g.allreduce(in_place, got, op);
            } else if (of.is_reproducible) {
                co_await g.allreduce(mine, got, op, reproducible);
            } else {
                co_await g.allreduce(mine, got, op);
            }
            wanted = combined(size, 0, n);
            if (mine != row(rank, 0, n)) co_return "its contribution was changed";
            break;
        }
        case reduce_scatter: {
            const std::vector<T> mine = row(rank, 0, total);
            got.assign(counts[rank], none);
            if (of.in_place) {
                // Its block is the result, and the others are as they were.
                got = mine;
                if (of.uneven) {
                    co_await g.reduce_scatterv(in_place, got, counts, op);
                } else {
                    co_await g.reduce_scatter(in_place, got, op);
                }
                wanted = mine;
                const std::vector<T> own = combined(size, offsets[rank], counts[rank]);
                std::copy(own.begin(), own.end(),
                          wanted.begin() + static_cast<std::ptrdiff_t>(offsets[rank]));
                break;
            }
            if (of.uneven && of.is_reproducible) {
                co_await g.reduce_scatterv(mine, counts, got, op, reproducible);
            } else if (of.uneven) {
                co_await g.reduce_scatterv(mine, counts, got, op);
            } else if (of.is_reproducible) {
                co_await g.reduce_scatter(mine, got, op, reproducible);
            } else {
                co_await g.reduce_scatter(mine, got, op);
            }
            wanted = combined(size, offsets[rank], counts[rank]);
            if (mine != row(rank, 0, total)) co_return "its contribution was changed";
            break;
        }
        case scan:
        case exscan: {
            const std::vector<T> mine = row(rank, 0, n);
            got = of.in_place ? mine : std::vector<T>(n, none);
            if (of.kind == scan) {
                if (of.in_place) {
                    co_await g.scan(in_place, got, op);
                } else if (of.is_reproducible) {
                    co_await g.scan(mine, got, op, reproducible);
                } else {
                    co_await g.scan(mine, got, op);
                }
                wanted = combined(rank + 1, 0, n);
            } else {
                if (of.in_place) {
                    co_await g.exscan(in_place, got, op);
                } else if (of.is_reproducible) {
                    co_await g.exscan(mine, got, op, reproducible);
                } else {
                    co_await g.exscan(mine, got, op);
                }
                if (rank == 0) co_return {};
                wanted = combined(rank, 0, n);
            }
            if (mine != row(rank, 0, n)) co_return "its contribution was changed";
            break;
        }
    }
    if (got == wanted) co_return {};
    std::size_t at = 0;
    while (at < got.size() && at < wanted.size() && got[at] == wanted[at]) ++at;
    co_return "rank " + std::to_string(rank) + " has something else from element " + std::to_string(at) +
        " on, of " + std::to_string(got.size());
}

/// Whether an algorithm is for ranks on several hosts alone.
[[nodiscard]] constexpr bool is_for_hosts(std::string_view algorithm) {
    return algorithm == "hierarchical" || algorithm == "ring_by_host";
}

/// The algorithm that carries the collectives of its kind that it admits, at every group of the test that chooses by `by_force`.
inline const algorithm* forced_algorithm = nullptr;
inline collective_kind forced_kind{};
/// How many ranks have run it.
inline std::size_t forced_runs = 0;
inline const algorithm* by_force(const collective_shape& shape) {
    if (forced_algorithm == nullptr || shape.kind != forced_kind || !forced_algorithm->admits(shape))
        return nullptr;
    ++forced_runs;
    return forced_algorithm;
}

}  // namespace rdmacoro::test
