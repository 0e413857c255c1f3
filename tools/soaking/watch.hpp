// The resources of a process, as the kernel counts them, and whether they grow.
#pragma once

#include <cstddef>
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
    /// The resources that grew, in words; empty where nothing did, or the life was too short to tell. Either from the second quarter of
    /// the life to the last by more than a quarter and something; or, in half an hour or more, by little but steadily: from the second
    /// quarter on each ninth part of the time above those before, all but one pair, and at the end not much slower than at first. What
    /// settles, a store that fills or an allocator, slows down.
    [[nodiscard]] std::string judge() const;
    [[nodiscard]] bool long_enough() const noexcept { return looks_.size() >= fewest_looks; }
    /// Medians of the second quarter of the life (first) and of the last (second).
    [[nodiscard]] holdings early() const { return median(looks_.size() / 4, looks_.size() / 2); }
    [[nodiscard]] holdings late() const { return median(looks_.size() * 3 / 4, looks_.size()); }

private:
    static constexpr std::size_t fewest_looks = 60;
    static constexpr std::size_t fewest_looks_of_slow_leaks = 1800;
    static constexpr std::size_t parts = 9;

    using resource = std::uint64_t holdings::*;

    [[nodiscard]] std::uint64_t median(resource of, std::size_t from, std::size_t to) const;
    [[nodiscard]] holdings median(std::size_t from, std::size_t to) const;
    /// By `least` at least.
    [[nodiscard]] bool grew_steadily(resource of, std::uint64_t least) const;

    std::vector<holdings> looks_;
};

}  // namespace soak
