// gate_core: what a gate and the threads that use it share, whichever ends first.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/service/detail/gate_lane.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace rdmacoro::detail {

/// Lanes with news are served in turns, by functions that are posted to the scheduler: some of each, and of all together what takes about as
/// long as a slice of its coroutines.
class gate_core {
public:
    /// `shared`: by several peers.
    gate_core(scheduler& owner, const gate_options& options, bool shared)
        : port(owner), options_(options), shared_(shared) {
        again_.core = this;
        again_.call = &serve_again;
    }
    gate_core(const gate_core&) = delete;
    gate_core& operator=(const gate_core&) = delete;
    virtual ~gate_core() = default;

    /// A lane for a thread. Any thread; throws `errc::closed` where the gate has ended, `errc::no_resources` where there are as many as may be.
    [[nodiscard]] RDMACORO_DECL gate_lane& enter();
    /// The thread that had it uses it no longer.
    RDMACORO_DECL void leave(gate_lane& lane) noexcept;
    /// How many lanes there are; threads that come after others have left take theirs.
    [[nodiscard]] RDMACORO_DECL std::size_t lanes() noexcept;

    // The scheduler's thread.

    /// Nothing comes any more: all that wait end, with `errc::closed`.
    RDMACORO_DECL void end() noexcept;
    /// A send out of a lane waits.
    void began() noexcept { ++under_way_; }
    /// It has ended, and its slot was given back: the thread sees it soon, with others of this turn.
    RDMACORO_DECL void ended(gate_lane& of) noexcept;

    task_port port;

protected:
    /// Takes what the lane has, at most so many, and begins each. How many there were.
    [[nodiscard]] virtual unsigned serve(gate_lane& lane, unsigned most) noexcept = 0;

private:
    struct again_node : posted_node {
        gate_core* core = nullptr;
    };
    RDMACORO_DECL static void take_news(posted_node& at) noexcept;
    RDMACORO_DECL static void serve_again(posted_node& at) noexcept;
    RDMACORO_DECL void serve_lanes(unsigned budget) noexcept;
    RDMACORO_DECL void publish_due() noexcept;
    RDMACORO_DECL void again() noexcept;

    // Of a lane before the next one's turn, and of all lanes in one turn of the scheduler.
    static constexpr unsigned most_of_lane = 32;
    static constexpr unsigned most_at_once = 256;
    // After so many it looks at the time.
    static constexpr unsigned most_between_looks = 64;

    const gate_options options_;
    const bool shared_;
    std::mutex entering_;
    bool ends_ = false;  // under the lock, as `lanes_`
    std::vector<std::unique_ptr<gate_lane>> lanes_;

    intrusive_list<gate_lane> active_;   // have something, or had it a moment ago
    intrusive_list<gate_lane> emptied_;  // in this turn; their threads need not wake this one before the next
    gate_lane* due_ = nullptr;           // have something back that their threads do not see yet
    again_node again_;
    bool posted_ = false;           // `again_`
    unsigned left_ = most_at_once;  // in this turn
    std::size_t under_way_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/gate_core.ipp>
#endif
