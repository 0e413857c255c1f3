// gate_core: what a gate and the threads that use it share, whichever ends first.
#pragma once

#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/service/detail/gate_lane.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace rdmacoro::detail {

/// The messages to one peer that have left the lanes, on the scheduler's thread.
struct gate_target {
    gate_slot* first = nullptr;
    gate_slot** last = &first;
    event news;
    status over{};  // why nothing is sent to it any more

    void append(gate_slot& slot) noexcept {
        slot.next = nullptr;
        if (first == nullptr) news.set();
        *last = &slot;
        last = &slot.next;
    }
    [[nodiscard]] gate_slot* pop() noexcept {
        gate_slot* const slot = first;
        if (slot != nullptr && (first = slot->next) == nullptr) {
            last = &first;
            news.reset();
        }
        return slot;
    }
    void give_all_back(const status& why) noexcept {
        while (gate_slot* const slot = pop()) slot->lane->give_back(*slot, why);
    }
};

class gate_core {
public:
    gate_core(scheduler& owner, const gate_options& options) : port(owner), options_(options) {}
    gate_core(const gate_core&) = delete;
    gate_core& operator=(const gate_core&) = delete;
    virtual ~gate_core() = default;

    /// A lane for a thread. Any thread; throws `errc::closed` where the gate has ended.
    [[nodiscard]] RDMACORO_DECL gate_lane& enter();
    /// The thread that had it uses it no longer.
    RDMACORO_DECL void leave(gate_lane& lane) noexcept;
    /// How many lanes there are; threads that come after others have left take theirs.
    [[nodiscard]] RDMACORO_DECL std::size_t lanes() noexcept;

    // The scheduler's thread.

    /// Nothing comes any more: all that wait end, with `errc::closed`.
    RDMACORO_DECL void end() noexcept;

    task_port port;

protected:
    /// A message to a peer for which there is no target yet: has the target's messages sent from now on.
    virtual gate_target* make_target(std::uint32_t peer) noexcept = 0;

private:
    RDMACORO_DECL static void take_news(posted_node& at) noexcept;

    const gate_options options_;
    std::mutex entering_;
    std::vector<std::unique_ptr<gate_lane>> lanes_;
    std::unordered_map<std::uint32_t, gate_target*> targets_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/gate_core.ipp>
#endif
