// The resources of a process, as the kernel counts them, and whether they grow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/types.h>

namespace soak {

struct holdings {
    double second = 0;            ///< since the soak began
    std::uint64_t kilobytes = 0;  ///< resident, shared memory included
    std::uint64_t descriptors = 0;
    std::uint64_t mappings = 0;
};

/// Of a process that runs; zeros when it is gone.
[[nodiscard]] holdings look_at(pid_t process, double second);

/// The looks at one process over its life.
class growth {
public:
    void add(const holdings& now) {
        if (now.kilobytes != 0) looks_.push_back(now);
    }
    /// The resources that grew, in words: the last quarter of its life against the second; empty where nothing did, or it was too short to tell.
    [[nodiscard]] std::string judge() const;
    [[nodiscard]] bool long_enough() const noexcept { return looks_.size() >= fewest_looks; }
    /// Medians of the second quarter of the life (first) and of the last (second).
    [[nodiscard]] holdings early() const { return median(looks_.size() / 4, looks_.size() / 2); }
    [[nodiscard]] holdings late() const { return median(looks_.size() * 3 / 4, looks_.size()); }

private:
    static constexpr std::size_t fewest_looks = 60;

    [[nodiscard]] holdings median(std::size_t from, std::size_t to) const;

    std::vector<holdings> looks_;
};

}  // namespace soak
