// task_group: the only way to run tasks that nobody awaits one by one.
#pragma once

#include <rdmacoro/coro/detail/child.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <type_traits>

namespace rdmacoro {

namespace detail {
/// `std::invoke` without the weight of <functional>.
template <class Callable, class... Args>
decltype(auto) call(Callable&& callable, Args&&... args) {
    return static_cast<Callable&&>(callable)(static_cast<Args&&>(args)...);
}
template <class Member, class Class, class Object, class... Args>
decltype(auto) call(Member Class::* member, Object&& object, Args&&... args) {
    if constexpr (std::is_pointer_v<std::remove_reference_t<Object>>) {
        return (object->*member)(static_cast<Args&&>(args)...);
    } else {
        return (static_cast<Object&&>(object).*member)(static_cast<Args&&>(args)...);
    }
}
template <class... CallableAndArgs>
using call_result_t = decltype(call(std::declval<CallableAndArgs>()...));
}  // namespace detail

/// What a task group does when a child fails.
enum class on_child_error : unsigned char {
    keep_others,  ///< the others go on; `join` gives the first error (a server whose clients come and go)
    stop_others,  ///< the others are asked to stop (parts of one job)
};

/// Children that run beside their owner and end before it does. The first error of a child is kept for `join`.
///
/// Each child runs with the group's token; it begins with the scheduler's next turn, and its frame is freed the moment it
/// ends, so a group may see millions of children over its life. A child that ends with `errc::canceled` after the group
/// was asked to stop did what it was told: that is no error.
///
/// Destroying a group with children asks them to stop and runs the scheduler until they have ended, also when an exception
/// unwinds the owner; their errors are then lost. `co_await join()` first is the better way. For one scheduler's thread.
class task_group final : private detail::child_owner {
public:
    explicit task_group(on_child_error policy = on_child_error::keep_others) noexcept : policy_(policy) {}

    /// A group that is asked to stop when `parent` is.
    explicit task_group(local_stop_token parent, on_child_error policy = on_child_error::keep_others) noexcept
        : source_(parent), policy_(policy) {}

    ~task_group() {
        if (size_ == 0) return;
        request_stop();
        owner_->run_until([this] { return size_ == 0; }, source_);
    }

    /// Runs `callable(args...)`, which gives something awaitable, typically a task. Callable and arguments are moved or
    /// copied and live until the child has ended: a lambda's captures are safe. Precondition: a scheduler runs on this
    /// thread; throws `errc::invalid_argument` else.
    template <class Callable, class... Args>
        requires awaitable<detail::call_result_t<std::decay_t<Callable>, std::decay_t<Args>...>>
    void spawn(Callable&& callable, Args&&... args) {
        scheduler& running = detail::running_scheduler();
        detail::child made = run<std::decay_t<Callable>, std::decay_t<Args>...>(
            *this, static_cast<Callable&&>(callable), static_cast<Args&&>(args)...);
        owner_ = &running;
        ++size_;
        made.begin_soon({owner_, source_.get_token()});
    }

    /// Asks all children, also those to come, to stop.
    void request_stop() noexcept { source_.request_stop(); }

    /// The token that children run with.
    [[nodiscard]] local_stop_token get_token() noexcept { return source_.get_token(); }

    /// How many children have not ended.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// What `join` gives. Described at `join`.
    class join_operation : public detail::operation_base {
    public:
        using value_type = void;

        explicit join_operation(task_group& of) noexcept : operation_base(nullptr), group_(&of) {}

        bool await_ready() noexcept {
            if (group_->joiner_ != nullptr) detail::fatal("a task group is joined twice at a time");
            if (stop.stop_requested()) {
                group_->request_stop();
                canceled_ = group_->size_ == 0;
            }
            return group_->size_ == 0;
        }
        void await_suspend(std::coroutine_handle<> awaiting) noexcept {
            state_ = state::pending;
            waiter = awaiting;
            group_->joiner_ = this;
            former_ = group_->source_.belong_to(stop);
            if (!stop.stop_possible()) return;
            on_stop_.self = this;
            on_stop_.attach(stop, [](local_stop_callback& hook) noexcept {
                static_cast<join_operation*>(static_cast<stop_hook&>(hook).self)->group_->request_stop();
            });
        }
        void await_resume() {
            if (group_->failure_) std::rethrow_exception(std::exchange(group_->failure_, {}));
            const bool cut_short = std::exchange(group_->child_canceled_, false) && stop.stop_requested();
            if (canceled_ || cut_short) detail::throw_error(errc::canceled);
        }

    private:
        friend class task_group;

        void finish() noexcept {
            group_->joiner_ = nullptr;
            group_->source_.belong_to(former_);
            complete();
        }

        task_group* group_;
        local_stop_token former_{};  // what the group was a part of; while joined it is a part of who joins
        bool canceled_ = false;
    };

    /// Awaitable.
    /// Completes: when all children have ended, those included that are spawned meanwhile.
    /// Buffers: none.
    /// Concurrency: one at a time.
    /// Errors: the first error of a child, whatever it threw.
    /// Cancellation: all children are asked to stop, and waited for; ends with `errc::canceled` if that cut one short.
    /// Example:
    ///     task_group workers;
    ///     for (auto& part : parts) workers.spawn(work, std::move(part));
    ///     co_await workers.join();
    [[nodiscard]] join_operation join() noexcept { return join_operation(*this); }

private:
    template <class Callable, class... Args>
    static detail::child run(detail::child_owner&, Callable callable, Args... args) {
        co_await detail::call(std::move(callable), std::move(args)...);
    }

    void child_failed(std::exception_ptr failure) noexcept override {
        if (source_.stop_requested() && is_canceled(failure)) {
            child_canceled_ = true;
            return;
        }
        if (!failure_) failure_ = std::move(failure);
        if (policy_ == on_child_error::stop_others) request_stop();
    }
    std::coroutine_handle<> child_ended() noexcept override {
        if (--size_ == 0 && joiner_ != nullptr) joiner_->finish();
        return std::noop_coroutine();
    }

    static bool is_canceled(const std::exception_ptr& failure) noexcept {
        try {
            std::rethrow_exception(failure);
        } catch (const std::system_error& ended) {
            return ended.code() == errc::canceled;
        } catch (...) {
            return false;
        }
    }

    local_stop_source source_;
    scheduler* owner_ = nullptr;
    std::size_t size_ = 0;
    join_operation* joiner_ = nullptr;
    std::exception_ptr failure_;
    on_child_error policy_;
    bool child_canceled_ = false;
};

}  // namespace rdmacoro
