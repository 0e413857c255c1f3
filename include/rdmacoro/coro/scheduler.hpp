// The scheduler: one thread's cooperative loop over ready coroutines, progress sources, timers and posts.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/coro/detail/ticks.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/idle.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/progress_source.hpp>
#include <rdmacoro/coro/timer.hpp>

#include <atomic>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <type_traits>
#include <utility>

#include <poll.h>

namespace rdmacoro {

template <class T>
class task;
template <class T>
class root_task;
class scheduler;
class description;

/// Passed by a coroutine to everything it awaits.
struct environment {
    scheduler* owner = nullptr;  ///< the scheduler that the coroutine runs on
    local_stop_token stop{};     ///< its stop ends an awaited operation with `canceled`
};

namespace detail {
class promise_base;
class parked_wait;
struct described;
class scheduler_list;

/// A coroutine that can be resumed. Lives in the awaiting frame.
struct ready_node {
    ready_node* next_ready = nullptr;
    std::coroutine_handle<> waiter{};
    local_stop_token stop{};  // of the coroutine; also identifies its scopes (`run_until`)
};

/// Whether symmetric transfer to another coroutine uses no stack in every build. g++ before 15 tail-calls only from -O2
/// up and not under every sanitizer.
#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 15)
inline constexpr bool transfers_use_no_stack = true;
#else
inline constexpr bool transfers_use_no_stack = false;
#endif

/// A function for the scheduler's thread to call, posted by any thread.
struct posted_node {
    using function = void (*)(posted_node&) noexcept;
    posted_node* next_posted = nullptr;
    function call = nullptr;
};
}  // namespace detail

/// Runs coroutines on the thread that calls `run`, with everything that they wait for. Only `post` may be called by other
/// threads.
class scheduler {
public:
    /// `Idle` decides whether to spin, yield or park after a turn without progress (see idle.hpp). The clock must
    /// outlive the scheduler.
    template <class Idle = idle::adaptive>
        requires(!std::same_as<Idle, scheduler>) && idle::strategy<Idle>
    explicit scheduler(Idle strategy = Idle{}, clock& time = monotonic_clock::instance())
        : scheduler(new idle_model<Idle>(std::move(strategy)), time) {}

    scheduler(const scheduler&) = delete;
    scheduler& operator=(const scheduler&) = delete;
    /// Calls what was posted. Child coroutines (of task groups, `when_all`, `when_any`, `start`) must have ended: otherwise it
    /// ends the process with a message, as nothing could resume them any more.
    ~scheduler();

    /// Runs until `main` has ended and returns its value, or throws its exception. May be called again, and, with care, by
    /// a coroutine of this scheduler.
    template <class T>
    T run(task<T> main);

    /// As above; `main` and all that it awaits are asked to stop when any thread stops `stop`.
    template <class T>
    T run(task<T> main, std::stop_token stop);

    /// Begins `main` in a later turn, without waiting for it: this does not run the scheduler. See root_task.hpp.
    template <class T>
    [[nodiscard]] root_task<T> start(task<T> main);

    /// As above; `main` and all that it awaits are asked to stop when any thread stops `stop`.
    template <class T>
    [[nodiscard]] root_task<T> start(task<T> main, std::stop_token stop);

    /// For another event loop in this thread. Up to 16 turns, while they make progress and have taken less than 50 µs, or 4 that make none; never waits. True when something happened: see
    /// whether that is what you wait for, and call it again soon. False when there was nothing to do. Also to be called after other code
    /// of this thread has made coroutines ready, for instance by `event::set`.
    ///
    /// The other loop calls `poll`, waits no longer than `prepare_to_wait` says and until `descriptor` is readable, and begins again:
    ///
    ///     auto serving = on.start(serve());
    ///     while (!serving.done()) {
    ///         if (on.poll()) continue;                  // or go back to the other loop, and come again at once
    ///         auto limit = on.prepare_to_wait();
    ///         wait_for_events(on.descriptor(), limit);  // and for the other loop's own: epoll, Asio, ...
    ///     }
    ///     serving.get();
    bool poll() noexcept;

    /// Before another event loop waits: how long it may, and what comes by then makes `descriptor()` readable. Zero when there is
    /// something to do: call `poll` again. Zero always with an idle strategy that never parks, and where a source has no descriptor, such
    /// as some providers of libfabric. `duration::max()` without timers. The next `poll`, `turn` or `run` ends the preparation. Throws
    /// `errc::no_resources` when there is no descriptor left.
    [[nodiscard]] duration prepare_to_wait();

    /// For another event loop: readable (level-triggered) after `prepare_to_wait`, when there is something to do. Remains the scheduler's,
    /// and the same for its life. Readable without need now and then. Throws as `prepare_to_wait`.
    [[nodiscard]] int descriptor();

    /// For what adapts the scheduler to another event loop: `ended` is called whenever a preparation to wait is over: by the loop's own `poll`,
    /// and by a destructor that runs the scheduler, after which the loop may wait, and what comes would not make `descriptor()` readable.
    void on_wait_ended(void (*ended)(void* context) noexcept, void* context) noexcept {
        wait_ended_ = ended;
        wait_ended_context_ = context;
    }

    /// The scheduler that runs on this thread (its `run`, `turn` or destructor is on the stack), or nullptr.
    [[nodiscard]] static scheduler* current() noexcept { return current_; }

    /// The number of the thread that runs it (its `run`, `turn` or destructor is on that thread's stack), or 0. Any thread may ask.
    [[nodiscard]] int running_thread() const noexcept { return thread_.load(std::memory_order_relaxed); }

    /// Whether this thread runs it, or ran it last and no other runs it now, as between the polls of another event loop. Any thread may ask.
    [[nodiscard]] bool belongs_here() const noexcept {
        const int now = running_thread();
        return (now != 0 ? now : last_thread_.load(std::memory_order_relaxed)) == detail::this_thread();
    }

    /// How many exceptions were under way, uncaught, when it began to run.
    [[nodiscard]] int exceptions_below() const noexcept { return exceptions_below_; }

    /// The time by its clock.
    [[nodiscard]] time_point now() noexcept { return time_->now(); }
    /// The time by its clock when the scheduler last looked: costs a load, for the `poll` of a progress source that has
    /// something to do now and then. The scheduler looks after all that coroutines and posted functions did, before it
    /// polls the sources, and about every 10 µs while nothing moves. Meaningless before the first turn.
    [[nodiscard]] time_point coarse_now() const noexcept { return seen_; }
    /// `coarse_now` before coroutines were resumed last, or functions called that were posted. No less than that time of any turn before.
    [[nodiscard]] time_point worked_at() const noexcept {
        return slice_began_ < posts_began_ ? posts_began_ : slice_began_;
    }
    /// Its clock.
    [[nodiscard]] clock& time() noexcept { return *time_; }

    /// One turn: resumes ready coroutines, for 50 µs or one of them for longer, calls posted functions for as long, polls every
    /// source once, fires timers for as long. Coroutines that a timer made ready come before the others in the next turn, in which at least one
    /// of the others is resumed all the same. False when there was no progress.
    bool turn() noexcept;

    /// Called when a child coroutine begins.
    void child_began() noexcept { ++children_; }
    /// Called when a child coroutine has ended.
    void child_ended() noexcept { --children_; }

    /// Called when a coroutine begins and ends to wait for an awaitable without `bind`. While one does, `run_until` with a scope
    /// also resumes the others, when no coroutine of the scope is ready, however many such calls are nested: it may wait for one of them.
    void unbound_wait_began() noexcept { ++unbound_; }
    /// Called when such a wait ends.
    void unbound_wait_ended() noexcept { --unbound_; }

    /// Called when a coroutine begins and ends to wait for what no stop request ends, or not soon. While one does, `run_until` with a
    /// scope also resumes the others when no coroutine of the scope is ready, unless 32 such calls are nested.
    void unstopped_wait_began() noexcept { ++unstopped_; }
    /// Called when such a wait ends.
    void unstopped_wait_ended() noexcept { --unstopped_; }

    /// Turns, and idles as the strategy decides, until `done()` returns true.
    template <class Done>
    void run_until(Done done) {
        run_until(&answer<Done>, &done, nullptr);
    }

    /// As above, but resumes only coroutines with a stop token that is part of `scope`; the others stay ready. For
    /// destructors that wait for the coroutines they own, in a coroutine of this scheduler: any other coroutine that is
    /// resumed on top of it might wait for the one below.
    template <class Done>
    void run_until(Done done, const local_stop_source& scope) {
        run_until(&answer<Done>, &done, &scope);
    }

    /// Whether a destructor waits in `run_until` with a scope: coroutines outside of it are not resumed, and answer nothing.
    [[nodiscard]] bool is_narrowed() const noexcept { return narrowed_ != nullptr; }

    /// The coroutine is resumed in this turn or the next. The node stays in place until then.
    void make_ready(detail::ready_node& node) noexcept {
        node.next_ready = nullptr;
        *ready_tail_ = &node;
        ready_tail_ = &node.next_ready;
    }

    /// Whether a coroutine is ready.
    [[nodiscard]] bool has_ready() const noexcept { return ready_head_ != nullptr || due_head_ != nullptr; }
    /// Whether coroutines are to be resumed after the one that runs and before sources are polled.
    [[nodiscard, gnu::always_inline]] bool others_follow() const noexcept { return batch_ != nullptr; }

    /// Called when an operation ended at once: whether the coroutine may go on. False when so many did since the scheduler
    /// resumed it, or in so much time, that others must have their turn; then it is suspended and made ready.
    [[nodiscard, gnu::always_inline]] bool may_go_on() noexcept {
        if (--at_once_ >= 0) [[likely]]
            return true;
        return renew_at_once();
    }

    /// Resumes a coroutine of this scheduler now, on top of the caller.
    void resume(std::coroutine_handle<> next) noexcept {
        next.resume();
        if constexpr (!detail::transfers_use_no_stack) {
            while (handed_over_) std::exchange(handed_over_, {}).resume();
        }
    }

    /// As `resume`, for a coroutine that awaits one operation for the caller: it may end at once whatever ended before it.
    void resume_child(std::coroutine_handle<> next) noexcept;

    /// Returned by an `await_suspend` to transfer to `next`: `next` itself, or, where the compiler does not guarantee tail
    /// calls, every 64th time a coroutine that does nothing; `resume` then resumes `next` once the stack is unwound, or the turn does, where
    /// what transfers was resumed by its handle.
    [[nodiscard]] std::coroutine_handle<> transfer(std::coroutine_handle<> next) noexcept {
        if constexpr (!detail::transfers_use_no_stack) {
            constexpr std::uint32_t transfers_on_the_stack = 64;
            if (++transfers_ % transfers_on_the_stack == 0 && !handed_over_) {
                handed_over_ = next;
                return std::noop_coroutine();
            }
        }
        return next;
    }

    /// Calls `function` on this scheduler's thread, soon, and wakes it when parked. Thread-safe. Allocates one node.
    template <std::invocable Function>
    void post(Function function) {
        struct owned : detail::posted_node {
            Function function;
            explicit owned(Function&& f) : function(std::move(f)) {}
        };
        auto* node = new owned(std::move(function));
        node->call = [](detail::posted_node& self) noexcept {
            auto* const own = static_cast<owned*>(&self);
            own->function();
            delete own;
        };
        post(*node);
    }

    /// As above without allocation: the node stays in place until its function is called. Thread-safe.
    void post(detail::posted_node& node) noexcept;

    /// Calls all posted functions. True when there were any.
    bool run_posted() noexcept;

    /// Takes back a node after its `post` has returned: its function is not called afterwards. False when it has been
    /// called already.
    bool withdraw(detail::posted_node& node) noexcept;

    void add_timer(detail::timer_node& timer) noexcept { timers_.insert(timer); }
    void remove_timer(detail::timer_node& timer) noexcept { timers_.remove(timer); }

    /// Polls `source` until it is removed or destroyed. It may outlive the scheduler.
    void add_source(progress_source& source) noexcept {
        source.polled_by_ = this;
        sources_.push_back(source);
        if (++sources_added_ >= sleepers_on_stack && sources_added_ >= sleepers_.capacity())
            room_for_sources();
    }
    /// The source is not polled any more. Also in the poll of a source.
    void remove_source(progress_source& source) noexcept { source.unlink(); }

    /// The one `Service` of this scheduler, made on first use from `(scheduler&)` and destroyed with the scheduler, last
    /// made first.
    template <class Service>
    Service& service() {
        if (service_base* const found = find_service(&service_key<Service>))
            return static_cast<service_holder<Service>&>(*found).value;
        auto* const made = new service_holder<Service>(*this);
        made->next = std::exchange(services_, made);
        return made->value;
    }

    /// Every pending operation of this scheduler: its kind, its peer, how far it has come, and which party must act next. Include
    /// `rdmacoro/coro/describe.hpp`. Nothing is recorded for it while messages move: it looks where operations wait. Only on this scheduler's
    /// thread; takes time and memory in proportion to what waits.
    [[nodiscard]] description describe();
    /// Prints the description to the standard error stream whenever nothing has moved for `limit` while operations wait, once for each such
    /// time. It looks four times in that time. Zero: not any more. Include `rdmacoro/coro/describe.hpp`.
    void watch_stalls(duration limit);
    /// Prints the description to the standard error stream at each SIGUSR1 from now on; wakes a parked scheduler. Not together with `signals` of SIGUSR1. The signal belongs to
    /// the toolkit from then on. Throws `errc::no_resources` when 64 schedulers of the process have asked. Include `rdmacoro/coro/describe.hpp`.
    void describe_on_sigusr1();
    /// Prints the description to the standard error stream, under a line that says why.
    void print_description(const char* why) noexcept;

    /// The operations that wait for objects of this program, and those that have ended since and are not resumed yet.
    [[nodiscard]] detail::intrusive_list<detail::parked_wait>& parked_waits() noexcept {
        return parked_waits_;
    }
    /// The objects that hold pending operations.
    [[nodiscard]] detail::intrusive_list<detail::described>& described() noexcept { return described_; }

    /// Whether its idle strategy ever parks.
    [[nodiscard]] bool may_park() const noexcept { return idle_->may_park(); }
    /// How often this scheduler has parked.
    [[nodiscard]] std::uint64_t parks() const noexcept { return parks_; }

private:
    struct idle_base {
        virtual ~idle_base() = default;
        virtual void wait_begins(time_point sleeps_until) noexcept = 0;
        virtual idle::action next(clock& time) noexcept = 0;
        virtual void progress(bool timers_alone) noexcept = 0;
        [[nodiscard]] virtual bool may_park() const noexcept = 0;
    };
    template <class Idle>
    struct idle_model final : idle_base {
        explicit idle_model(Idle&& strategy) : strategy_(std::move(strategy)) {}
        void wait_begins([[maybe_unused]] time_point sleeps_until) noexcept override {
            if constexpr (requires(Idle& s) {
                              { s.wait_begins(sleeps_until) } noexcept;
                          }) {
                strategy_.wait_begins(sleeps_until);
            }
        }
        idle::action next(clock& time) noexcept override { return strategy_.next(time); }
        void progress(bool timers_alone) noexcept override {
            if constexpr (requires(Idle& s) {
                              { s.timer_expired() } noexcept;
                          }) {
                if (timers_alone) return strategy_.timer_expired();
            }
            strategy_.progress();
        }
        [[nodiscard]] bool may_park() const noexcept override {
            if constexpr (requires(const Idle& s) {
                              { s.may_park() } noexcept -> std::same_as<bool>;
                          }) {
                return strategy_.may_park();
            } else {
                return true;
            }
        }
        Idle strategy_;
    };

    struct service_base {
        const void* key = nullptr;
        service_base* next = nullptr;  // made before this
        virtual ~service_base() = default;
    };
    template <class Service>
    struct service_holder final : service_base {
        explicit service_holder(scheduler& owner) : value(owner) { key = &service_key<Service>; }
        Service value;
    };
    template <class Service>
    static constexpr char service_key = 0;
    friend class detail::scheduler_list;
    friend class progress_source;

    /// While a destructor waits: the scope of the coroutines that may be resumed, and the ready ones outside of it.
    struct narrowed {
        const local_stop_source* to;
        bool (*done)(void*);  // what the destructor waits for
        void* context;
        detail::ready_node* head = nullptr;
        detail::ready_node** tail = &head;
    };

    struct allowance;
    struct run_scope;

    scheduler(idle_base* strategy, clock& time);

    template <class Done>
    static bool answer(void* done) {
        return (*static_cast<Done*>(done))();
    }
    /// Of both public ones; without a scope all coroutines are resumed.
    void run_until(bool (*done)(void*), void* context, const local_stop_source* scope);
    template <class Done>
    void loop(Done done);
    /// Runs a task's coroutine until it has ended. Without a promise: throws.
    void run_frame(std::coroutine_handle<> frame, detail::promise_base* promise);
    void run_frame(std::coroutine_handle<> frame, detail::promise_base* promise, const std::stop_token& stop);

    [[nodiscard]] service_base* find_service(const void* key) const noexcept;
    void resume_deferred(narrowed& from) noexcept;
    bool one_turn() noexcept;
    void progressed() noexcept;
    /// Resumes a coroutine from the ready list.
    void resume_ready(std::coroutine_handle<> next) noexcept {
        at_once_ = at_once_before_look_;
        renewals_ = most_renewals;
        resume(next);
        look();
    }
    [[nodiscard]] bool renew_at_once() noexcept;
    void look() noexcept;
    void look_while_idle() noexcept;
    bool take_batch() noexcept;
    bool run_ready() noexcept;
    /// As `run_ready`, where a scope narrows it, or a timer has made coroutines ready.
    bool run_in_order() noexcept;
    /// True when it was resumed; false: it is outside of the scope, and deferred.
    bool resume_or_defer(detail::ready_node& node) noexcept;
    /// What a destructor waits for has ended: the rest of the list is not looked at, as thousands may be destroyed one after the other.
    [[nodiscard]] bool waits_no_longer() const noexcept {
        return narrowed_ != nullptr && narrowed_->done(narrowed_->context);
    }
    void note_order() noexcept { orders_ = narrowed_ != nullptr || due_head_ != nullptr; }
    bool expire_timers() noexcept;
    void collect_posted() noexcept;
    void call_next_posted() noexcept;
    bool run_posted_for_a_slice() noexcept;
    void idle() noexcept;
    /// The time of the timer that is due first, if a coroutine sleeps until then.
    [[nodiscard]] time_point sleeps_until() const noexcept;
    void park() noexcept;
    /// Room to wait for all sources at once.
    void room_for_sources() noexcept;
    [[nodiscard]] bool sleep_until_woken() noexcept;
    [[nodiscard]] bool make_wake_fd() noexcept;
    bool watch_sources() noexcept;
    void end_wait_outside() noexcept;
    /// Another event loop that waits calls `poll`.
    void wake_outside() noexcept;
    template <class T>
    friend class root_task;

    /// Coroutines that are resumed in one turn may take so long, or one of them longer.
    static constexpr duration slice = std::chrono::microseconds(50);
    /// Operations that may end at once in one resumption: about 500 while the slice lasts. The clock is looked at after 4 of them, or
    /// fewer where that took longer than the slice before; then after 8, 16 and each 32, sooner where the last ones were slow.
    static constexpr std::int32_t most_at_once_before_look = 4;
    static constexpr std::int32_t most_at_once_between_looks = 32;
    static constexpr std::int32_t most_renewals = 17;
    static constexpr duration slow = slice / 4;
    /// Of turns without anything to resume.
    static constexpr std::uint32_t most_turns_to_look = 15;

    /// Descriptors that it waits for without memory of its own; one is that of posts.
    static constexpr std::size_t sleepers_on_stack = 64;

    static inline constinit thread_local scheduler* current_ = nullptr;

    detail::ready_node* ready_head_ = nullptr;
    detail::ready_node** ready_tail_ = &ready_head_;
    detail::ready_node* batch_ = nullptr;     // being resumed; here, so that a nested run goes on with it
    detail::ready_node* due_head_ = nullptr;  // made ready by timers; before the others
    detail::ready_node** due_tail_ = &due_head_;
    detail::ready_node** first_by_timers_ = nullptr;  // the end of the ready list when timers began to expire
    narrowed* narrowed_ = nullptr;
    bool orders_ = false;  // there is a scope, or a coroutine that a timer made ready
    detail::posted_node* arrived_head_ = nullptr;
    detail::posted_node** arrived_tail_ = &arrived_head_;
    std::coroutine_handle<> handed_over_{};
    std::uint32_t transfers_ = 0;
    detail::intrusive_list<progress_source> sources_;
    progress_source* next_source_ = nullptr;  // to be polled; here, so that a nested run goes on with it
    std::size_t sources_added_ = 0;           // since the last count; at least as many as there are
    detail::plain_vector<pollfd> sleepers_;   // its capacity counts; without any, those on the stack do
    detail::timer_heap timers_;
    clock* time_;
    time_point seen_{};  // when the scheduler last looked
    std::uint64_t seen_ticks_ = 0;
    std::uint64_t
        ticks_to_trust_;  // for so many ticks `seen_` is good enough; 0: the clock has no such counter
    std::uint32_t turns_to_look_ = 0;
    std::uint32_t look_every_ = most_turns_to_look;
    bool idling_ = false;
    bool timers_alone_ = false;  // made the last turn's progress
    std::int32_t at_once_ = 0;   // how many more operations may end at once until the next look
    std::int32_t renewals_ = most_renewals;
    std::int32_t at_once_before_look_ = most_at_once_before_look;
    std::int32_t at_once_between_looks_ = 0;  // of this resumption, after the first look
    time_point slice_began_{};
    idle_base* idle_;
    std::size_t children_ = 0;
    std::size_t unbound_ = 0;
    std::size_t unstopped_ = 0;
    static constexpr unsigned most_nested = 32;
    unsigned nested_ = 0;  // calls of `run_until`
    int exceptions_below_ = 0;
    service_base* services_ = nullptr;  // last made first
    std::uint64_t parks_ = 0;
    time_point posts_began_{};
    std::atomic<int> wake_fd_{-1};  // made at the first park at which one is left; other threads read it
    bool waits_outside_ = false;    // since `prepare_to_wait`
    int outside_fd_ = -1;           // of `descriptor`: an epoll instance
    void (*wait_ended_)(void*) noexcept = nullptr;
    void* wait_ended_context_ = nullptr;
    detail::plain_vector<int> watched_;  // in `outside_fd_`, beside `wake_fd_`

    detail::intrusive_list<detail::parked_wait> parked_waits_;
    detail::intrusive_list<detail::described> described_;
    scheduler* next_of_all_ = nullptr;

    // Written by other threads; on a line of their own.
    alignas(64) std::atomic<detail::posted_node*> posted_{nullptr};
    std::atomic<bool> parked_{false};
    std::atomic<int> thread_{0};       // rarely written
    std::atomic<int> last_thread_{0};  // that runs it, or ran it last
};

namespace detail {
/// The scheduler that runs on this thread. Throws `errc::invalid_argument` when there is none.
[[nodiscard]] RDMACORO_DECL scheduler& running_scheduler();
}  // namespace detail

}  // namespace rdmacoro

#if defined(RDMACORO_SEPARATE_COMPILATION)
extern template struct rdmacoro::scheduler::idle_model<rdmacoro::idle::adaptive>;
#else
#include <rdmacoro/coro/detail/impl/owner_check.ipp>
#include <rdmacoro/coro/impl/progress_source.ipp>
#include <rdmacoro/coro/impl/scheduler.ipp>
#include <rdmacoro/coro/impl/scheduler_guest.ipp>
#endif
