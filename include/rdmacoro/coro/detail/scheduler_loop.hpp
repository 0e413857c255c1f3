// The scheduler's loop, its posts and its parking. Included by scheduler.hpp alone.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>

#include <array>
#include <cstdint>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

namespace rdmacoro {

inline scheduler::~scheduler() {
    run_posted();
    while (!services_.empty()) services_.pop_back();
    while (sources_.pop_front() != nullptr) {}  // they may outlive us
    if (wake_fd_ >= 0) ::close(wake_fd_);
}

inline bool scheduler::take_batch() noexcept {
    if (batch_ != nullptr) return true;
    // Only what is ready now: a coroutine that makes itself ready again must not keep the network waiting.
    batch_ = ready_head_;
    ready_head_ = nullptr;
    ready_tail_ = &ready_head_;
    return batch_ != nullptr;
}

inline bool scheduler::run_ready() noexcept {
    if (narrowed_ != nullptr) [[unlikely]]
        return run_narrowed();
    if (!take_batch()) return false;
    while (detail::ready_node* node = batch_) {
        batch_ = node->next_ready;  // the frame that holds the node may be gone after resume
        resume(node->waiter);
    }
    return true;
}

inline bool scheduler::run_narrowed() noexcept {
    narrowed& here = *narrowed_;
    resume_put_off(
        here);  // some may have become part of the scope: who is in it may have begun to wait for them
    if (!take_batch()) return false;
    bool any = false;
    while (detail::ready_node* node = batch_) {
        batch_ = node->next_ready;
        if (node->stop.is_part_of(*here.to)) {
            resume(node->waiter);
            any = true;
        } else {
            node->next_ready = nullptr;
            *here.tail = node;
            here.tail = &node->next_ready;
        }
    }
    return any;
}

inline bool scheduler::turn() noexcept {
    bool any = run_ready();
    if (posted_.load(std::memory_order_relaxed) != nullptr || arrived_head_ != nullptr) any |= run_posted();
    for (progress_source* source = sources_.front(); source != nullptr;) {
        progress_source* next = sources_.next(*source);
        any |= source->poll();
        source = next;
    }
    // Reading the clock costs as much as a poll: for its timers a busy loop does so every 64th turn, one that spins every
    // 16th, one that yields or sleeps each turn.
    if (!timers_.empty() && (any ? ++turns_ % 64 == 0 : spins_ % 16 == 0))
        any |= timers_.expire(time_->now());
    return any || ready_head_ != nullptr;
}

inline void scheduler::post(detail::posted_node& node) noexcept {
    detail::posted_node* head = posted_.load(std::memory_order_relaxed);
    do {
        node.next_posted = head;
    } while (
        !posted_.compare_exchange_weak(head, &node, std::memory_order_seq_cst, std::memory_order_relaxed));
    // Pairs with park(): it says that it is parked and then looks for posts; this posts and then looks. One of many
    // posters wakes it.
    if (parked_.load(std::memory_order_seq_cst) && parked_.exchange(false, std::memory_order_seq_cst)) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
    }
}

inline void scheduler::collect_posted() noexcept {
    detail::posted_node* newest = posted_.exchange(nullptr, std::memory_order_acquire);
    if (newest == nullptr) return;
    detail::posted_node** const end = &newest->next_posted;
    detail::posted_node* oldest = nullptr;  // reverse: first posted, first called
    while (newest != nullptr) {
        detail::posted_node* next = newest->next_posted;
        newest->next_posted = oldest;
        oldest = newest;
        newest = next;
    }
    *arrived_tail_ = oldest;
    arrived_tail_ = end;
}

inline bool scheduler::run_posted() noexcept {
    collect_posted();
    bool any = false;
    while (detail::posted_node* node = arrived_head_) {
        arrived_head_ = node->next_posted;
        if (arrived_head_ == nullptr) arrived_tail_ = &arrived_head_;
        node->call(*node);
        any = true;
    }
    return any;
}

inline bool scheduler::withdraw(detail::posted_node& node) noexcept {
    collect_posted();
    for (detail::posted_node** at = &arrived_head_; *at != nullptr; at = &(*at)->next_posted) {
        if (*at != &node) continue;
        *at = node.next_posted;
        if (*at == nullptr) arrived_tail_ = at;
        return true;
    }
    return false;
}

inline void scheduler::idle() noexcept {
    idling_ = true;
    const std::uint32_t spins = std::exchange(spins_, 0);
    if (!timers_.empty() && time_->advance_to(timers_.earliest())) return;
    switch (idle_->next(*time_)) {
        case idle::action::spin:
            // Without a pause instruction: a turn takes longer than one, and it would delay the next poll.
            spins_ = spins + 1;
            return;
        case idle::action::yield: ::sched_yield(); return;
        case idle::action::park: park(); return;
    }
}

inline void scheduler::park() noexcept {
    if (wake_fd_ < 0) {
        wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (wake_fd_ < 0) {
            ::sched_yield();
            return;
        }
    }
    parked_.store(true, std::memory_order_seq_cst);
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) s->arm();
    // Arm, look once more, sleep: what came before the arming is found here, what comes after it wakes the sleep.
    // The load pairs with post(); turn() looks too, but not in an order that other threads can rely on.
    if (posted_.load(std::memory_order_seq_cst) == nullptr && !turn()) {
        if (!sleep_until_woken()) ::sched_yield();
    } else {
        moved();
    }
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) s->disarm();
    parked_.store(false, std::memory_order_relaxed);
}

inline bool scheduler::sleep_until_woken() noexcept {
    std::array<pollfd, 64> fds{};
    nfds_t count = 0;
    fds[count++] = {wake_fd_, POLLIN, 0};
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) {
        const int fd = s->wake_fd();
        if (fd < 0 || count == fds.size()) return false;
        fds[count++] = {fd, POLLIN, 0};
    }
    timespec limit{};
    timespec* wait = nullptr;
    if (!timers_.empty()) {
        const duration left = timers_.earliest() - time_->now();
        if (left <= duration::zero()) return true;
        limit.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
        limit.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
        wait = &limit;
    }
    ++parks_;
    const int ready = ::ppoll(fds.data(), count, wait, nullptr);
    if (ready > 0 && fds[0].revents != 0) {
        std::uint64_t drained = 0;
        [[maybe_unused]] const auto taken = ::read(wake_fd_, &drained, sizeof drained);
    }
    return true;
}

}  // namespace rdmacoro
