// Which CPUs this process may use, and staying on one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pingpong {

[[nodiscard]] std::vector<int> usable_cpus();

/// The CPUs of --cpus: one, or `threads` for each side. Throws `usage_error` when one is not a number or may not be used here.
[[nodiscard]] std::vector<int> parse_cpus(const std::string& list, std::size_t threads = 1);

/// Keeps this thread, and those that it starts, on one CPU. Throws.
void pin_to(int cpu);

}  // namespace pingpong
