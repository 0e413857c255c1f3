// Message sizes as a user writes them: 8,1K,1M or 1:64M.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pingpong {

/// The sizes that a list of sizes and ranges names, in its order. A size is a number of bytes with an optional K, M or G
/// (powers of 1024); FROM:TO is FROM and its doublings up to TO. Throws `usage_error`, which names the faulty part.
[[nodiscard]] std::vector<std::size_t> parse_sizes(std::string_view list);

/// "8", "64K", "1M": exact, in the form that `parse_sizes` reads.
[[nodiscard]] std::string size_text(std::size_t bytes);

}  // namespace pingpong
