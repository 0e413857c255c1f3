// The arithmetic of the overlap micro-benchmark.
#pragma once

#include <cstddef>
#include <vector>

namespace bench {

/// How much of a communication's time a computation beside it hides. `no_computation` is the time of the loop's body with
/// no computation in it. Then the computation grows by a tenth a step, from a hundredth of that, until the body takes more
/// than 1.1 times as long as without; the last step before that counts:
///
///     ratio = (c - (l - l0)) / l0
///
/// where c is how long the computation takes alone, and l the body with it. With t1 the processor's time in the call that
/// starts, t2 the transfer after it and t3 the completion, l0 = t1 + t2 + t3, and this gives t2 / l0, all times in one unit:
///
///     overlap_search search(l0);
///     while (search.goes_on()) search.took(c, body_with(c = search.next()));
///     search.ratio();
class overlap_search {
public:
    static constexpr double first_part = 0.01;
    static constexpr double growth = 1.1;
    static constexpr double most_loop = 1.1;
    /// Times l0. A computation of that length hides all that can be hidden.
    static constexpr double most_computation = 2.5;

    struct step {
        double computation = 0;
        double loop = 0;
    };

    explicit overlap_search(double no_computation) noexcept
        : base_(no_computation), next_(no_computation * first_part), last_{0, no_computation} {}

    [[nodiscard]] bool goes_on() const noexcept { return !over_ && next_ <= base_ * most_computation; }
    /// The computation of the next step.
    [[nodiscard]] double next() const noexcept { return next_; }
    /// Whether a loop of this length ends the search.
    [[nodiscard]] bool too_long(double loop) const noexcept { return loop >= base_ * most_loop; }

    /// The next step took `loop`, with a computation that takes `computation` alone.
    void took(double computation, double loop) {
        steps_.push_back({computation, loop});
        if (too_long(loop)) {
            over_ = true;
        } else {
            last_ = steps_.back();
            next_ *= growth;
        }
    }

    [[nodiscard]] double no_computation() const noexcept { return base_; }
    /// The step that counts; no computation where the first was too long already.
    [[nodiscard]] const step& last() const noexcept { return last_; }
    [[nodiscard]] const std::vector<step>& steps() const noexcept { return steps_; }
    /// Below 0 where the computation costs the loop more than its own length.
    [[nodiscard]] double ratio() const noexcept { return (last_.computation - (last_.loop - base_)) / base_; }

private:
    double base_;
    double next_;
    step last_;
    std::vector<step> steps_;
    bool over_ = false;
};

}  // namespace bench
