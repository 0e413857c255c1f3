// The options of the command line.
#pragma once

#include "measure.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tune {

struct options {
    std::vector<std::string> transports;  ///< within a host first, then between hosts
    std::vector<unsigned> ranks{2, 4, 8, 16, 64};
    unsigned hosts = 1;
    plan how;
    std::string from;    ///< a JSON file of an earlier run, instead of measuring
    std::string json;    ///< a file, `-` for standard output
    std::string header;  ///< the same
    std::string name = "tuned";
    bool quiet = false;
};

/// Nothing when help was asked for, and printed. Throws `pingpong::usage_error`.
[[nodiscard]] std::optional<options> parse_options(int argc, char** argv);

}  // namespace tune
