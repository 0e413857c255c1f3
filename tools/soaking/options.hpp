// The options of the command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace soak {

enum status : int { status_well = 0, status_fault = 1 };

struct options {
    double minutes = 1;
    unsigned workers = 4;                 ///< processes
    unsigned links = 50;                  ///< that each worker keeps open towards others
    std::vector<std::string> transports;  ///< shm, tcp, ofi: all of this build where empty
    double kill_every = 5;                ///< mean seconds between two kills; 0: none
    double stop_every = 2;                ///< mean seconds between two stops
    double longest_stop = 3;              ///< seconds; a quarter of `round_limit` at most
    std::size_t longest = 4 << 20;        ///< bytes of a message
    double round_limit = 60;              ///< seconds after which a round counts as hung, stops included
    std::uint64_t seed = 0;               ///< 0: another one each time
    std::uint64_t corrupt =
        0;  ///< every so many messages one is sent with a wrong byte, to see that it is noticed
    std::uint64_t drop =
        0;  ///< every so many rounds a link that should go on is dropped, to see that it is noticed
    std::uint64_t deafen =
        0;  ///< after so many sessions a worker drops a listener, to see that it is noticed; 0: never
    std::string json;  ///< a file for the summary, `-` for standard output
};

/// Nothing when help was asked for, and printed. Throws `pingpong::usage_error`.
[[nodiscard]] std::optional<options> parse_options(int argc, char** argv);

}  // namespace soak
