#include "payload.hpp"

#include <fstream>
#include <limits>

namespace pingpong {

std::size_t available_memory() {
    std::ifstream file("/proc/meminfo");
    for (std::string word; file >> word;) {
        std::size_t kilobytes = 0;
        if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
    }
    return std::numeric_limits<std::size_t>::max();
}

}  // namespace pingpong
