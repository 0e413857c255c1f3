#pragma once

// What the kernel says of a thread of this process.

#include <fstream>
#include <string>

#include <sys/types.h>

namespace rdmacoro::test {

/// Whether that thread sleeps.
inline bool sleeps(pid_t thread) {
    std::string facts;
    std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), facts);
    const std::size_t name_end = facts.rfind(')');
    return name_end != std::string::npos && facts.compare(name_end, 3, ") S") == 0;
}

}  // namespace rdmacoro::test
