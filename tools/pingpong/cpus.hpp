// Which CPUs this process may use, and staying on one.
#pragma once

#include <string>
#include <vector>

namespace pingpong {

[[nodiscard]] std::vector<int> usable_cpus();

/// The CPUs of --cpus: one, or one for each side. Throws `usage_error` when one is not a number or may not be used here.
[[nodiscard]] std::vector<int> parse_cpus(const std::string& list);

/// Keeps this process on one CPU. Throws.
void pin_to(int cpu);

}  // namespace pingpong
