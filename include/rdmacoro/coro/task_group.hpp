// task_group: the only way to run tasks without awaiting each of them.
#pragma once

#include <rdmacoro/coro/detail/borrows_temporary.hpp>
#include <rdmacoro/coro/detail/child.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <concepts>
#include <type_traits>

namespace rdmacoro {

namespace detail {
/// `std::invoke` without the weight of <functional>.
template <class Callable, class... Args>
std::invoke_result_t<Callable, Args...> call(Callable&& callable, Args&&... args) {
    return static_cast<Callable&&>(callable)(static_cast<Args&&>(args)...);
}
template <class Member, class Class, class Object, class... Args>
std::invoke_result_t<Member Class::*, Object, Args...> call(Member Class::* member, Object&& object,
                                                            Args&&... args) {
    if constexpr (std::is_pointer_v<std::remove_reference_t<Object>>) {
        return (object->*member)(static_cast<Args&&>(args)...);
    } else {
        return (static_cast<Object&&>(object).*member)(static_cast<Args&&>(args)...);
    }
}

/// Accepted by `task_group::spawn`: a callable that, with such arguments, returns an awaitable.
template <class Callable, class... Args>
concept spawnable = std::invocable<Callable, Args...> && awaitable<std::invoke_result_t<Callable, Args...>>;
struct own_children;
/// The function of `task_group::on_error`.
class error_handler {
public:
    error_handler() noexcept = default;
    error_handler(const error_handler&) = delete;
    error_handler& operator=(const error_handler&) = delete;
    RDMACORO_DECL virtual ~error_handler();
    virtual void call(std::exception_ptr failure) noexcept = 0;

    unsigned calls = 0;  ///< under way
    bool replaced = false;
};
}  // namespace detail

/// The reaction of a task group to a child that fails.
enum class on_child_error : unsigned char {
    keep_others,  ///< the others continue; `join` gives the first error (a server with many clients)
    stop_others,  ///< the others are asked to stop (parts of one job)
};

/// Child coroutines that run concurrently with their owner and end before it. The first error of a child is stored for
/// `join`.
///
/// Each child runs with the group's token; it begins with the scheduler's next turn, and its frame is freed the moment it
/// ends, so a group may have millions of children over its life. It is no error when a child ends with `errc::canceled`
/// after the group was asked to stop.
///
/// Destroying a group with children asks them to stop and runs the scheduler until they have ended, also when an exception
/// unwinds the owner. `co_await join()` first is the better way. A group that is destroyed with an error that was neither joined nor
/// given to `on_error` writes it to stderr, in one line. For one scheduler: while it has children, a `spawn` or `join` on another one ends
/// the process with a message.
class task_group final : private detail::child_owner {
public:
    /// An empty group.
    explicit task_group(on_child_error policy = on_child_error::keep_others) noexcept : policy_(policy) {}

    /// A group that is asked to stop when `parent` is.
    explicit task_group(local_stop_token parent, on_child_error policy = on_child_error::keep_others) noexcept
        : source_(parent), policy_(policy) {}

    ~task_group();

    /// Runs `callable(args...)`, which returns an awaitable, typically a task. Callable and arguments are moved or copied
    /// and live until the child has ended: a lambda's captures are safe. Throws `errc::invalid_argument` when no scheduler
    /// runs on this thread.
    template <class Callable, class... Args>
        requires detail::spawnable<std::decay_t<Callable>, std::decay_t<Args>...>
    void spawn(Callable&& callable, Args&&... args) {
        // The callable's own temporaries end with its call.
        detail::must_outlive_statement<std::invoke_result_t<std::decay_t<Callable>, std::decay_t<Args>...>>();
        scheduler& running = detail::running_scheduler();
        adopt(running, run<std::decay_t<Callable>, std::decay_t<Args>...>(
                           *this, static_cast<Callable&&>(callable), static_cast<Args&&>(args)...));
    }

    /// From now on each error of a child goes to `handler(std::exception_ptr)`, when the child ends, and not to `join`: for a server that
    /// goes on after the errors of its clients. The handler may spawn, ask the group to stop and set another handler; it must not
    /// throw, and not destroy the group. An error that came before is still for `join`. Allocates once. Example:
    ///
    ///     clients.on_error([](std::exception_ptr failure) {
    ///         try {
    ///             std::rethrow_exception(failure);
    ///         } catch (const std::exception& e) {
    ///             std::fprintf(stderr, "a client: %s\n", e.what());
    ///         }
    ///     });
    template <class Handler>
        requires std::invocable<std::decay_t<Handler>&, std::exception_ptr>
    void on_error(Handler&& handler) {
        using function = std::decay_t<Handler>;
        struct holder final : detail::error_handler {
            function held;
            explicit holder(Handler&& given) : held(static_cast<Handler&&>(given)) {}
            void call(std::exception_ptr failure) noexcept override { held(std::move(failure)); }
        };
        set_handler(new holder(static_cast<Handler&&>(handler)));
    }

    /// Asks all children, also later ones, to stop.
    void request_stop() noexcept { source_.request_stop(); }

    /// The token that children run with.
    [[nodiscard]] local_stop_token get_token() noexcept { return source_.get_token(); }

    /// How many children have not ended.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// The operation of `join`. Described at `join`.
    class join_operation : public detail::operation_base {
    public:
        using value_type = void;

        explicit join_operation(task_group& of) noexcept : operation_base(nullptr), group_(&of) {}

        bool await_ready() noexcept;
        void await_suspend(std::coroutine_handle<> awaiting) noexcept;
        void await_resume();

    private:
        friend class task_group;

        void finish() noexcept;

        task_group* group_;
        local_stop_token
            former_{};  // of the group's former whole; while joined it is a part of the joining task
        bool canceled_ = false;
    };

    /// Awaitable.
    /// Completes: when all children have ended, those included that are spawned before the last one has. It does not wait for those that are
    ///     spawned after that, before the joining task goes on.
    /// Buffers: none.
    /// Concurrency: one at a time.
    /// Errors: the first error of a child, of any type, unless `on_error` got it.
    /// Cancellation: all children are asked to stop, and waited for; ends with `errc::canceled` if that cut one short.
    /// Example:
    ///     task_group workers;
    ///     for (auto& part : parts) workers.spawn(work, std::move(part));
    ///     co_await workers.join();
    [[nodiscard]] join_operation join() noexcept { return join_operation(*this); }

private:
    friend struct detail::own_children;

    template <class Callable, class... Args>
    static detail::child run(detail::child_owner&, Callable callable, Args... args) {
        co_await detail::call(std::move(callable), std::move(args)...);
    }

    void set_handler(detail::error_handler* made) noexcept;
    void adopt(scheduler& running, detail::child made) noexcept;
    RDMACORO_DECL void child_failed(std::exception_ptr failure) noexcept override;
    RDMACORO_DECL std::coroutine_handle<> child_ended() noexcept override;

    local_stop_source source_;
    scheduler* owner_ = nullptr;
    std::size_t size_ = 0;
    join_operation* joiner_ = nullptr;
    std::exception_ptr failure_;
    detail::error_handler* handler_ = nullptr;
    on_child_error policy_;
    bool child_canceled_ = false;
};

namespace detail {
/// Spawns coroutines of the toolkit that are children themselves: `spawn` compiles one more for each, which awaits it.
struct own_children {
    template <class... Args, class... Given>
    static void begin(task_group& in, scheduler& on, child (*body)(child_owner&, Args...), Given&&... given) {
        in.adopt(on, body(in, static_cast<Given&&>(given)...));
    }
};
}  // namespace detail

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/task_group.ipp>
#endif
