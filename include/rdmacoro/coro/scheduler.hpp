// The scheduler: one thread's cooperative loop over ready coroutines, progress sources, timers and posts.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/idle.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/progress_source.hpp>
#include <rdmacoro/coro/timer.hpp>

#include <atomic>
#include <concepts>
#include <coroutine>
#include <memory>
#include <new>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

namespace rdmacoro {

template <class T>
class task;
class scheduler;

/// What a coroutine hands down to everything it awaits.
struct environment {
    scheduler* owner = nullptr;
    local_stop_token stop{};
};

namespace detail {
/// A coroutine that can go on. Lives in the awaiting frame.
struct ready_node {
    ready_node* next_ready = nullptr;
    std::coroutine_handle<> waiter{};
    local_stop_token stop{};  // that the coroutine runs with; also says whose part it is
};

/// Whether a coroutine that hands over to another leaves nothing on the stack in every build. g++ before 15 tail-calls
/// only from -O2 up and not under every sanitizer.
#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 15)
inline constexpr bool transfers_use_no_stack = true;
#else
inline constexpr bool transfers_use_no_stack = false;
#endif

/// Something for the scheduler's thread to call, handed over by any thread.
struct posted_node {
    using function = void (*)(posted_node&) noexcept;
    posted_node* next_posted = nullptr;
    function call = nullptr;
};
}  // namespace detail

/// Runs coroutines on the thread that calls `run`, and everything that they wait for. All members but `post` are for that
/// thread alone.
class scheduler {
public:
    /// `Idle` decides what happens when nothing moves (see idle.hpp). The clock must outlive the scheduler.
    template <class Idle = idle::adaptive>
        requires(!std::same_as<Idle, scheduler>) && idle::strategy<Idle>
    explicit scheduler(Idle strategy = Idle{}, clock& time = monotonic_clock::instance())
        : time_(&time), idle_(std::make_unique<idle_model<Idle>>(std::move(strategy))) {}

    scheduler(const scheduler&) = delete;
    scheduler& operator=(const scheduler&) = delete;
    inline ~scheduler();

    /// Runs until `main` has ended and gives its value or throws what it threw. May be called again, and, with care, by
    /// something that itself runs in it.
    template <class T>
    T run(task<T> main);

    /// As above; `main` and all that it awaits are asked to stop when `stop` is, by whatever thread.
    template <class T>
    T run(task<T> main, std::stop_token stop);

    /// The scheduler whose `run` is on this thread's stack, or nullptr.
    [[nodiscard]] static scheduler* current() noexcept { return current_; }

    [[nodiscard]] time_point now() noexcept { return time_->now(); }
    [[nodiscard]] clock& time() noexcept { return *time_; }

    /// One turn: resumes what is ready, polls every source once, fires timers. False when nothing moved.
    inline bool turn() noexcept;

    /// Turns, and idles as the strategy says, until `done()` answers true.
    template <class Done>
    void run_until(Done done) {
        current_scope scope(*this);
        narrowed* const former = std::exchange(narrowed_, nullptr);
        if (former != nullptr) resume_put_off(*former);
        loop(done);
        narrowed_ = former;
    }

    /// As above, but resumes only coroutines whose token is part of `scope`; the others keep their turn for later. For
    /// destructors that wait for what they own, in a coroutine of this scheduler: any other coroutine that is resumed on
    /// top of it might in its turn wait for the one below.
    template <class Done>
    void run_until(Done done, const local_stop_source& scope) {
        current_scope current(*this);
        narrowed here{&scope};
        narrowed* const former = std::exchange(narrowed_, &here);
        if (former != nullptr) resume_put_off(*former);
        loop(done);
        narrowed_ = former;
        resume_put_off(here);
    }

    /// The coroutine goes on in this turn or the next. The node stays in place until then.
    void make_ready(detail::ready_node& node) noexcept {
        node.next_ready = nullptr;
        *ready_tail_ = &node;
        ready_tail_ = &node.next_ready;
    }

    /// Whether a coroutine waits for its turn.
    [[nodiscard]] bool has_ready() const noexcept { return ready_head_ != nullptr; }

    /// Resumes a coroutine of this scheduler now, on top of the caller.
    void resume(std::coroutine_handle<> next) noexcept {
        next.resume();
        if constexpr (!detail::transfers_use_no_stack) {
            while (handed_over_) std::exchange(handed_over_, {}).resume();
        }
    }

    /// What an `await_suspend` returns to hand over to `next`: `next`, or now and then, where the compiler does not
    /// promise tail calls, nothing, and `resume` goes on with `next` once the stack is unwound.
    [[nodiscard]] std::coroutine_handle<> transfer(std::coroutine_handle<> next) noexcept {
        if constexpr (!detail::transfers_use_no_stack) {
            constexpr std::uint32_t transfers_on_the_stack = 64;
            if (++transfers_ % transfers_on_the_stack == 0) {
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
            std::unique_ptr<owned> own(static_cast<owned*>(&self));
            own->function();
        };
        post(*node);
    }

    /// As above without allocation: the node stays in place until its function is called. Thread-safe.
    inline void post(detail::posted_node& node) noexcept;

    /// Moves what was posted to this side and calls it. True when there was anything.
    inline bool run_posted() noexcept;

    /// Takes back a node whose `post` has returned: from here on its function is not called. True when it had still been
    /// waiting for its call.
    inline bool withdraw(detail::posted_node& node) noexcept;

    void add_timer(detail::timer_node& timer) { timers_.insert(timer); }
    void remove_timer(detail::timer_node& timer) noexcept { timers_.remove(timer); }

    /// Polls it until it is removed or destroyed. It may outlive the scheduler.
    void add_source(progress_source& source) noexcept { sources_.push_back(source); }
    void remove_source(progress_source& source) noexcept { source.unlink(); }

    /// The one `Service` of this scheduler, made on first use from `(scheduler&)` and destroyed with the scheduler, last
    /// made first.
    template <class Service>
    Service& service() {
        for (auto& entry : services_) {
            if (entry->key == &service_key<Service>)
                return static_cast<service_holder<Service>&>(*entry).value;
        }
        auto made = std::make_unique<service_holder<Service>>(*this);
        Service& value = made->value;
        services_.push_back(std::move(made));
        return value;
    }

    /// Whether its idle strategy ever lets it sleep in the kernel.
    [[nodiscard]] bool may_park() const noexcept { return idle_->may_park(); }
    /// How often this scheduler has slept in the kernel.
    [[nodiscard]] std::uint64_t parks() const noexcept { return parks_; }

private:
    struct idle_base {
        virtual ~idle_base() = default;
        virtual idle::action next(clock& time) noexcept = 0;
        virtual void progress() noexcept = 0;
        [[nodiscard]] virtual bool may_park() const noexcept = 0;
    };
    template <class Idle>
    struct idle_model final : idle_base {
        explicit idle_model(Idle&& strategy) : strategy_(std::move(strategy)) {}
        idle::action next(clock& time) noexcept override { return strategy_.next(time); }
        void progress() noexcept override { strategy_.progress(); }
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
        virtual ~service_base() = default;
    };
    template <class Service>
    struct service_holder final : service_base {
        explicit service_holder(scheduler& owner) : value(owner) { key = &service_key<Service>; }
        Service value;
    };
    template <class Service>
    static constexpr char service_key = 0;

    /// Makes a scheduler the thread's current one, and puts the former back.
    struct current_scope {
        explicit current_scope(scheduler& now_current) noexcept : former(current_) {
            current_ = &now_current;
        }
        ~current_scope() { current_ = former; }
        current_scope(const current_scope&) = delete;
        current_scope& operator=(const current_scope&) = delete;
        scheduler* former;
    };

    /// While a destructor waits: what may be resumed, and what has had to wait for it.
    struct narrowed {
        const local_stop_source* to;
        detail::ready_node* head = nullptr;
        detail::ready_node** tail = &head;
    };

    /// What has had to wait is ready again, before all others.
    void resume_put_off(narrowed& from) noexcept {
        if (from.head == nullptr) return;
        *from.tail = ready_head_;
        if (ready_head_ == nullptr) ready_tail_ = from.tail;
        ready_head_ = std::exchange(from.head, nullptr);
        from.tail = &from.head;
    }

    template <class Done>
    void loop(Done& done) {
        while (!done()) {
            if (turn()) {
                moved();
                continue;
            }
            if (done()) return;
            idle();
        }
    }

    void moved() noexcept {
        if (!idling_) return;
        idling_ = false;
        idle_->progress();
    }

    inline bool take_batch() noexcept;
    inline bool run_ready() noexcept;
    inline bool run_narrowed() noexcept;
    inline void collect_posted() noexcept;
    inline void idle() noexcept;
    inline void park() noexcept;
    [[nodiscard]] inline bool sleep_until_woken() noexcept;

    static inline constinit thread_local scheduler* current_ = nullptr;

    detail::ready_node* ready_head_ = nullptr;
    detail::ready_node** ready_tail_ = &ready_head_;
    detail::ready_node* batch_ = nullptr;  // being resumed; here, so that a nested run goes on with it
    narrowed* narrowed_ = nullptr;
    detail::posted_node* arrived_head_ = nullptr;
    detail::posted_node** arrived_tail_ = &arrived_head_;
    std::coroutine_handle<> handed_over_{};
    std::uint32_t transfers_ = 0;
    detail::intrusive_list<progress_source> sources_;
    detail::timer_heap timers_;
    clock* time_;
    std::uint32_t turns_ = 0;
    std::uint32_t spins_ = 0;
    bool idling_ = false;
    std::unique_ptr<idle_base> idle_;
    std::vector<std::unique_ptr<service_base>> services_;
    std::uint64_t parks_ = 0;
    int wake_fd_ = -1;

    // Written by other threads; on a line of their own.
    alignas(64) std::atomic<detail::posted_node*> posted_{nullptr};
    std::atomic<bool> parked_{false};
};

namespace detail {
/// The scheduler that runs on this thread. Throws where none does.
[[nodiscard]] inline scheduler& running_scheduler() {
    scheduler* current = scheduler::current();
    if (current == nullptr) throw_error(errc::invalid_argument, "no scheduler runs on this thread");
    return *current;
}
}  // namespace detail

}  // namespace rdmacoro

#include <rdmacoro/coro/detail/scheduler_loop.hpp>
