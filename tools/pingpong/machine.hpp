// Facts about the machine of a measurement.
#pragma once

#include <string>

namespace pingpong {

struct machine_facts {
    std::string kernel;
    std::string architecture;
    std::string cpu;
    std::string compiler;
    std::string optimization;
    std::string date;  ///< now, UTC
};

[[nodiscard]] machine_facts describe_machine();

}  // namespace pingpong
