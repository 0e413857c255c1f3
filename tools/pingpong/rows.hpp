// The rows of the table, before they are measured.
#pragma once

#include "control.hpp"
#include "options.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pingpong {

class peer;

struct row_request {
    test_kind test;
    std::size_t bytes;
    std::uint64_t window;
    std::uint64_t buffers = 1;
};

/// All rows, tests first.
[[nodiscard]] std::vector<row_request> rows_of(const options& asked);

/// Checks that every row can be measured, before the first is. Throws `run_error`.
void check_rows(const peer& over, const options& asked, const std::vector<row_request>& rows);

/// How many messages come to `seconds`, when `count` took `took_s`: a multiple of `window`, and not more than there is
/// memory for samples.
[[nodiscard]] std::uint64_t count_for(double seconds, std::uint64_t count, double took_s,
                                      std::uint64_t window);

[[noreturn]] void fail_verification(const row_request& row, const exchange_message& plan,
                                    const findings& found, const char* where);

}  // namespace pingpong
