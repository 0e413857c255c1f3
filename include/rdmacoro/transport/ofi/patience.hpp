// patience: how long a domain waits for gets and puts that are given up.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace rdmacoro::detail::fabric {

/// Patience with gets and puts that are given up: none is begun any more, but the provider, or the peer that moves the data, still has to end what
/// it has. When it is over only closing the endpoint ends that, and with it all links of the domain. So there is enough for a peer that waits
/// for a processor. Time in which this process did not run is not waited: what ended meanwhile has not been looked at.
class patience {
public:
    using clock = std::chrono::steady_clock;

    static constexpr auto limit = std::chrono::seconds(1);
    /// From one look to the next where looking costs something.
    static constexpr auto pause = std::chrono::milliseconds(2);
    /// Counted from one look to the next at most.
    static constexpr auto most_for_a_look = std::chrono::milliseconds(10);

    /// Begins with the first call.
    [[nodiscard]] bool over(clock::time_point now, clock::duration most = limit) noexcept {
        if (!std::exchange(begun_, true)) seen_ = now;
        waited_ += std::min<clock::duration>(now - seen_, most_for_a_look);
        seen_ = now;
        return waited_ > most;
    }
    [[nodiscard]] bool begun() const noexcept { return begun_; }

private:
    bool begun_ = false;
    clock::time_point seen_{};
    clock::duration waited_{};
};

}  // namespace rdmacoro::detail::fabric
