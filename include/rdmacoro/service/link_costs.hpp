// link_costs: what messages between two ranks cost, as a model.
#pragma once

#include <cstddef>

namespace rdmacoro {

/// The time of a message against its length: T(n) = start + extra (x / (start + x)) + x, where x = n ns_per_byte. The third term is what a message
/// of middle length costs above the line through the shortest and the longest ones: protocols change there, caches fill. Source: Taboada, "Design of
/// Efficient Java Communications for High Performance Computing", thesis, A Coruña 2009, chapter 2.
struct linear_cost {
    double start_ns = 0;     ///< of no bytes
    double extra_ns = 0;     ///< the third term, for long messages
    double ns_per_byte = 0;  ///< for long messages

    /// In nanoseconds, of so many bytes.
    [[nodiscard]] constexpr double at(double bytes) const noexcept {
        const double carried = bytes * ns_per_byte;
        const double whole = start_ns + carried;
        return whole > 0 ? whole + extra_ns * (carried / whole) : 0;
    }
};

/// The costs of a link, by which an algorithm is chosen. `tools/tune` measures it.
struct link_costs {
    linear_cost message{};         ///< from a rank to another, until it is there
    linear_cost exchange{};        ///< each of two ranks sends to the other, until both have it
    linear_cost next{};            ///< one more message where a rank has several under way
    double touch_ns_per_byte = 0;  ///< to combine, or to copy
};

/// Shared memory between two processes, as `tools/tune` measured it on a virtual machine with two cores, while others used them.
inline constexpr link_costs shm_costs{{350, 680, 0.45}, {440, 0, 0.53}, {150, 0, 0.44}, 0.02};
/// TCP over the loopback of the same machine.
inline constexpr link_costs tcp_costs{{6000, 21'000, 0.26}, {8700, 17'000, 0.41}, {1100, 3100, 0.25}, 0.02};

}  // namespace rdmacoro
