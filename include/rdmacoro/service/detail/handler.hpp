// A service's handler: reads the arguments, runs the user's function, writes its result.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/call_context.hpp>
#include <rdmacoro/service/call_error.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/answer.hpp>
#include <rdmacoro/service/method.hpp>
#include <rdmacoro/service/stream.hpp>

#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// The arguments of a request are not what its method takes.
[[noreturn]] RDMACORO_DECL void throw_malformed_request(const char* why);
/// `whole`: all of them were read by `from`.
RDMACORO_DECL void check_arguments(calls_base& of, const decoder& from, bool whole);

/// The request of a call, without its head.
struct request_bytes {
    std::span<const std::byte> arguments;
    const decode_limits& limits;
    calls_base& of;
};

/// Reads the arguments of a request. Throws `call_errc::malformed_request`.
template <class... P>
void read_arguments(std::tuple<P...>& into, const request_bytes& request, copied_rows& copies) {
    if constexpr ((... && bytes_are_value<P>())) {
        constexpr std::size_t bytes = (std::size_t{0} + ... + sizeof(P));
        if (request.arguments.size() != bytes) [[unlikely]] {
            throw_malformed_request(request.arguments.size() < bytes
                                        ? "a value that goes past the end of the message"
                                        : "more bytes than the arguments have");
        }
        const std::byte* from = request.arguments.data();
        std::apply(
            [&](auto&... each) {
                ((std::memcpy(std::addressof(each), from, sizeof each), from += sizeof each), ...);
            },
            into);
    } else {
        decoder from(request.arguments, request.limits, &copies);
        const bool whole = std::apply([&](auto&... each) { return (... && from.read(each)); }, into);
        check_arguments(request.of, from, whole);
    }
}

/// A handler that has begun: nothing where it has ended, or its coroutine, which is awaited once.
class [[nodiscard]] handler_run {
public:
    handler_run() noexcept = default;
    /// Its result goes to `to`.
    template <class R>
    handler_run(task<R>&& made, answer& to) : to_(&to) {
        const auto frame = made.release();
        if (!frame) awaited_wrongly(false);
        frame_ = frame;
        promise_ = &frame.promise();
        end_ = [](std::coroutine_handle<> ended, [[maybe_unused]] answer& into) {
            auto& promise = std::coroutine_handle<task_promise<R>>::from_address(ended.address()).promise();
            if constexpr (std::is_void_v<R>) {
                promise.take();
            } else {
                into.give(promise.take());
            }
        };
    }
    handler_run(const handler_run&) = delete;
    handler_run& operator=(const handler_run&) = delete;
    ~handler_run() {
        if (frame_) frame_.destroy();
    }

    [[nodiscard]] bool has_ended() const noexcept { return !frame_; }
    /// Whatever awaits it, it runs with that token.
    handler_run& under(local_stop_token token) noexcept {
        token_ = token;
        return *this;
    }
    void bind(const environment& env) noexcept { promise_->set_environment({env.owner, token_}); }
    static bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
        return promise_->begin(frame_, awaiting);
    }
    void await_resume() { end_(frame_, *to_); }

private:
    std::coroutine_handle<> frame_;
    task_promise_base* promise_ = nullptr;
    answer* to_ = nullptr;
    void (*end_)(std::coroutine_handle<> frame, answer& to) = nullptr;
    local_stop_token token_;
};

/// A handler of any method.
class handler_base {
public:
    handler_base(const method_facts& of, bool ends_at_once) noexcept : facts(of), at_once(ends_at_once) {}
    handler_base(const handler_base&) = delete;
    handler_base& operator=(const handler_base&) = delete;
    RDMACORO_DECL virtual ~handler_base();

    /// Reads the arguments and begins the function, and ends it where it is `at_once`. An exception that leaves it is the call's error.
    virtual handler_run begin(call_context& context, const request_bytes& request, answer& to) = 0;

    const method_facts& facts;
    const bool at_once;
};

template <class F, class Result, class Values, class... Streams>
inline constexpr bool handles_as = false;
template <class F, class Result, class... V, class... Streams>
    requires requires(F& f, call_context& c, V... v, Streams&... s) {
        { f(c, std::move(v)..., s...) } -> std::same_as<task<Result>>;
    }
inline constexpr bool handles_as<F, Result, std::tuple<V...>, Streams...> = true;

template <class R>
inline constexpr bool is_task = false;
template <class R>
inline constexpr bool is_task<task<R>> = true;
template <class Returned, class R>
concept is_result = (std::is_void_v<R> && std::is_void_v<Returned>) ||
                    (!std::is_void_v<R> && !std::is_void_v<Returned> &&
                     !is_task<std::remove_cvref_t<Returned>> && std::convertible_to<Returned, R>);
template <class F, class Result, class Values>
inline constexpr bool handles_at_once_as = false;
template <class F, class Result, class... V>
    requires requires(F& f, call_context& c, V... v) {
        { f(c, std::move(v)...) } -> is_result<Result>;
    }
inline constexpr bool handles_at_once_as<F, Result, std::tuple<V...>> = true;

template <class F, class R, class... P>
constexpr bool is_handler() noexcept {
    using values = values_of<P...>;
    if constexpr (takes_stream<P...>) {
        using reader = stream_reader<items_of<P...>>;
        if constexpr (is_stream<R>) {
            return handles_as<F, void, values, reader, writer_of<R>>;
        } else {
            return handles_as<F, answer_type<R>, values, reader>;
        }
    } else if constexpr (is_stream<R>) {
        return handles_as<F, void, values, writer_of<R>>;
    } else {
        return handles_as<F, answer_type<R>, values>;
    }
}
template <class F, class R, class... P>
constexpr bool is_handler_at_once() noexcept {
    if constexpr (takes_stream<P...> || is_stream<R>) {
        return false;
    } else {
        return handles_at_once_as<F, answer_type<R>, values_of<P...>>;
    }
}
/// A callable that serves a method with result `R` and parameters `P` at once: it returns the result itself.
template <class F, class R, class... P>
concept handles_at_once = is_handler_at_once<F, R, P...>();
/// A callable that serves such a method, at once or by a task.
template <class F, class R, class... P>
concept handles = is_handler<F, R, P...>() || handles_at_once<F, R, P...>;

// A service may have thousands of handlers, each of a type of its own. What these classes have for each of them is short, and makes no
// template of the standard library of the function's type: the rest is compiled once for all methods with the same types.

/// A handler that is a function, run where its request is received.
template <class F, class R, class Values, class Indices = std::make_index_sequence<std::tuple_size_v<Values>>>
class immediate_handler;
template <class F, class R, class... V, std::size_t... I>
class immediate_handler<F, R, std::tuple<V...>, std::index_sequence<I...>> final : public handler_base {
public:
    template <class Given>
    immediate_handler(const method_facts& of, Given&& function)
        : handler_base(of, true), function_(static_cast<Given&&>(function)) {}

    handler_run begin(call_context& context, const request_bytes& request, answer& to) override {
        std::tuple<V...> arguments{};
        read_arguments(arguments, request, to.copies);
        if constexpr (std::is_void_v<R>) {
            function_(context, std::move(std::get<I>(arguments))...);
        } else {
            to.give(static_cast<R>(function_(context, std::move(std::get<I>(arguments))...)));
        }
        return {};
    }

private:
    F function_;
};

/// A handler that is a coroutine.
template <class F, class Values, class Indices = std::make_index_sequence<std::tuple_size_v<Values>>>
class task_handler;
template <class F, class... V, std::size_t... I>
class task_handler<F, std::tuple<V...>, std::index_sequence<I...>> final : public handler_base {
public:
    template <class Given>
    task_handler(const method_facts& of, Given&& function)
        : handler_base(of, false), function_(static_cast<Given&&>(function)) {}

    handler_run begin(call_context& context, const request_bytes& request, answer& to) override {
        auto& arguments = to.arguments.template make<std::tuple<V...>>();
        read_arguments(arguments, request, to.copies);
        return handler_run(function_(context, std::move(std::get<I>(arguments))...), to);
    }

private:
    F function_;
};

/// The part of a handler with streams that does not depend on its function; they live in the frame of `run`. `Item`: of the stream that the
/// caller writes, `void`: there is none.
template <class R, class Values, class Item>
class stream_handler_base : public handler_base {
public:
    explicit stream_handler_base(const method_facts& of) noexcept : handler_base(of, false) {}

    handler_run begin(call_context& context, const request_bytes& request, answer& to) final {
        auto& arguments = to.arguments.template make<Values>();
        read_arguments(arguments, request, to.copies);
        return handler_run(run(context, arguments, to), to);
    }

protected:
    using ends_with = std::conditional_t<is_stream<R>, void, R>;
    using reader = std::conditional_t<std::is_void_v<Item>, void, stream_reader<Item>>;
    using writer = std::conditional_t<is_stream<R>, writer_of<R>, void>;

    /// Calls the function. A stream that its method does not have is nullptr.
    virtual task<ends_with> call(call_context& context, Values& arguments, reader* in, writer* out) = 0;

private:
    task<> run(call_context& context, Values& arguments, [[maybe_unused]] answer& to) {
        if constexpr (is_stream<R>) {
            writer out(context, this->facts);
            std::exception_ptr failure;
            try {
                if constexpr (std::is_void_v<Item>) {
                    co_await call(context, arguments, nullptr, &out);
                } else {
                    reader in(context, this->facts);
                    co_await call(context, arguments, &in, &out);
                }
            } catch (...) {
                failure = std::current_exception();
            }
            co_await out.finish(failure);
        } else {
            reader in(context, this->facts);
            if constexpr (std::is_void_v<R>) {
                co_await call(context, arguments, &in, nullptr);
            } else {
                to.give(co_await call(context, arguments, &in, nullptr));
            }
        }
    }
};

/// A handler with streams.
template <class F, class R, class Values, class Item,
          class Indices = std::make_index_sequence<std::tuple_size_v<Values>>>
class stream_handler;
template <class F, class R, class... V, class Item, std::size_t... I>
class stream_handler<F, R, std::tuple<V...>, Item, std::index_sequence<I...>> final
    : public stream_handler_base<R, std::tuple<V...>, Item> {
    using base = stream_handler_base<R, std::tuple<V...>, Item>;

public:
    template <class Given>
    stream_handler(const method_facts& of, Given&& function)
        : base(of), function_(static_cast<Given&&>(function)) {}

private:
    task<typename base::ends_with> call(call_context& context, std::tuple<V...>& arguments,
                                        [[maybe_unused]] typename base::reader* in,
                                        [[maybe_unused]] typename base::writer* out) override {
        if constexpr (!is_stream<R>) {
            return function_(context, std::move(std::get<I>(arguments))..., *in);
        } else if constexpr (std::is_void_v<Item>) {
            return function_(context, std::move(std::get<I>(arguments))..., *out);
        } else {
            return function_(context, std::move(std::get<I>(arguments))..., *in, *out);
        }
    }

    F function_;
};

/// The handler of a method with result `R` and parameters `P` that `F` is.
template <class F, class R, class... P>
constexpr auto handler_of() noexcept {
    using values = values_of<P...>;
    if constexpr (takes_stream<P...> || is_stream<R>) {
        return std::type_identity<stream_handler<F, answer_type<R>, values, items_of<P...>>>();
    } else if constexpr (handles_at_once<F, R, P...>) {
        return std::type_identity<immediate_handler<F, answer_type<R>, values>>();
    } else {
        return std::type_identity<task_handler<F, values>>();
    }
}
template <class F, class R, class... P>
using handler_for = typename decltype(handler_of<F, R, P...>())::type;

}  // namespace rdmacoro::detail
