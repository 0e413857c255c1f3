#include "cpus.hpp"

#include "failure.hpp"
#include "text.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include <sched.h>

namespace pingpong {

std::vector<int> usable_cpus() {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) {
        throw std::system_error(errno, std::system_category(), "sched_getaffinity");
    }
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
    }
    return cpus;
}

std::vector<int> parse_cpus(const std::string& list, std::size_t threads) {
    const std::vector<int> usable = usable_cpus();
    std::vector<int> cpus;
    for (const std::string& item : split_at_commas(list)) {
        int cpu = -1;
        const auto [stop, error] = std::from_chars(item.data(), item.data() + item.size(), cpu);
        if (error != std::errc() || stop != item.data() + item.size()) {
            throw usage_error("--cpus: \"" + item + "\" is not the number of a CPU; write two, such as 0,1");
        }
        if (std::find(usable.begin(), usable.end(), cpu) == usable.end()) {
            std::string those;
            for (const int one : usable) append_item(those, std::to_string(one));
            throw usage_error("--cpus: there is no CPU " + item + " for this process; it may use " + those);
        }
        cpus.push_back(cpu);
    }
    if (threads > 1 && cpus.size() > 2 && cpus.size() != 2 * threads) {
        throw usage_error("--cpus: with --threads one, two, or one for each thread of both sides: " +
                          std::to_string(2 * threads));
    }
    if (threads == 1 && cpus.size() > 2)
        throw usage_error("--cpus: at most two, the connecting side's and the listening side's");
    return cpus;
}

void pin_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) {
        throw std::system_error(errno, std::system_category(), "pinning to CPU " + std::to_string(cpu));
    }
}

}  // namespace pingpong
