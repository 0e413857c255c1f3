// The scheduler's loop, its posts and its parking. Its part as a guest of another event loop: scheduler_guest.ipp.
#pragma once

#include <rdmacoro/coro/detail/described.hpp>
#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/detail/scheduler_list.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <exception>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

namespace rdmacoro {

namespace detail {
RDMACORO_COLD void scheduler_list::add(scheduler& made) noexcept {
    lock();
    made.next_of_all_ = first_;
    first_ = &made;
    unlock();
}

RDMACORO_COLD void scheduler_list::remove(scheduler& gone) noexcept {
    lock();
    scheduler** at = &first_;
    while (*at != nullptr && *at != &gone) at = &(*at)->next_of_all_;
    if (*at != nullptr) *at = gone.next_of_all_;
    unlock();
}

RDMACORO_COLD bool scheduler_list::has(const scheduler* asked) noexcept {
    lock();
    const scheduler* at = first_;
    while (at != nullptr && at != asked) at = at->next_of_all_;
    unlock();
    return at != nullptr;
}

RDMACORO_COLD bool scheduler_list::empty() noexcept {
    lock();
    const bool none = first_ == nullptr;
    unlock();
    return none;
}
}  // namespace detail

RDMACORO_COLD scheduler::scheduler(idle_base* strategy, clock& time) try
    : time_(&time),
      ticks_to_trust_(&time == &monotonic_clock::instance() ? detail::ticks_in_microseconds() : 0),
      idle_(strategy) {
    detail::all_schedulers.add(*this);
} catch (...) {
    delete strategy;
}

/// What a coroutine has left before others must have their turn. One that runs the scheduler itself, as a destructor that waits does, gets
/// no more by it.
struct scheduler::allowance {
    explicit allowance(const scheduler& of) noexcept
        : at_once(of.at_once_),
          renewals(of.renewals_),
          between_looks(of.at_once_between_looks_),
          slice_began(of.slice_began_) {}
    void restore(scheduler& to) const noexcept {
        to.at_once_ = at_once;
        to.renewals_ = renewals;
        to.at_once_between_looks_ = between_looks;
        // `worked_at` does not go back.
        if (to.posts_began_ < to.slice_began_) to.posts_began_ = to.slice_began_;
        to.slice_began_ = slice_began;
    }

    std::int32_t at_once;
    std::int32_t renewals;
    std::int32_t between_looks;
    time_point slice_began;
};

/// Makes a scheduler the thread's current one with its scope, and restores both.
struct scheduler::run_scope {
    run_scope(scheduler& now_current, narrowed* scope) noexcept
        : of(now_current),
          former_thread(claim(of)),
          former(current_),
          former_scope(std::exchange(of.narrowed_, scope)),
          former_exceptions(std::exchange(of.exceptions_below_, std::uncaught_exceptions())),
          former_allowance(of) {
        enter();
    }
    /// Stays in the scope that it has.
    explicit run_scope(scheduler& now_current) noexcept
        : of(now_current),
          former_thread(claim(of)),
          former(current_),
          former_scope(of.narrowed_),
          former_exceptions(std::exchange(of.exceptions_below_, std::uncaught_exceptions())),
          former_allowance(of) {
        enter();
    }
    void enter() const noexcept {
        current_ = &of;
        if (of.waits_outside_) [[unlikely]]
            of.end_wait_outside();
        if (former_scope != nullptr) of.resume_deferred(*former_scope);
        // Where a timer's function runs the scheduler, that takes the ready list apart.
        of.first_by_timers_ = nullptr;
        of.note_order();
    }
    ~run_scope() {
        narrowed* const scope = std::exchange(of.narrowed_, former_scope);
        if (scope != nullptr) of.resume_deferred(*scope);
        of.note_order();
        of.exceptions_below_ = former_exceptions;
        former_allowance.restore(of);
        of.thread_.store(former_thread, std::memory_order_relaxed);
        current_ = former;
    }
    run_scope(const run_scope&) = delete;
    run_scope& operator=(const run_scope&) = delete;

    /// Before anything else of the scheduler is touched. Returns the thread that it ran on, which is this one, or 0.
    static int claim(scheduler& of) noexcept {
        int ran_on = 0;
        const int here = detail::this_thread();
        if (!of.thread_.compare_exchange_strong(ran_on, here, std::memory_order_relaxed) && ran_on != here)
            detail::run_twice(of);
        of.last_thread_.store(here, std::memory_order_relaxed);
        return ran_on;
    }

    scheduler& of;
    int former_thread;  // 0: it did not run
    scheduler* former;
    narrowed* former_scope;
    int former_exceptions;
    allowance former_allowance;
};

RDMACORO_COLD scheduler::~scheduler() {
    detail::all_schedulers.remove(*this);
    // Also what those post; one that posts itself again and again is left out in the end.
    constexpr unsigned most_rounds = 1000;
    for (unsigned round = 0; round < most_rounds && run_posted(); ++round) {}
    while (service_base* const last = services_) {
        services_ = last->next;
        delete last;
    }
    if (children_ != 0)
        detail::fatal("a scheduler was destroyed before child coroutines of it had ended; join or destroy "
                      "their owner first");
    while (sources_.pop_front() != nullptr) {}  // they may outlive the scheduler
    while (parked_waits_.pop_front() != nullptr) {}
    while (described_.pop_front() != nullptr) {}
    if (wake_fd_ >= 0) ::close(wake_fd_);
    if (outside_fd_ >= 0) ::close(outside_fd_);
    delete idle_;
}

template <class Done>
void scheduler::loop(Done done) {
    while (!done()) {
        if (one_turn()) {
            progressed();
            continue;
        }
        if (done()) return;
        idle();
    }
}

RDMACORO_COLD void scheduler::run_until(bool (*done)(void*), void* context, const local_stop_source* scope) {
    narrowed here{scope, done, context};
    const run_scope current(*this, scope != nullptr ? &here : nullptr);
    ++nested_;
    loop([=] { return done(context); });
    --nested_;
}

RDMACORO_COLD scheduler::service_base* scheduler::find_service(const void* key) const noexcept {
    service_base* at = services_;
    while (at != nullptr && at->key != key) at = at->next;
    return at;
}

/// Coroutines that were deferred by a scope are ready again, before all others: also before the rest of the batch that they were in.
RDMACORO_COLD void scheduler::resume_deferred(narrowed& from) noexcept {
    if (from.head == nullptr) return;
    detail::ready_node*& first = batch_ != nullptr ? batch_ : ready_head_;
    *from.tail = first;
    if (first == nullptr) ready_tail_ = from.tail;
    first = std::exchange(from.head, nullptr);
    from.tail = &from.head;
}

RDMACORO_DECL void scheduler::progressed() noexcept {
    if (!idling_) return;
    idling_ = false;
    idle_->progress(timers_alone_);
}

RDMACORO_DECL bool scheduler::take_batch() noexcept {
    if (batch_ != nullptr) return true;
    // Only the coroutines that are ready now: one that makes itself ready again must not keep the network waiting.
    batch_ = ready_head_;
    ready_head_ = nullptr;
    ready_tail_ = &ready_head_;
    return batch_ != nullptr;
}

RDMACORO_DECL bool scheduler::run_ready() noexcept {
    if (orders_) [[unlikely]]
        return run_in_order();
    if (!take_batch()) return false;
    slice_began_ = seen_;
    while (detail::ready_node* node = batch_) {
        batch_ = node->next_ready;  // the frame that holds the node may be destroyed after resume
        resume_ready(node->waiter);
        if (seen_ - slice_began_ >= slice) break;  // the others after the timers, posts and sources
    }
    return true;
}

RDMACORO_DECL bool scheduler::resume_or_defer(detail::ready_node& node) noexcept {
    if (narrowed_ == nullptr || node.stop.is_part_of(*narrowed_->to)) {
        resume_ready(node.waiter);
        return true;
    }
    node.next_ready = nullptr;
    *narrowed_->tail = &node;
    narrowed_->tail = &node.next_ready;
    return false;
}

RDMACORO_DECL bool scheduler::run_in_order() noexcept {
    // Some deferred ones may have become part of the scope: a coroutine of the scope may have begun to await them.
    if (narrowed_ != nullptr) resume_deferred(*narrowed_);
    slice_began_ = seen_;
    bool any = false;
    while (detail::ready_node* node = due_head_) {
        if (any && seen_ - slice_began_ >= slice) break;
        due_head_ = node->next_ready;
        if (due_head_ == nullptr) due_tail_ = &due_head_;
        if (!resume_or_defer(*node)) continue;
        if (waits_no_longer()) return true;
        any = true;
    }
    note_order();
    // These have a slice of their own, and at least one its turn: coroutines that are due again by every turn, as they sleep for no time or
    // are thousands, keep none of them waiting.
    slice_began_ = seen_;
    bool others = false;
    take_batch();
    while (detail::ready_node* node = batch_) {
        if (others && seen_ - slice_began_ >= slice) break;
        batch_ = node->next_ready;
        if (!resume_or_defer(*node)) continue;
        if (waits_no_longer()) return true;
        others = true;
    }
    any |= others;
    if (any || narrowed_ == nullptr || narrowed_->head == nullptr) return any;
    // A coroutine of the scope may wait for one of these, by an awaitable that says nothing of that, or for long. They go on above this
    // frame, and may come to wait in a destructor themselves.
    if (unbound_ == 0 && (unstopped_ == 0 || nested_ > most_nested)) return any;
    resume_deferred(*narrowed_);
    take_batch();
    while (detail::ready_node* node = batch_) {
        batch_ = node->next_ready;
        resume_ready(node->waiter);
        if (seen_ - slice_began_ >= slice) break;
    }
    return true;
}

RDMACORO_DECL bool scheduler::expire_timers() noexcept {
    constexpr std::size_t most_between_looks = 32;
    const time_point due = seen_;
    first_by_timers_ = ready_tail_;
    std::size_t count = timers_.expire(due, most_between_looks);
    const bool any = count != 0;
    if (count == most_between_looks) {
        look();
        for (const time_point began = seen_; count == most_between_looks && seen_ - began < slice; look())
            count =
                timers_.expire(due, most_between_looks);  // the others after coroutines, posts and sources
    }
    detail::ready_node** const from = std::exchange(first_by_timers_, nullptr);
    if (from == nullptr || *from == nullptr) return any;
    *due_tail_ = *from;
    due_tail_ = ready_tail_;
    *from = nullptr;
    ready_tail_ = from;
    orders_ = true;
    return any;
}

RDMACORO_COLD bool scheduler::renew_at_once() noexcept {
    const time_point before = seen_;
    look();
    if (seen_ - slice_began_ >= slice || renewals_ <= 0) {
        // When each takes long there are fewer before the first look.
        if (renewals_ == most_renewals && at_once_before_look_ > 1) at_once_before_look_ /= 2;
        renewals_ = 0;  // and so for all that still runs in this resumption
        at_once_ = 0;
        return false;
    }
    const bool first = renewals_ == most_renewals;
    if (first) at_once_between_looks_ = at_once_before_look_;
    if (seen_ - before >= slow) {
        if (at_once_between_looks_ > 1) at_once_between_looks_ /= 2;
    } else {
        if (at_once_between_looks_ < most_at_once_between_looks) at_once_between_looks_ *= 2;
        if (first && at_once_before_look_ < most_at_once_before_look) at_once_before_look_ *= 2;
    }
    --renewals_;
    at_once_ = at_once_between_looks_ - 1;
    return true;
}

RDMACORO_DECL void scheduler::resume_child(std::coroutine_handle<> next) noexcept {
    const std::int32_t before = at_once_;
    if (before < 1) at_once_ = 1;
    resume(next);
    // The caller counts as one itself.
    if (before < 1) {
        at_once_ = before;
    } else if (at_once_ < 1) {
        at_once_ = 1;
    }
}

/// Reads the clock if the time last seen is no longer good enough: the counter of ticks costs a third of the clock.
RDMACORO_DECL void scheduler::look() noexcept {
    const std::uint64_t now = ticks_to_trust_ != 0 ? detail::ticks() : 0;
    if (now - seen_ticks_ < ticks_to_trust_) return;
    seen_ticks_ = now;
    seen_ = time_->now();
}

/// As `look`, once in several turns without work, which are polls: as many of them as pass in a few microseconds.
RDMACORO_DECL void scheduler::look_while_idle() noexcept {
    constexpr duration too_long = std::chrono::microseconds(8);
    const time_point before = seen_;
    look();
    if (seen_ - before > too_long) {
        look_every_ /= 2;
    } else if (look_every_ < most_turns_to_look) {
        look_every_ = 2 * look_every_ + 1;
    }
    turns_to_look_ = look_every_;
}

RDMACORO_DECL bool scheduler::turn() noexcept {
    const run_scope current(*this);
    return one_turn();
}

RDMACORO_DECL bool scheduler::one_turn() noexcept {
    bool any = run_ready();
    if (posted_.load(std::memory_order_relaxed) != nullptr || arrived_head_ != nullptr) {
        any |= run_posted_for_a_slice();
    }
    if (!any) {
        if (turns_to_look_ == 0) {
            look_while_idle();
        } else {
            --turns_to_look_;
        }
    }
    // A poll may remove any of them. Where it runs the scheduler, that polls all, and none is left.
    next_source_ = sources_.front();
    while (progress_source* const source = next_source_) {
        next_source_ = sources_.next(*source);
        any |= source->poll();
    }
    timers_alone_ = false;
    if (!timers_.empty() && timers_.earliest() <= seen_) {
        timers_alone_ = !any;
        any |= expire_timers();
    }
    if (handed_over_) [[unlikely]] {
        resume(std::exchange(handed_over_, {}));
        any = true;
    }
    return any || ready_head_ != nullptr || batch_ != nullptr;
}

RDMACORO_DECL void scheduler::post(detail::posted_node& node) noexcept {
    detail::posted_node* head = posted_.load(std::memory_order_relaxed);
    do {
        node.next_posted = head;
    } while (
        !posted_.compare_exchange_weak(head, &node, std::memory_order_seq_cst, std::memory_order_relaxed));
    // Pairs with park(), which sets `parked_` and then looks for posts; this posts and then looks at `parked_`. One of
    // many posters wakes it.
    if (parked_.load(std::memory_order_seq_cst) && parked_.exchange(false, std::memory_order_seq_cst)) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
    }
}

RDMACORO_DECL void scheduler::collect_posted() noexcept {
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

RDMACORO_DECL void scheduler::call_next_posted() noexcept {
    detail::posted_node* const node = arrived_head_;
    arrived_head_ = node->next_posted;
    if (arrived_head_ == nullptr) arrived_tail_ = &arrived_head_;
    node->call(*node);
}

RDMACORO_DECL bool scheduler::run_posted() noexcept {
    const run_scope current(*this, nullptr);  // they may spawn, whatever runs them
    collect_posted();
    bool any = false;
    while (arrived_head_ != nullptr) {
        call_next_posted();
        any = true;
    }
    return any;
}

RDMACORO_DECL bool scheduler::run_posted_for_a_slice() noexcept {
    collect_posted();
    if (arrived_head_ == nullptr) return false;
    look();  // it may have slept
    const time_point began = posts_began_ = seen_;
    do {
        call_next_posted();
        look();
    } while (arrived_head_ != nullptr && seen_ - began < slice);  // the others after the sources and timers
    return true;
}

RDMACORO_COLD bool scheduler::withdraw(detail::posted_node& node) noexcept {
    collect_posted();
    for (detail::posted_node** at = &arrived_head_; *at != nullptr; at = &(*at)->next_posted) {
        if (*at != &node) continue;
        *at = node.next_posted;
        if (*at == nullptr) arrived_tail_ = at;
        return true;
    }
    return false;
}

RDMACORO_DECL time_point scheduler::sleeps_until() const noexcept {
    return !timers_.empty() && timers_.first().of_sleep ? timers_.earliest() : time_point::max();
}

RDMACORO_DECL void scheduler::idle() noexcept {
    if (!idling_) {
        idling_ = true;
        idle_->wait_begins(sleeps_until());
    }
    if (!timers_.empty() && time_->advance_to(timers_.earliest())) {
        turns_to_look_ = 0;
        return;
    }
    switch (idle_->next(*time_)) {
        // Without a pause instruction: a turn takes longer than one, and it would delay the next poll.
        case idle::action::spin: return;
        case idle::action::yield: ::sched_yield(); break;
        case idle::action::park: park(); break;
    }
    turns_to_look_ = 0;
}

RDMACORO_COLD bool scheduler::make_wake_fd() noexcept {
    if (wake_fd_ < 0) wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return wake_fd_ >= 0;
}

RDMACORO_COLD void scheduler::park() noexcept {
    static_cast<void>(make_wake_fd());  // without it the sleep is short
    parked_.store(true, std::memory_order_seq_cst);
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) s->arm();
    // Arm, look once more, sleep: work that came before the arming is found here, later work wakes the sleep.
    // The load pairs with post(); turn() looks too, but not in an order that other threads can rely on.
    if (posted_.load(std::memory_order_seq_cst) == nullptr && !one_turn()) {
        if (!sleep_until_woken()) ::sched_yield();
    } else {
        progressed();
    }
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) s->disarm();
    parked_.store(false, std::memory_order_relaxed);
}

RDMACORO_COLD void scheduler::room_for_sources() noexcept {
    // Sources leave without a word.
    sources_added_ = 0;
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) ++sources_added_;
    // Where memory is short it yields instead of parking, and tries again with the next source.
    if (sources_added_ >= sleepers_on_stack) static_cast<void>(sleepers_.try_reserve(sources_added_ + 1));
}

RDMACORO_COLD bool scheduler::sleep_until_woken() noexcept {
    pollfd few[sleepers_on_stack];
    pollfd* const fds = sleepers_.capacity() != 0 ? sleepers_.data() : few;
    const std::size_t most = sleepers_.capacity() != 0 ? sleepers_.capacity() : sleepers_on_stack;
    std::size_t count = 0;
    const int own = wake_fd_;
    fds[count++] = {own, POLLIN, 0};  // one below zero is passed over
    for (progress_source* s = sources_.front(); s != nullptr; s = sources_.next(*s)) {
        const int fd = s->wake_fd();
        if (fd < 0 || count == most) return false;
        fds[count++] = {fd, POLLIN, 0};
    }
    timespec limit{};
    timespec* wait = nullptr;
    // No descriptor was left to be woken by: what other threads post waits so long.
    constexpr duration without_descriptor = std::chrono::milliseconds(1);
    if (!timers_.empty() || own < 0) {
        duration left = timers_.empty() ? without_descriptor : timers_.earliest() - time_->now();
        if (left <= duration::zero()) return true;
        if (own < 0) left = std::min(left, without_descriptor);
        limit.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
        limit.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
        wait = &limit;
    }
    ++parks_;
    const int ready = ::ppoll(fds, count, wait, nullptr);
    if (ready > 0 && fds[0].revents != 0) {
        std::uint64_t drained = 0;
        [[maybe_unused]] const auto taken = ::read(own, &drained, sizeof drained);
    }
    if (ready < 0 && errno == EINVAL) {  // more descriptors are asked for than the process may have by now
        const timespec nap{0, std::chrono::nanoseconds(without_descriptor).count()};
        ::nanosleep(&nap, nullptr);
    }
    return true;
}

namespace detail {
RDMACORO_DECL scheduler& running_scheduler() {
    scheduler* const current = scheduler::current();
    if (current == nullptr) throw_error(errc::invalid_argument, "no scheduler runs on this thread");
    return *current;
}
}  // namespace detail

#if defined(RDMACORO_SEPARATE_COMPILATION)
template struct scheduler::idle_model<idle::adaptive>;
#endif

}  // namespace rdmacoro
