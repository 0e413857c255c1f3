// From the times of several rounds to one figure.
#pragma once

#include <cstddef>
#include <vector>

namespace tune {

/// Larger than a quarter of them: others' work on the machine makes times longer, never shorter.
[[nodiscard]] double quarter_of(std::vector<double> values);

/// What each message behind the first one takes, of times of `messages` messages and of times of one. Each of the two has its own
/// lower quartile: a difference of times of the same round is too short where the single message was disturbed. 0 or less: it is less
/// than what the times differ by.
[[nodiscard]] double further_message(std::vector<double> several, std::vector<double> one,
                                     std::size_t messages);

}  // namespace tune
