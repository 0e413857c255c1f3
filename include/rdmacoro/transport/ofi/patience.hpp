// patience: how long a domain waits for gets and puts that are given up.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace rdmacoro::detail::fabric {

/// Patience with pieces of gets and puts that are given up: none more is posted, but the provider still has to end those that it has.
/// Over when none has ended for a while, or after a limit: then only closing the endpoint ends them, and with it all its links. Time in which this
/// process did not run is not waited: what ended meanwhile has not been looked at.
class patience {
public:
    using clock = std::chrono::steady_clock;

    static constexpr auto without_an_end = std::chrono::milliseconds(100);
    static constexpr auto altogether = std::chrono::seconds(1);
    /// The same where the peer has ended the connection beside the provider's: its process ends, and its system ends that of the provider.
    static constexpr auto for_the_dead = std::chrono::seconds(1);
    /// From one look to the next where looking costs something.
    static constexpr auto pause = std::chrono::milliseconds(2);
    /// Counted from one look to the next at most.
    static constexpr auto most_for_a_look = std::chrono::milliseconds(10);

    /// Begins with the first call. `ended` grows with each piece that ended, of any link.
    [[nodiscard]] bool over(clock::time_point now, std::uint64_t ended,
                            clock::duration idle = without_an_end) noexcept {
        if (!begun_) {
            begun_ = true;
            seen_ = now;
            ended_ = ended;
        }
        const clock::duration looked = std::min<clock::duration>(now - seen_, most_for_a_look);
        seen_ = now;
        all_ += looked;
        idle_ += looked;
        if (ended != ended_) {
            ended_ = ended;
            idle_ = {};
        }
        return idle_ > idle || all_ > altogether;
    }
    [[nodiscard]] bool begun() const noexcept { return begun_; }

private:
    bool begun_ = false;
    clock::time_point seen_{};
    clock::duration idle_{};  // since the last end
    clock::duration all_{};
    std::uint64_t ended_ = 0;
};

}  // namespace rdmacoro::detail::fabric
