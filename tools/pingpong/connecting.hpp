// The connecting side: sends the plan of each measurement, measures, and reports.
#pragma once

#include "options.hpp"
#include "results.hpp"

#include <rdmacoro/coro/task.hpp>

namespace pingpong {

/// Connects to the listening side, measures what is asked for, and reports each row. Both are borrowed. Throws `run_error`.
rdmacoro::task<> connect_and_measure(const options& asked, reporter& out);

}  // namespace pingpong
