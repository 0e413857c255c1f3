// any_calls: calls over one endpoint, without the types of its transport and its list: what functions that make calls take.
#pragma once

#include <rdmacoro/service/call_operation.hpp>
#include <rdmacoro/service/call_writer.hpp>
#include <rdmacoro/service/detail/call_arguments.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/service.hpp>
#include <rdmacoro/service/stream.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rdmacoro {

template <transport... Ts>
class node_calls;

namespace detail {

/// How calls of each kind are made, with their arguments as `Kept`, a tuple or a reference to one; the same for all transports.
template <class Kept>
struct call_maker {
    calls_base* over;
    const method_facts* of;
    Kept arguments;

    [[nodiscard]] call_request request(time_point until) const noexcept {
        return {*of, &write_arguments<std::remove_cvref_t<Kept>>, std::addressof(arguments), until};
    }
};
template <class Kept>
struct asks : call_maker<Kept> {
    task<message> operator()(time_point until) { return this->over->ask(this->request(until)); }
};
template <class Kept>
struct asks_into : call_maker<Kept> {
    std::span<std::byte> place;
    task<std::size_t> operator()(time_point until) {
        return this->over->ask_into(this->request(until), place);
    }
};
template <class Kept>
struct tells : call_maker<Kept> {
    task<> operator()(time_point until) { return this->over->tell(this->request(until)); }
};
template <class Kept>
struct opens_reader : call_maker<Kept> {
    task<tag_type> operator()(time_point until) { return this->over->open_reader(this->request(until)); }
};
template <class Kept>
struct opens_writer : call_maker<Kept> {
    bool items;
    task<std::unique_ptr<upstream>> operator()(time_point until) {
        return this->over->open_writer(this->request(until), items);
    }
};

/// Makes the call's value of that.
template <class M>
struct to_value {
    typename M::result_type operator()(const message& got) const {
        return read_answer<typename M::result_type>(M::facts, got.bytes().subspan(sizeof(answer_head)));
    }
};
template <class M, class E>
struct to_length {
    std::size_t operator()(std::size_t bytes) const {
        if (bytes % sizeof(E) != 0) throw_malformed_answer(M::facts, "a part of an element");
        return bytes / sizeof(E);
    }
};
template <class M, class E>
struct to_reader {
    calls_base* over;
    stream_reader<E> operator()(tag_type asked) const { return stream_reader<E>(*over, M::facts, asked); }
};
template <class M>
struct to_writer {
    using type = call_writer<typename M::written_type, typename M::result_type>;
    type operator()(std::unique_ptr<upstream> made) const { return type(std::move(made)); }
};

// The operations. `until`: when their time is over; the clock's zero: no limit, or one that `timeout` sets.
template <class M, class Kept>
[[nodiscard]] auto make_call(calls_base& over, Kept&& kept, time_point until = {}) {
    return call_operation<typename M::result_type, asks<Kept>, to_value<M>>(
        asks<Kept>{{&over, &M::facts, static_cast<Kept&&>(kept)}}, {}, until);
}
template <class M, class E, class Kept>
[[nodiscard]] auto make_call_into(calls_base& over, std::span<E> place, Kept&& kept, time_point until = {}) {
    return call_operation<std::size_t, asks_into<Kept>, to_length<M, E>>(
        asks_into<Kept>{{&over, &M::facts, static_cast<Kept&&>(kept)}, std::as_writable_bytes(place)}, {},
        until);
}
template <class M, class Kept>
[[nodiscard]] auto make_cast(calls_base& over, Kept&& kept, time_point until = {}) {
    return call_operation<void, tells<Kept>>(tells<Kept>{{&over, &M::facts, static_cast<Kept&&>(kept)}}, {},
                                             until);
}
template <class M, class E, class Kept>
[[nodiscard]] auto make_reader(calls_base& over, Kept&& kept, time_point until = {}) {
    return call_operation<stream_reader<E>, opens_reader<Kept>, to_reader<M, E>>(
        opens_reader<Kept>{{&over, &M::facts, static_cast<Kept&&>(kept)}}, {&over}, until);
}
template <class M, class Kept>
[[nodiscard]] auto make_writer(calls_base& over, Kept&& kept, time_point until = {}) {
    return call_operation<typename to_writer<M>::type, opens_writer<Kept>, to_writer<M>>(
        opens_writer<Kept>{{&over, &M::facts, static_cast<Kept&&>(kept)}, is_stream<typename M::result_type>},
        {}, until);
}

}  // namespace detail

/// Calls over one endpoint of any transport, in both directions: `call`, `cast` and `open` go to the peer, and `serve` offers a service to
/// it. `calls` makes it of an endpoint. A function that takes a reference to this is compiled once, and not for each kind of endpoint:
///     rc::task<std::string> colour(rc::any_calls& peer) { co_return co_await peer.call(kv::get, "colour"); }
/// A call costs the same through either.
class any_calls : protected detail::calls_base {
public:
    /// From now on the peer's calls of `what`'s methods run here. Throws `errc::invalid_argument` for a service without methods, and
    /// where one with the same prefix is offered already.
    void serve(service& what) { this->offer(what); }

    /// Awaitable.
    /// Ends with the method's result.
    /// Completes: when the peer has answered.
    /// Buffers: variables among the arguments are borrowed until then, temporaries moved in. Long rows of numbers among them go to the
    ///     network from where they are.
    /// Concurrency: any number at a time; the peer begins them in the order in which they began here, and answers in any.
    /// Errors: what the handler threw, with its code and text, or `call_errc`; those of the messages, such as `errc::peer_lost`;
    ///     `errc::message_too_long` for a request above the peer's `mailbox_options::lent_bytes`, unless it comes there in one piece or is stored
    ///     whole.
    /// Cancellation: at any time; the handler is asked to stop, and a late answer is dropped. Other calls go on.
    /// Example:
    ///     std::string value = co_await peer.call(kv::get, "colour");
    template <method_name Name, class R, class... Q, class... Args>
        requires(!detail::is_stream<R> && !detail::takes_stream<Q...> && !std::is_same_v<R, one_way>)
    [[nodiscard]] auto call(const method<Name, R(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        detail::must_not_have_views<R>();
        using M = method<Name, R(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        if constexpr (arguments::fixed) {
            return fixed_call<M, arguments>(base(), static_cast<Args&&>(args)...);
        } else {
            return detail::make_call<M>(base(), typename arguments::type(static_cast<Args&&>(args)...));
        }
    }

    /// Awaitable.
    /// Ends with the number of elements that were received into `place`. For methods that give a row of numbers, or of
    /// aggregates without padding.
    /// Completes: when the peer has answered; the elements come to `place` without a copy in between where the protocol allows.
    /// Buffers: as `call`; `place` is borrowed until then.
    /// Concurrency: as `call`.
    /// Errors: as `call`; `errc::truncated` where `place` is too short.
    /// Cancellation: as `call`; what `place` holds is then unknown.
    /// Example:
    ///     std::vector<float> row(1 << 20);
    ///     std::size_t length = co_await peer.call_into(std::span(row), kv::column, "temperature");
    template <class E, method_name Name, class R, class... Q, class... Args>
        requires(detail::row_of_values<const R&> && std::is_same_v<E, std::ranges::range_value_t<R>>)
    [[nodiscard]] auto call_into(std::span<E> place, const method<Name, R(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, R(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return detail::make_call_into<M>(base(), place,
                                         typename arguments::type(static_cast<Args&&>(args)...));
    }

    /// Awaitable.
    /// Completes: when the request has been sent: as `endpoint::send`. The handler's end is not heard of: where this side closes soon after, a busy
    ///     peer may not have begun with it, and drops it. `call` another method last to know.
    /// Buffers: as `call`, until then.
    /// Concurrency: as `call`.
    /// Errors: those of `endpoint::send`; `call_errc` where the peer has refused an earlier one of this method; the next
    ///     is sent again.
    /// Cancellation: as `endpoint::send`.
    /// Example:
    ///     co_await peer.cast(kv::note, event{7});
    template <method_name Name, class... Q, class... Args>
    [[nodiscard]] auto cast(const method<Name, one_way(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, one_way(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return detail::make_cast<M>(base(), typename arguments::type(static_cast<Args&&>(args)...));
    }

    /// Awaitable.
    /// Ends with the reading end of a stream: `while (auto row = co_await rows.next())`. Destroying that cancels the call.
    /// Completes: when the request has been sent.
    /// Buffers: as `call`, until then.
    /// Concurrency: as `call`.
    /// Errors: those of `endpoint::send`; what the handler throws comes with the reads.
    /// Cancellation: as `endpoint::send`.
    /// Example:
    ///     auto rows = co_await peer.open(kv::scan, range{0, 100});
    template <method_name Name, class E, class... Q, class... Args>
        requires(!detail::takes_stream<Q...>)
    [[nodiscard]] auto open(const method<Name, stream<E>(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, stream<E>(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return detail::make_reader<M, E>(base(), typename arguments::type(static_cast<Args&&>(args)...));
    }

    /// Awaitable.
    /// Ends with a `call_writer`, of a method that takes a stream: `co_await rows.write(one)`, and `co_await rows.finish()` for the
    /// result, or `co_await rows.next()` where that is a stream, too. Destroying it before cancels the call.
    /// Completes: when the request has been sent.
    /// Buffers: as `call`, until then.
    /// Concurrency: as `call`.
    /// Errors: those of `endpoint::send`; what the handler throws comes with the result.
    /// Cancellation: as `endpoint::send`, after a second: what can be sent until then is, and the `call_writer` is there.
    /// Example:
    ///     auto rows = co_await peer.open(kv::load);
    template <method_name Name, class R, class... Q, class... Args>
        requires(detail::takes_stream<Q...>)
    [[nodiscard]] auto open(const method<Name, R(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, R(Q...)>;
        using arguments = detail::call_arguments<typename M::parameters, Args...>;
        return detail::make_writer<M>(base(), typename arguments::type(static_cast<Args&&>(args)...));
    }

    /// Awaitable.
    /// Completes: when the handlers that run have ended and their answers are sent; no further request is received. Then the endpoint
    /// may be closed. Calls of this side and their streams go on, and others may begin.
    /// Buffers: none.
    /// Concurrency: once.
    /// Errors: none.
    /// Cancellation: at any time; the requests that have come stay.
    /// Example:
    ///     co_await timeout(served.drain(), 5s);
    [[nodiscard]] task<> drain() { return this->drained(); }

    /// Bytes of arguments, results and items that the encoding has copied on this side: to be sent, or after they had been received. Rows
    /// that are sent from where they are, received in place, or read as views are none.
    [[nodiscard]] std::uint64_t bytes_copied() const noexcept { return this->copied(); }

protected:
    explicit any_calls(const detail::any_connection& over) noexcept : calls_base(over) {}

private:
    template <transport...>
    friend class node_calls;

    [[nodiscard]] detail::calls_base& base() noexcept { return *this; }
};

}  // namespace rdmacoro
