// A service's handler: reads the arguments, runs the user's function, writes its result.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/call_context.hpp>
#include <rdmacoro/service/call_error.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/kept_value.hpp>
#include <rdmacoro/service/method.hpp>
#include <rdmacoro/service/stream.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// The arguments of a request are not what its method takes.
[[noreturn]] RDMACORO_DECL void throw_malformed_request(const char* why);

/// The place of a handler's result, and its encoding.
struct answer {
    encoder& to;  ///< the head is there already
    kept_value kept{};

    /// Encodes a result, which lives here until the answer is sent.
    template <class R>
    void give(R&& value) {
        if constexpr (bytes_are_value<R>()) {
            to.write(value);
        } else {
            R& here = kept.keep(std::move(value));
            if constexpr (row_of_values<const R&>) {
                to.row(std::as_bytes(std::span(std::ranges::data(here), std::ranges::size(here))));
            } else {
                to.write(here);
            }
        }
    }
};

/// A handler of any method.
class handler_base {
public:
    explicit handler_base(const method_facts& of) noexcept : facts(of) {}
    handler_base(const handler_base&) = delete;
    handler_base& operator=(const handler_base&) = delete;
    RDMACORO_DECL virtual ~handler_base();

    /// Reads the arguments and runs the function. What leaves it by an exception is the call's error.
    virtual task<> run(call_context& context, decoder from, answer& to) = 0;

    const method_facts& facts;
};

template <class F, class Result, class Values, class... Streams>
inline constexpr bool handles_as = false;
template <class F, class Result, class... V, class... Streams>
    requires requires(F& f, call_context& c, V... v, Streams&... s) {
        { f(c, std::move(v)..., s...) } -> std::same_as<task<Result>>;
    }
inline constexpr bool handles_as<F, Result, std::tuple<V...>, Streams...> = true;
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
/// A callable that serves a method with result `R` and parameters `P`.
template <class F, class R, class... P>
concept handles = is_handler<F, R, P...>();

template <class M, class F>
class typed_handler final : public handler_base {
    using R = typename M::result_type;
    using P = typename M::parameters;

public:
    template <class Given>
    explicit typed_handler(Given&& function)
        : handler_base(M::facts), function_(static_cast<Given&&>(function)) {}

    task<> run(call_context& context, decoder from, answer& to) override {
        P arguments{};
        const bool whole = std::apply([&](auto&... each) { return (... && from.read(each)); }, arguments);
        if (!whole || from.left() != 0)
            throw_malformed_request(whole ? "more bytes than the arguments have" : from.why());
        if constexpr (!std::is_void_v<typename M::written_type>) {
            stream_reader<typename M::written_type> in(context, M::facts);
            if constexpr (is_stream<R>) {
                writer_of<R> out(context);
                co_await call_with(context, arguments, in, out);
            } else if constexpr (std::is_void_v<R>) {
                co_await call_with(context, arguments, in);
            } else {
                to.give(co_await call_with(context, arguments, in));
            }
        } else if constexpr (is_stream<R>) {
            writer_of<R> out(context);
            co_await call_with(context, arguments, out);
        } else if constexpr (std::is_void_v<answer_type<R>>) {
            co_await call_with(context, arguments);
        } else {
            to.give(co_await call_with(context, arguments));
        }
    }

private:
    template <class... More>
    auto call_with(call_context& context, P& arguments, More&... more) {
        return std::apply([&](auto&... each) { return function_(context, std::move(each)..., more...); },
                          arguments);
    }

    F function_;
};

}  // namespace rdmacoro::detail
