// The process that starts, kills, stops and restarts the workers, reads their journals, watches what they hold, and judges.
#pragma once

#include "options.hpp"

namespace soak {

/// Runs the soak, with a line of progress each minute, in the first one every ten seconds, on standard error and a summary at the end
/// on standard output; returns the program's status.
[[nodiscard]] int oversee(const options& asked);

}  // namespace soak
