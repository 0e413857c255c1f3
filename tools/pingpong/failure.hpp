// How pingpong fails: the kinds of error that main turns into an exit status.
#pragma once

#include <stdexcept>

namespace pingpong {

inline constexpr int status_failed = 1;
inline constexpr int status_usage = 2;

/// The command line asks for something that cannot be. Exit status 2.
struct usage_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The run did not do what it should. Exit status 1.
struct run_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace pingpong
