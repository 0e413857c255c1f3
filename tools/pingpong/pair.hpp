// Both sides on one machine: --pair.
#pragma once

#include "options.hpp"

namespace pingpong {

/// Starts the listening side as a child and is the connecting side itself. Gives the exit status; throws what ended the
/// connecting side. Precondition: no scheduler and no other thread exists yet.
int run_pair(options asked);

}  // namespace pingpong
