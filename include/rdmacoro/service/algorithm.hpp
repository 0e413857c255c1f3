// algorithm: what a collective's algorithm is, and by what it is chosen.
#pragma once

#include <rdmacoro/coro/task.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rdmacoro {

class collective;

/// The collectives of a group.
enum class collective_kind : std::uint8_t {
    barrier,
    broadcast,
    scatter,
    gather,
    allgather,
    alltoall,
    reduce,
    allreduce,
    reduce_scatter,
    scan,
    exscan,
};
inline constexpr std::size_t collective_kinds = 11;  ///< how many there are

/// The name of a kind: "allreduce".
[[nodiscard]] constexpr std::string_view name_of(collective_kind kind) noexcept {
    constexpr std::array<std::string_view, collective_kinds> names{
        "barrier", "broadcast", "scatter",        "gather", "allgather", "alltoall",
        "reduce",  "allreduce", "reduce_scatter", "scan",   "exscan"};
    return names[static_cast<std::size_t>(kind)];
}

namespace detail {
/// The name of the function of `group`: "alltoallv" where blocks have lengths of their own.
[[nodiscard]] constexpr std::string_view function_name(collective_kind kind, bool uneven) noexcept {
    if (!uneven) return name_of(kind);
    switch (kind) {
        case collective_kind::scatter: return "scatterv";
        case collective_kind::gather: return "gatherv";
        case collective_kind::allgather: return "allgatherv";
        case collective_kind::alltoall: return "alltoallv";
        case collective_kind::reduce_scatter: return "reduce_scatterv";
        default: return name_of(kind);
    }
}
}  // namespace detail

/// The properties by which an algorithm is chosen. All ranks see the same.
struct collective_shape {
    collective_kind kind{};  ///< which collective
    /// Of one rank's block; of `broadcast`, `reduce`, `allreduce`, scans: of the whole. 0 where the length must not decide: where blocks
    /// differ, which not every rank knows, and where the result is to be reproducible.
    std::size_t bytes = 0;
    std::size_t elements = 0;  ///< the same in elements
    unsigned ranks = 1;        ///< of the group
    unsigned hosts = 1;        ///< that they are on
    bool in_turn = false;      ///< ranks of one host do not follow each other
    bool uneven = false;       ///< blocks differ in length
    bool in_order =
        false;  ///< the operation is not commutative: contributions are combined in the order of ranks
    bool reproducible = false;  ///< the same bits whatever the length and the timing
    /// The operation is not associative: contributions are combined one after the other, from rank 0 on. Then `in_order`, too.
    bool left_fold = false;

    /// The same, without its length where that must not decide.
    [[nodiscard]] constexpr collective_shape for_choice() const noexcept {
        collective_shape without = *this;
        if (uneven || reproducible) without.bytes = without.elements = 0;
        return without;
    }
};

/// An algorithm for one kind of collective.
struct algorithm {
    std::string_view name{};  ///< as `explain` and the environment name it
    bool (*admits)(const collective_shape& shape) =
        nullptr;                              ///< whether it can, and wants to, carry this one
    task<> (*run)(collective& of) = nullptr;  ///< this rank's part
    /// It reads this rank's contribution where the caller has it, by `collective::contribution` and `place_own`. Else that was copied
    /// to where the result will be.
    bool from_input = false;
    std::array<std::string_view, 2> steps{};  ///< where it is two others, one after the other: their names
};

/// All algorithms of a kind, without their limits: by the names that the environment (`RDMACORO_ALLREDUCE=ring`) and `explain` know.
[[nodiscard]] std::span<const algorithm> algorithms_of(collective_kind kind);
/// The algorithm of that name, or nullptr.
[[nodiscard]] const algorithm* find_algorithm(collective_kind kind, std::string_view name);
/// Which algorithm carries a collective; nullptr: none does.
using algorithm_choice = const algorithm* (*)(const collective_shape& shape);

}  // namespace rdmacoro
