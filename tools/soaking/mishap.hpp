// What a worker tells of a session that ended before its plan, or of a connect without an answer, and whether it was right to.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace soak {

/// A line of a worker's journal.
struct mishap {
    enum class kind : std::uint8_t {
        lost,        ///< the peer was lost without a plan
        cut,         ///< a round ended closed or canceled
        unanswered,  ///< a connect had no answer in its time
    };
    using time_point =
        std::chrono::steady_clock::time_point;  // CLOCK_MONOTONIC: one for all processes of the host

    kind what = kind::lost;
    unsigned peer = 0;  ///< the worker at the other end
    std::string transport;
    time_point began;  ///< the peer lived then, or after that
    std::string why;

    [[nodiscard]] std::string line() const;
    /// Nothing when the text is not such a line.
    [[nodiscard]] static std::optional<mishap> parse(std::string_view line);
};

/// What the overseer has done to a worker, in all its lives; times in seconds.
class treatment {
public:
    void kill(double now) noexcept {
        killed_at_ = now;
        stopped_at_ = never;
    }
    void stop(double now) noexcept { stopped_at_ = now; }
    void let_go_on(double now) noexcept;

    [[nodiscard]] double killed_at() const noexcept { return killed_at_; }
    /// When it last stood still after it had done so for longer than a peer over libfabric may.
    [[nodiscard]] double stood_still_at(double now) const noexcept;

private:
    static constexpr double never = -1e9;

    double killed_at_ = never;
    double stopped_at_ = never;  // while it stands still
    double stood_still_ = never;
};

/// The fault that a mishap of worker `number` is; empty where it is none. `began` and `now`: on the clock of the treatments, of which there
/// is one for each worker. `disturbed`: workers are killed or stopped in this run.
[[nodiscard]] std::string judge(unsigned number, const mishap& of, double began,
                                std::span<const treatment> workers, bool disturbed, double now);

}  // namespace soak
