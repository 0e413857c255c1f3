#include "watch.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace soak {

holdings look_at(pid_t process, double second) {
    holdings now;
    now.second = second;
    const std::string folder = "/proc/" + std::to_string(process);
    std::string word;
    for (std::ifstream status(folder + "/status"); status >> word;) {
        if (word == "VmRSS:") {
            status >> now.kilobytes;
            break;
        }
    }
    std::error_code gone;
    for (std::filesystem::directory_iterator fd(folder + "/fd", gone), end; !gone && fd != end;
         fd.increment(gone))
        ++now.descriptors;
    std::ifstream maps(folder + "/maps");
    for (std::string line; std::getline(maps, line);) ++now.mappings;
    return now;
}

holdings growth::median(std::size_t from, std::size_t to) const {
    holdings middle;
    const auto of = [&](auto member) {
        std::vector<std::uint64_t> values;
        for (std::size_t i = from; i < to; ++i) values.push_back(looks_[i].*member);
        if (values.empty()) return std::uint64_t{0};
        std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                         values.end());
        return values[values.size() / 2];
    };
    middle.kilobytes = of(&holdings::kilobytes);
    middle.descriptors = of(&holdings::descriptors);
    middle.mappings = of(&holdings::mappings);
    return middle;
}

std::string growth::judge() const {
    if (!long_enough()) return {};
    const holdings before = early();
    const holdings after = late();
    std::string grown;
    const auto compare = [&](const char* what, std::uint64_t was, std::uint64_t is, std::uint64_t slack) {
        if (is > was + was / 4 + slack)
            grown += (grown.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(was) + " to " +
                     std::to_string(is);
    };
    compare("resident KB", before.kilobytes, after.kilobytes, 32 * 1024);
    compare("descriptors", before.descriptors, after.descriptors, 32);
    compare("mappings", before.mappings, after.mappings, 64);
    return grown;
}

}  // namespace soak
