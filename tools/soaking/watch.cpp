#include "watch.hpp"

#include <algorithm>
#include <array>
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

std::uint64_t growth::median(resource of, std::size_t from, std::size_t to) const {
    std::vector<std::uint64_t> values;
    for (std::size_t i = from; i < to; ++i) values.push_back(looks_[i].*of);
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

holdings growth::median(std::size_t from, std::size_t to) const {
    holdings middle;
    for (const resource of : {&holdings::kilobytes, &holdings::descriptors, &holdings::mappings})
        middle.*of = median(of, from, to);
    return middle;
}

bool growth::grew_steadily(resource of, std::uint64_t least) const {
    if (looks_.size() < fewest_looks_of_slow_leaks) return false;
    const std::size_t begin = looks_.size() / 4;
    const auto at = [&](std::size_t part) { return begin + (looks_.size() - begin) * part / parts; };
    std::array<std::uint64_t, parts> is{};
    std::size_t out_of_order = 0;  // pairs
    for (std::size_t n = 0; n < parts; ++n) {
        is[n] = median(of, at(n), at(n + 1));
        for (std::size_t before = 0; before < n; ++before) out_of_order += is[n] <= is[before] ? 1 : 0;
    }
    if (out_of_order > 1 || is[parts - 1] < is[0] + least) return false;
    const std::int64_t first = static_cast<std::int64_t>(is[parts / 3] - is[0]);
    const std::int64_t last = static_cast<std::int64_t>(is[parts - 1] - is[parts - 1 - parts / 3]);
    return 5 * last >= 3 * first;
}

std::string growth::judge() const {
    if (!long_enough()) return {};
    const holdings before = early();
    const holdings after = late();
    std::string grown;
    const auto compare = [&](const char* what, resource of, std::uint64_t slack, std::uint64_t slow) {
        const bool much = after.*of > before.*of + before.*of / 4 + slack;
        if (much || grew_steadily(of, slow))
            grown += (grown.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(before.*of) +
                     " to " + std::to_string(after.*of) + (much ? "" : ", steadily");
    };
    compare("resident KB", &holdings::kilobytes, 32 * 1024, 8 * 1024);
    compare("descriptors", &holdings::descriptors, 32, 8);
    compare("mappings", &holdings::mappings, 64, 16);
    return grown;
}

}  // namespace soak
