// The processes of a job, from their start to the end of the last one.
#pragma once

#include "options.hpp"

namespace run {

/// Ends when no process of the job is left. The exit status.
int run_job(const options& asked);

}  // namespace run
