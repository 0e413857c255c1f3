// The frame of a program: its failures as messages and exit statuses.
#pragma once

#include <functional>

namespace pingpong {

/// Runs `body`, which gives the exit status. An exception becomes a message with the program's name in front of it, and a status that
/// is not 0; so does standard output that did not take all that was written to it.
[[nodiscard]] int run_program(const char* name, const std::function<int()>& body);

}  // namespace pingpong
