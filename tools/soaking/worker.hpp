// A process of the soak: listens over each transport, and keeps links open to the others.
#pragma once

#include "options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace soak {

struct worker_place {
    unsigned number = 0;
    std::uint64_t life = 0;            ///< how often a worker with this number was started before
    std::string run;                   ///< part of its names
    double seconds = 0;                ///< until it closes everything and ends
    int pipe = -1;                     ///< to the overseer
    std::vector<std::uint16_t> ports;  ///< of each worker and transport: [worker * transports + transport]
};

/// Runs it to its end, and returns the process's status.
[[nodiscard]] int run_worker(const options& asked, const worker_place& place);

}  // namespace soak
