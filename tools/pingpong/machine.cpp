#include "machine.hpp"

#include <array>
#include <ctime>
#include <fstream>

#include <sys/utsname.h>

namespace pingpong {

namespace {

/// The processor's name, where the kernel gives it.
std::string cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("model name", 0) != 0 && line.rfind("Model", 0) != 0) continue;
        const std::size_t colon = line.find(':');
        const std::size_t text =
            colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
        if (text != std::string::npos) return line.substr(text);
    }
    return "unknown";
}

}  // namespace

machine_facts describe_machine() {
    machine_facts facts;
    utsname system{};
    if (::uname(&system) == 0) {
        facts.kernel = system.release;
        facts.architecture = system.machine;
    }
    facts.cpu = cpu_name();
#if defined(__clang__)
    facts.compiler = "clang " __clang_version__;
#else
    facts.compiler = "g++ " __VERSION__;
#endif
#if defined(__OPTIMIZE__)
    facts.optimization = "on";
#else
    facts.optimization = "off";
#endif
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    std::array<char, 32> text{};
    if (::gmtime_r(&now, &utc) != nullptr) {
        facts.date.assign(text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc));
    }
    return facts;
}

}  // namespace pingpong
