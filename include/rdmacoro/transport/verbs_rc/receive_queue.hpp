// receive_queue: slots to receive into, and the device's queue that they are posted to: one that links share, or one link's own.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/transport/detail/receive_pool.hpp>
#include <rdmacoro/transport/verbs_rc/slots.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmacoro::detail::verbs {

struct refill_tag;
class receive_queue;

/// Of a domain: what all of its receive queues have in common.
struct receive_totals {
    std::size_t most_lent = 0;  // slots that readers of lent messages may hold
    std::size_t lent = 0;
    std::uint64_t posts = 0;                            // calls that gave the device slots
    intrusive_list<receive_queue, refill_tag> refills;  // those with slots to be posted
};

/// Lends slots to readers, too, which may give them back after the end of the link: it lives as long as its domain.
class receive_queue final : public list_node<refill_tag> {
public:
    receive_queue(slot_pool& slots, receive_totals& totals) noexcept
        : slots_(slots), totals_(totals), pool_(slots, totals.most_lent) {}
    receive_queue(const receive_queue&) = delete;
    receive_queue& operator=(const receive_queue&) = delete;
    ~receive_queue() { unlink(); }

    /// Slots go to `queue`, which links share.
    void open_shared(ibv_srq* queue) noexcept { shared_ = queue; }
    /// Slots go to the receive queue of `owner`, a queue pair, from the next `post` on. Its completions come until it is destroyed.
    void open_own(ibv_qp* owner) noexcept { own_ = owner; }

    /// Slots for one more link; they are posted by the next `post`. False: there is no memory.
    [[nodiscard]] bool add_wanted(std::size_t count) noexcept;
    void remove_wanted(std::size_t count) noexcept { pool_.remove_wanted(count); }
    /// The queue pair is in its error state, or destroyed: nothing is posted to it any more.
    void close_own() noexcept {
        own_ = nullptr;
        unlink();
    }
    /// After that: its link's slots are wanted no more, and its completions were polled: takes all slots back.
    void withdraw() noexcept;

    /// Hands slots to the device. Before, a queue pair must have left its first state.
    void post() noexcept;
    /// Whether the device has slots of a queue that is one link's own.
    [[nodiscard]] bool any_posted() const noexcept { return !posted_.empty(); }
    [[nodiscard]] const receive_pool<slot_pool>& pool() const noexcept { return pool_; }
    /// Grows each time that slots were posted.
    [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
    /// Whether the last recycled slot was not needed.
    [[nodiscard]] bool surplus() const noexcept { return pool_.surplus(); }

    /// The device has completed a slot that was posted here. False: it was taken back before, as the device is gone.
    [[nodiscard]] bool arrived(slot& s) noexcept {
        if (shared_ == nullptr) [[unlikely]] {
            if (s.place >= posted_.size() || posted_[s.place] != &s) return false;
            forget(s);
        }
        pool_.arrived();
        return true;
    }
    /// Its frame is consumed.
    void recycle(slot& s) noexcept {
        pool_.recycle(s);
        refill();
    }

    /// The slot of a frame is lent to a reader. False: as many are lent as may be.
    [[nodiscard]] bool lend(slot& s) noexcept {
        if (totals_.lent == totals_.most_lent || !pool_.lend(s)) return false;
        ++totals_.lent;
        refill();
        return true;
    }
    void give_back_lent(slot& s) noexcept {
        --totals_.lent;
        pool_.give_back_lent(s);
    }

private:
    void refill() noexcept {
        if (pool_.queued() != 0 && !linked()) totals_.refills.push_back(*this);
    }
    void forget(slot& s) noexcept {
        posted_[s.place] = posted_.back();
        posted_[s.place]->place = s.place;
        posted_.pop_back();
    }

    slot_pool& slots_;
    receive_totals& totals_;
    receive_pool<slot_pool> pool_;
    ibv_srq* shared_ = nullptr;
    ibv_qp* own_ = nullptr;
    std::uint64_t epoch_ = 1;
    std::vector<slot*> posted_;  // to a queue of one link, which ends before them
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/receive_queue.ipp>
#endif
