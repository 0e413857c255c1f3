// pool_handler: a handler that runs on another thread than its connection's.
#pragma once

#include <rdmacoro/service/detail/handler.hpp>
#include <rdmacoro/service/detail/remote_task.hpp>
#include <rdmacoro/service/scheduler_pool.hpp>

#include <coroutine>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// A callable that serves a method with result `R` and parameters `P` on several threads at a time: it is called as a constant.
template <class F, class R, class... P>
concept handles_on_pool =
    !is_stream<R> && !takes_stream<P...> && requires(const F& f, pool_context& c, P... p) {
        { f(c, std::move(p)...) } -> std::same_as<task<answer_type<R>>>;
    };

/// Awaited at once: the context gets the token of the awaiting coroutine.
struct token_for {
    pool_context& of;

    void bind(const environment& env) noexcept { of.set_stop(env.stop); }
    static bool await_ready() noexcept { return true; }
    static void await_suspend(std::coroutine_handle<>) noexcept {}
    static void await_resume() noexcept {}
};

template <class M, class F>
class pool_handler final : public handler_base {
    using R = answer_type<typename M::result_type>;
    using P = typename M::parameters;

public:
    template <class Given>
    pool_handler(const rdmacoro::scheduler_pool& pool, Given&& function)
        : handler_base(M::facts, false), pool_(pool.state_), function_(static_cast<Given&&>(function)) {}

    /// Reads and writes here; only the values, and what the function does, are of the other thread.
    handler_run begin(call_context& context, const request_bytes& request, answer& to) override {
        P& arguments = to.arguments.template make<P>();
        read_arguments(arguments, request, to.copies);
        return handler_run(run(context, arguments, to), to);
    }

private:
    task<> run(call_context& context, P& arguments, answer& to) {
        std::optional<time_point> due;
        if (const auto left = context.remaining()) due = monotonic_now() + *left;
        auto make = [this, &arguments, bytes = context.bytes(), due] {
            return there(function_, arguments, bytes, due);
        };
        // It keeps the threads' ports, also when the pool ends.
        const std::shared_ptr<scheduler_pool_state> pool = pool_;
        const pool_place place(*pool);
        remote_task<R, decltype(make)> running(place.port(), make_error_code(call_errc::stopped),
                                               std::move(make));
        if constexpr (std::is_void_v<R>) {
            co_await running;
        } else {
            to.give(co_await running);
        }
    }
    static task<R> there(const F& function, P& arguments, std::size_t bytes, std::optional<time_point> due) {
        pool_context context(bytes, due);
        co_await token_for{context};
        co_return co_await std::apply([&](auto&... each) { return function(context, std::move(each)...); },
                                      arguments);
    }

    std::shared_ptr<scheduler_pool_state> pool_;
    F function_;
};

}  // namespace rdmacoro::detail
