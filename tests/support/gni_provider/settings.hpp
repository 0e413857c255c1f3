// The settings from the environment, and the record of violations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace stand_in {

/// In which order completions are handed up (RDMACORO_STAND_IN_ORDER).
enum class completion_order {
    hardware,  ///< as the hardware may: transmissions in any order; receives of long messages late
    any,       ///< receives in any order, too, which FI_ORDER_NONE allows
    kept,      ///< as they come from below
};

struct settings {
    std::string over = "tcp;ofi_rxm";  ///< the provider below: RDMACORO_STAND_IN_OVER
    std::uint64_t seed = 1;            ///< of the random numbers: RDMACORO_STAND_IN_SEED
    std::size_t registrations;         ///< the most a domain may hold: RDMACORO_STAND_IN_MR_CNT
    completion_order order = completion_order::hardware;
};

/// Reads the environment anew: a test sets it and then opens a domain.
[[nodiscard]] settings read_settings();

/// Writes one line, "stand-in NAME: RULE: WHAT", to standard error and behind the file that RDMACORO_STAND_IN_LOG names.
/// Answers -`error`.
[[gnu::format(printf, 3, 4)]] int violated(const char* rule, int error, const char* format, ...);

}  // namespace stand_in
