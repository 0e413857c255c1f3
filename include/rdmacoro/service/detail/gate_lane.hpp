// gate_lane: the part of a gate's ring that one thread fills, and the scheduler's thread empties.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/service/detail/task_port.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace rdmacoro {

/// What each thread may have in a gate.
struct gate_options {
    std::size_t messages =
        512;  ///< of one thread, in the gate at a time; rounded up to a power of two, 4 at least
    std::size_t message_bytes = 216;  ///< of a message that the gate copies; longer ones are borrowed
};

namespace detail {

class gate_lane;
struct gate_target;

/// What one thread has sent to one peer. In the numbers of messages; they only grow.
struct gate_flow {
    std::uint32_t peer;
    std::uint64_t put = 0;          // the thread's
    std::uint64_t seen_back = 0;    // the thread's: `back`, when it looked last
    gate_target* target = nullptr;  // the scheduler's
    alignas(64) std::atomic<std::uint64_t> back{0};
};

/// A message on its way through the gate: its bytes are `inside`, or in memory of a thread that waits.
struct gate_slot {
    gate_slot* next;
    gate_flow* flow;
    gate_lane* lane;
    const const_buffers* borrowed;  // nullptr: it is inside
    std::size_t bytes;
    tag_type tag;
    [[nodiscard]] std::byte* inside() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

/// Slots go round: the thread takes a free one, fills it, and publishes it by one store; the scheduler's thread gives it back when it has
/// been sent, in any order. What a thread has not published does not exist for the other side.
class gate_lane {
public:
    enum class put_result : std::uint8_t { done, full, closed };

    gate_lane(task_port& port, const gate_options& options);
    gate_lane(const gate_lane&) = delete;
    gate_lane& operator=(const gate_lane&) = delete;

    // The thread that has the lane.

    [[nodiscard]] gate_flow& flow(std::uint32_t peer) {
        if (last_ != nullptr && last_->peer == peer) [[likely]]
            return *last_;
        return find_flow(peer);
    }
    /// `borrow`: `from` and its memory stay until the flow is back at what it is now.
    [[nodiscard]] put_result put(gate_flow& to, const const_buffers& from, tag_type tag,
                                 bool borrow) noexcept {
        if (!has_room(to)) [[unlikely]]
            return port_.closed() ? put_result::closed : put_result::full;
        gate_slot& slot = *free_[put_ & mask_];
        slot.flow = &to;
        slot.tag = tag;
        slot.bytes = from.size();
        slot.borrowed = borrow ? &from : nullptr;
        if (!borrow) {
            std::byte* at = slot.inside();
            for (std::size_t i = 0; i < from.pieces(); ++i) {
                if (from[i].empty()) continue;
                std::memcpy(at, from[i].data(), from[i].size());
                at += from[i].size();
            }
        }
        ready_[put_ & mask_] = &slot;
        ++to.put;
        ++put_;
        // Pairs with `rest`: the tail is published, and then the flag read; there the flag is cleared, and then the tail read.
        tail_.store(put_, std::memory_order_seq_cst);
        if (!interested_.load(std::memory_order_seq_cst)) [[unlikely]]
            return wake();
        return put_result::done;
    }
    /// The thread sleeps until some of what it has sent to that peer is back. False: the gate has ended, or `until` has passed.
    [[nodiscard]] bool wait_for_room(gate_flow& to, time_point until) noexcept;
    /// Until all that it has sent to that peer is back, or, for nullptr, to any.
    [[nodiscard]] bool wait_until_back(const gate_flow* of, time_point until) noexcept;
    [[nodiscard]] bool all_back() const noexcept { return back_.load(std::memory_order_acquire) == put_; }
    /// The first error since the last time; nothing: none.
    [[nodiscard]] std::error_code take_error(std::uint32_t& peer) noexcept;
    [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
    [[nodiscard]] task_port& port() const noexcept { return port_; }

    // The scheduler's thread.

    /// nullptr: none.
    [[nodiscard]] gate_slot* take() noexcept {
        if (taken_ == seen_tail_) {
            seen_tail_ = tail_.load(std::memory_order_acquire);
            if (taken_ == seen_tail_) return nullptr;
        }
        return ready_[taken_++ & mask_];
    }
    /// There was nothing to take. False: there is now.
    [[nodiscard]] bool rest() noexcept {
        interested_.store(false, std::memory_order_seq_cst);
        if (tail_.load(std::memory_order_seq_cst) == taken_) return true;
        return interested_.exchange(true, std::memory_order_seq_cst);
    }
    void give_back(gate_slot& slot, const status& failed) noexcept {
        if (failed) [[unlikely]]
            fail(failed, slot.flow->peer);
        std::atomic<std::uint64_t>& of_flow = slot.flow->back;
        of_flow.store(of_flow.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        const std::uint64_t count = back_.load(std::memory_order_relaxed);
        free_[count & mask_] = &slot;
        back_.store(count + 1, std::memory_order_seq_cst);  // pairs with `sleep`
        if (waits_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
            wake_thread(false);
    }
    void wake_thread(bool in_any_case) noexcept;

    /// Whether a thread has it; changed by its `gate_pass` alone, under the lock of the gate.
    bool taken = true;
    struct news_node : posted_node {
        gate_lane* lane = nullptr;
        void* gate = nullptr;
    } news;  // posted while `interested_`

private:
    [[nodiscard]] bool has_room(gate_flow& to) noexcept {
        if (fits(to)) [[likely]]
            return true;
        to.seen_back = to.back.load(std::memory_order_acquire);
        seen_back_ = back_.load(std::memory_order_acquire);
        return fits(to);
    }
    /// A peer may have as many slots as half of those that are free: one that takes nothing leaves room for all others.
    [[nodiscard]] bool fits(const gate_flow& to) const noexcept {
        const std::uint64_t free = mask_ + 1 - (put_ - seen_back_);
        const std::uint64_t most = free / 2 + free % 2;
        return to.put - to.seen_back < most;
    }
    [[nodiscard]] gate_flow& find_flow(std::uint32_t peer);
    [[nodiscard]] put_result wake() noexcept;
    /// Until `of`, or the whole lane for nullptr, is back at `target`.
    [[nodiscard]] bool sleep(const std::atomic<std::uint64_t>& of, std::uint64_t target,
                             time_point until) noexcept;
    void fail(const status& with, std::uint32_t peer) noexcept;

    task_port& port_;
    std::size_t mask_;
    std::size_t message_bytes_;
    std::unique_ptr<std::byte[]> memory_;
    std::unique_ptr<gate_slot*[]> free_;   // by the number of the message that takes it
    std::unique_ptr<gate_slot*[]> ready_;  // by the number of the message

    // The thread's.
    alignas(64) std::uint64_t put_ = 0;
    std::uint64_t seen_back_ = 0;
    gate_flow* last_ = nullptr;
    std::vector<std::unique_ptr<gate_flow>> flows_;
    std::atomic<std::uint64_t> tail_{0};

    // The scheduler's.
    alignas(64) std::uint64_t taken_ = 0;
    std::uint64_t seen_tail_ = 0;
    std::atomic<std::uint64_t> back_{0};
    std::error_code error_;
    std::uint32_t error_peer_ = 0;
    std::atomic<bool> failed_{false};

    alignas(64) std::atomic<bool> interested_{false};  // `news` is posted, or the scheduler takes messages
    std::atomic<std::uint32_t> waits_{0};              // the thread sleeps on it
    std::atomic<const std::atomic<std::uint64_t>*> wait_of_{nullptr};
    std::atomic<std::uint64_t> wait_target_{0};
};

}  // namespace detail
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/gate_lane.ipp>
#endif
