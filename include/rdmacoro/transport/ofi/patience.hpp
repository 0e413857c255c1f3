// patience: how long a domain waits for gets and puts that are given up.
#pragma once

#include <chrono>
#include <cstdint>

namespace rdmacoro::detail::fabric {

/// Patience with pieces of gets and puts that are given up: none more is posted, but the provider still has to end those that it has.
/// Over when none has ended for a while, or after a limit: then only closing the endpoint ends them.
class patience {
public:
    using clock = std::chrono::steady_clock;

    static constexpr auto without_an_end = std::chrono::milliseconds(100);
    static constexpr auto altogether = std::chrono::seconds(1);
    /// From one look to the next where looking costs something.
    static constexpr auto pause = std::chrono::milliseconds(2);

    /// Begins with the first call. `ended` grows with each piece that ended, of any link.
    [[nodiscard]] bool over(clock::time_point now, std::uint64_t ended) noexcept {
        if (!begun_) {
            begun_ = true;
            began_ = last_ = now;
            ended_ = ended;
        }
        if (ended != ended_) {
            ended_ = ended;
            last_ = now;
        }
        return now - last_ > without_an_end || now - began_ > altogether;
    }
    [[nodiscard]] bool begun() const noexcept { return begun_; }

private:
    bool begun_ = false;
    clock::time_point began_{};
    clock::time_point last_{};
    std::uint64_t ended_ = 0;
};

}  // namespace rdmacoro::detail::fabric
