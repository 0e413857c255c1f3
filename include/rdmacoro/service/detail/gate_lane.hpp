// gate_lane: the part of a gate's ring that one thread fills, and the scheduler's thread empties.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/service/detail/task_port.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <unordered_map>

namespace rdmacoro {

/// The limits of a gate: of each thread's pass, and of all together.
struct gate_options {
    std::size_t messages =
        512;  ///< of one thread, in the gate at a time, with the calls that have not begun; rounded up to a power of two, 4 at least
    std::size_t message_bytes = 216;  ///< of a message that the gate copies; longer ones are borrowed
    /// Passes that exist, and those that have ended while a peer has not taken what they left: each has a ring of `messages` slots.
    std::size_t passes = 1024;
};

namespace detail {

class gate_lane;

/// A coroutine of the lane's thread waits for room for what it puts, or until all that was put is back. In one list at a time.
class gate_wait : public list_node<gate_wait> {
public:
    using function = bool (*)(gate_wait&) noexcept;

    /// Looks again. True: it waits no longer.
    [[nodiscard]] bool looks() noexcept { return look_(*this); }

protected:
    explicit gate_wait(function look) noexcept : look_(look) {}
    gate_wait(gate_wait&& other) noexcept : list_node(), look_(other.look_) {}  // before it waits
    ~gate_wait() { unlink(); }

private:
    function look_;
};

/// The traffic of one thread to one peer. In the numbers of messages and calls; they only grow.
struct gate_flow : list_node<gate_flow> {
    explicit gate_flow(std::uint32_t to) noexcept : peer(to) {}

    std::uint32_t peer;
    std::uint64_t put = 0;        // the thread's
    std::uint64_t seen_back = 0;  // the thread's: `back`, when it looked last
    intrusive_list<gate_wait> waiting;
    alignas(64) std::atomic<std::uint64_t> back{0};
};

/// The memory of a message that is not copied, while its thread or coroutine waits.
struct gate_loan {
    explicit gate_loan(const const_buffers& memory) noexcept : from(memory) {}

    const const_buffers& from;
    status failed{};
    std::exception_ptr why{};  // with the text, where there is one
    std::atomic<bool> back{false};
};

/// A message on its way through the gate, or a call that is to begin. A message's bytes are `inside`, or in memory of a thread that waits.
struct gate_slot {
    enum class content : std::uint32_t { inside, lent, call };

    gate_flow* flow;
    gate_lane* lane;
    union {
        gate_loan* loan;
        remote_base* call;
    };
    std::uint32_t bytes;
    content kind;
    tag_type tag;
    [[nodiscard]] std::byte* inside() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

/// Slots go round: the thread takes a free one, fills it, and publishes it by one store; the scheduler's thread gives it back when it has
/// been sent or has begun, in any order. Entries that a thread has not published do not exist for the other side.
class gate_lane : public list_node<gate_lane> {
public:
    enum class put_result : std::uint8_t { done, full, closed };

    /// `shared`: there are several peers, each of which has its share.
    gate_lane(task_port& port, const gate_options& options, bool shared);
    gate_lane(const gate_lane&) = delete;
    gate_lane& operator=(const gate_lane&) = delete;

    // The thread that has the lane.

    [[nodiscard]] gate_flow& flow(std::uint32_t peer) {
        if (last_ != nullptr && last_->peer == peer) [[likely]]
            return *last_;
        return find_flow(peer);
    }
    /// By a copy.
    [[nodiscard]] put_result put(gate_flow& to, const const_buffers& from, tag_type tag) noexcept {
        gate_slot* const slot = claim(to);
        if (slot == nullptr) [[unlikely]]
            return why_not();
        slot->tag = tag;
        slot->bytes = static_cast<std::uint32_t>(from.size());
        slot->kind = gate_slot::content::inside;
        std::byte* at = slot->inside();
        for (std::size_t i = 0; i < from.pieces(); ++i) {
            if (from[i].empty()) continue;
            std::memcpy(at, from[i].data(), from[i].size());
            at += from[i].size();
        }
        return publish(*slot, to);
    }
    /// From where it is: `loan` stays until it is back.
    [[nodiscard]] put_result lend(gate_flow& to, gate_loan& loan, tag_type tag) noexcept;
    /// A call, which is to begin in its turn.
    [[nodiscard]] put_result call(gate_flow& to, remote_base& what) noexcept;
    /// For one more to that peer.
    [[nodiscard]] bool has_room(gate_flow& to) noexcept {
        if (fits(to)) [[likely]]
            return true;
        to.seen_back = to.back.load(std::memory_order_acquire);
        seen_back_ = back_.load(std::memory_order_acquire);
        return fits(to);
    }
    /// The thread sleeps until some of what it has put for that peer is back, or so much of the rest that there is room. False: the gate has ended,
    /// or `until` has passed.
    [[nodiscard]] bool wait_for_room(gate_flow& to, time_point until) noexcept;
    /// Until all that it has put is back.
    [[nodiscard]] bool wait_until_back(time_point until) noexcept;
    /// Until that is, which was lent; the end of the gate is no reason to go: the scheduler's thread uses it until it has given it back.
    void wait_until_back(const gate_loan& loan) noexcept;
    [[nodiscard]] bool all_back() const noexcept { return back_.load(std::memory_order_acquire) == put_; }
    /// `one` looks again when there may be room for that peer, behind others that wait for it.
    void enlist(gate_flow& to, gate_wait& one) noexcept;
    /// `one` looks again when more is back; it waits for all.
    void enlist(gate_wait& one) noexcept;
    /// It waits no longer, and is in no list any more. `to`: the peer for which it waited for room.
    void forget(gate_wait& one, gate_flow* to = nullptr) noexcept;
    /// The first error since the last time; nothing: none. `why`: the exception with its text, where there was one.
    [[nodiscard]] std::error_code take_error(std::uint32_t& peer, std::exception_ptr& why) noexcept;
    [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
    [[nodiscard]] task_port& port() const noexcept { return port_; }
    /// Peers for which something is there, or was a while ago.
    [[nodiscard]] std::size_t flows() const noexcept { return flows_.size(); }

    /// The two steps by which a thread that has put something wakes the scheduler's thread, between which the lane may rest, or the gate end. True: it
    /// has to post the news.
    [[nodiscard]] bool asks_to_look() noexcept {
        return !interested_.exchange(true, std::memory_order_seq_cst);
    }
    [[nodiscard]] put_result post_news() noexcept;

    // The scheduler's thread.

    /// nullptr: none.
    [[nodiscard]] gate_slot* take() noexcept {
        if (taken_ == seen_tail_) {
            seen_tail_ = ending_ ? claim_tail() : tail_.load(std::memory_order_acquire);
            if (taken_ == seen_tail_) return nullptr;
        }
        return ready_[taken_++ & mask_];
    }
    /// There was nothing to take. False: there is now.
    [[nodiscard]] bool rest() noexcept {
        stop_looking();
        return rests();
    }
    /// The two steps of `rest`, between which the thread may put.
    void stop_looking() noexcept { interested_.store(false, std::memory_order_seq_cst); }
    [[nodiscard]] bool rests() noexcept {
        if (!has_some()) return true;
        // The thread has seen that the flag was cleared: with an open port it posts the news. A closed one refuses those.
        return interested_.exchange(true, std::memory_order_seq_cst) && !port_.closed();
    }
    [[nodiscard]] bool has_some() const noexcept {
        return (tail_.load(std::memory_order_seq_cst) & ~claimed) != taken_;
    }
    /// Before the port is closed: what is taken from now on, and what was, has come through the gate, whatever becomes of its news.
    void begin_end() noexcept {
        ending_ = true;
        seen_tail_ = claim_tail();
    }
    /// The thread sees it with the next `publish_back`. `why`: the exception that it failed with, if it was one.
    void give_back(gate_slot& slot, const status& failed, const std::exception_ptr* why = nullptr) noexcept {
        if (slot.kind == gate_slot::content::lent) {
            give_loan_back(*slot.loan, failed, why);
        } else if (failed) [[unlikely]] {
            fail(failed, slot.flow->peer, why);
        }
        std::atomic<std::uint64_t>& of_flow = slot.flow->back;
        free_[given_++ & mask_] = &slot;
        // The thread may drop the flow after this.
        of_flow.store(of_flow.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    void publish_back() noexcept {
        back_.store(given_, std::memory_order_seq_cst);  // pairs with the waits
        if (waits_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
            wake_thread(false);
        loan_back_ = false;
    }
    void wake_thread(bool in_any_case) noexcept;

    /// Whether a thread has it; changed by its `gate_pass` alone, under the lock of the gate.
    bool taken = true;
    // Of the scheduler's thread: `publish_back` is due.
    bool due = false;
    gate_lane* next_due = nullptr;
    struct news_node : posted_node {
        gate_lane* lane = nullptr;
        void* gate = nullptr;
    } news;  // posted while `interested_`

private:
    /// A free slot for that peer; nullptr: there is none.
    [[nodiscard]] gate_slot* claim(gate_flow& to) noexcept {
        if (refused_ || !has_room(to)) [[unlikely]]
            return nullptr;
        gate_slot* const slot = free_[put_ & mask_];
        slot->flow = &to;
        return slot;
    }
    [[nodiscard]] put_result publish(gate_slot& slot, gate_flow& to) noexcept {
        ready_[put_ & mask_] = &slot;
        ++to.put;
        ++put_;
        // Pairs with `rest`: the tail is published, and then the flag read; there the flag is cleared, and then the tail read.
        tail_.store(put_, std::memory_order_seq_cst);
        if (!interested_.load(std::memory_order_seq_cst)) [[unlikely]]
            return wake();
        return put_result::done;
    }
    [[nodiscard]] put_result why_not() const noexcept {
        return port_.closed() ? put_result::closed : put_result::full;
    }
    /// A peer that takes nothing leaves room for others: it has half as many slots as are free at most, a quarter of all not counted, which are
    /// kept for peers that have none.
    [[nodiscard]] bool fits(const gate_flow& to) const noexcept {
        const std::uint64_t free = mask_ + 1 - (put_ - seen_back_);
        if (!shared_) return free != 0;
        const std::uint64_t has = to.put - to.seen_back;
        return has == 0 ? free != 0 : 2 * has + kept_ < free;
    }
    [[nodiscard]] gate_flow& find_flow(std::uint32_t peer);
    void drop_flows() noexcept;
    [[nodiscard]] put_result wake() noexcept;
    [[nodiscard]] std::uint64_t claim_tail() noexcept;
    void fail(const status& with, std::uint32_t peer, const std::exception_ptr* why) noexcept;
    void give_loan_back(gate_loan& loan, const status& failed, const std::exception_ptr* why) noexcept;

    /// The thread sleeps until `met()`, which is looked at when so many are back in all, and when a loan is; or until `over()`.
    template <class Met, class Over>
    [[nodiscard]] bool sleep(std::uint64_t look_at, time_point until, Met met, Over over) noexcept;
    /// The same, until the gate has ended or `until` has passed.
    template <class Met>
    [[nodiscard]] bool sleep(std::uint64_t look_at, time_point until, Met met) noexcept;
    [[nodiscard]] std::uint64_t outstanding(const gate_flow& of) const noexcept {
        return of.put - of.back.load(std::memory_order_seq_cst);
    }
    // Coroutines that wait: this thread's scheduler is told when so many are back.
    void serve_waits() noexcept;
    void begin_waiting() noexcept;
    void await_back() noexcept;
    [[nodiscard]] bool disarm() noexcept;
    static void look_here(posted_node& at) noexcept;

    // How a thread of the lane's waits, in `waits_`.
    static constexpr std::uint32_t sleeps = 1;
    static constexpr std::uint32_t awaits = 2;
    struct here_node : posted_node {
        gate_lane* lane = nullptr;
    };

    task_port& port_;
    std::size_t mask_;
    std::size_t kept_;
    bool shared_;
    std::size_t message_bytes_;
    std::unique_ptr<std::byte[]> memory_;
    std::unique_ptr<gate_slot*[]> free_;   // by the number of the message that takes it
    std::unique_ptr<gate_slot*[]> ready_;  // by the number of the message

    // The thread's.
    alignas(64) std::uint64_t put_ = 0;
    std::uint64_t seen_back_ = 0;
    gate_flow* last_ = nullptr;
    bool refused_ = false;  // the gate has ended, and what was put last is not taken
    std::unordered_map<std::uint32_t, gate_flow> flows_;
    std::size_t most_flows_;  // before those are dropped of which all is back
    intrusive_list<gate_flow> waiting_flows_;
    intrusive_list<gate_wait> flushes_;
    bool armed_ = false;  // `waits_` is or was `awaits`, and `here_` has not been called since
    // With `claimed`: the scheduler's thread takes all up to it. Where that is not set, the thread takes its last entry back if its news is refused.
    std::atomic<std::uint64_t> tail_{0};
    static constexpr std::uint64_t claimed = std::uint64_t{1} << 63;

    // The scheduler's.
    alignas(64) std::uint64_t taken_ = 0;
    std::uint64_t seen_tail_ = 0;
    bool ending_ = false;
    std::uint64_t given_ = 0;
    bool loan_back_ = false;
    std::error_code error_;
    std::uint32_t error_peer_ = 0;
    std::exception_ptr error_why_;
    std::atomic<bool> failed_{false};
    std::atomic<std::uint64_t> back_{0};

    alignas(64) std::atomic<bool> interested_{false};  // `news` is posted, or the scheduler takes messages
    std::atomic<std::uint32_t> waits_{0};
    std::atomic<std::uint64_t> look_at_{0};
    scheduler* waiter_ = nullptr;  // set before `waits_` is `awaits`
    here_node here_;
    std::atomic<bool> told_{false};  // the post of `here_` has returned
};

}  // namespace detail
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/gate_lane.ipp>
#endif
