// calls: what both ends of a connection ask of each other by name, with typed arguments, results, deadlines and cancellation.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/service/call_operation.hpp>
#include <rdmacoro/service/call_writer.hpp>
#include <rdmacoro/service/detail/answer_in_place.hpp>
#include <rdmacoro/service/detail/call_arguments.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/service.hpp>
#include <rdmacoro/service/stream.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace rdmacoro {

template <transport... Ts>
class node_calls;

/// Calls over one endpoint, in both directions: `call`, `cast` and `open` go to the peer, and `serve` offers a service to it. Uses tags
/// with the highest bit set; messages with other tags are the program's own (`recv` with `tag_match(0, 1ull << 63)`, not `any_tag`).
///
/// Made and used on the endpoint's scheduler, which runs; it must be destroyed before the endpoint. Destroying it asks handlers
/// to stop and runs the scheduler until they have ended; calls of this side must have ended before.
template <transport T, protocol_list P = default_protocols<T>>
class calls final : private detail::calls_base {
public:
    /// Over an open endpoint, which is borrowed.
    explicit calls(endpoint<T, P>& over) : calls_base(over.owner()), over_(over) {
        // The link has ended, as all operations say; or there is no memory, and callers would wait for ever.
        loops_.on_error([this](const std::exception_ptr&) { over_.abort(); });
        notes_.on_error([this](const std::exception_ptr&) { over_.abort(); });
        notes_.spawn([this] { return serve_notes(); });
        loops_.spawn([this] { return serve_unserved(detail::first_requests); });
        loops_.spawn([this] { return serve_unserved(detail::later_requests); });
    }
    /// The same, and serves.
    calls(endpoint<T, P>& over, service& offered) : calls(over) { serve(offered); }
    ~calls() override { this->end(); }

    /// From now on the peer's calls of `what`'s methods run here. Throws `errc::invalid_argument` for a service without methods, and
    /// where one with the same prefix is offered already.
    void serve(service& what) {
        offer(what);
        loops_.spawn([this, &what] { return serve_requests(what); });
    }

    /// Awaitable.
    /// Ends with the method's result.
    /// Completes: when the peer has answered.
    /// Buffers: variables among the arguments are borrowed until then, temporaries moved in. Long rows of numbers among them go to the
    ///     network from where they are.
    /// Concurrency: any number at a time; the peer begins them in the order in which they began here, and answers in any.
    /// Errors: what the handler threw, with its code and text, or `call_errc`; those of the messages, such as `errc::peer_lost`;
    ///     `errc::message_too_long` for a request above the peer's `mailbox_options::lent_bytes`.
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
        auto make = [this, kept = typename arguments::type(static_cast<Args&&>(args)...)](
                        time_point until) mutable { return run_call<M, arguments>(*this, kept, until); };
        return call_operation<R, decltype(make)>(std::move(make));
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
        auto make = [this, place, kept = typename arguments::type(static_cast<Args&&>(args)...)](
                        time_point until) mutable {
            return run_call_into<M, arguments>(*this, place, kept, until);
        };
        return call_operation<std::size_t, decltype(make)>(std::move(make));
    }

    /// Awaitable.
    /// Completes: when the request has been sent: as `endpoint::send`. The handler's end is not heard of.
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
        auto make = [this, kept = typename arguments::type(static_cast<Args&&>(args)...)](
                        time_point until) mutable { return run_cast<M, arguments>(*this, kept, until); };
        return call_operation<void, decltype(make)>(std::move(make));
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
        auto make = [this, kept = typename arguments::type(static_cast<Args&&>(args)...)](
                        time_point until) mutable { return run_open<M, E, arguments>(*this, kept, until); };
        return call_operation<stream_reader<E>, decltype(make)>(std::move(make));
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
        auto make = [this, kept = typename arguments::type(static_cast<Args&&>(args)...)](
                        time_point until) mutable { return run_write<M, arguments>(*this, kept, until); };
        return call_operation<call_writer<typename M::written_type, R>, decltype(make)>(std::move(make));
    }

    /// Awaitable.
    /// Completes: when the handlers that run have ended and their answers are sent; no further request is received. Then the endpoint
    /// may be closed.
    /// Buffers: none.
    /// Concurrency: once.
    /// Errors: none.
    /// Cancellation: at any time; the requests that have come stay.
    /// Example:
    ///     co_await timeout(served.drain(), 5s);
    [[nodiscard]] task<> drain() { return this->drained(); }

    /// The endpoint that it was made with.
    [[nodiscard]] endpoint<T, P>& over() noexcept { return over_; }

private:
    template <transport...>
    friend class node_calls;
    using kind = detail::call_kind;
    using head = detail::request_head;

    /// Counts a call of this side while it lives.
    struct pending {
        explicit pending(calls& among) noexcept : of(among) { of.began(); }
        pending(const pending&) = delete;
        pending& operator=(const pending&) = delete;
        ~pending() { of.ended(); }
        calls& of;
    };

    /// Sends the request of a call.
    template <class M, class Arguments>
    static task<> send_request(calls& self, tag_type tag, typename Arguments::type& kept, time_point until) {
        if constexpr (Arguments::fixed) {
            const auto request = fixed_request<M, Arguments>(kept, until);
            co_await self.over_.send(std::span<const std::byte>(request), tag);
        } else {
            encoder_loan request(self);
            request->write(head{M::number, M::signature, detail::time_to_send(until)});
            std::apply([&](const auto&... each) { (request->write(each), ...); }, kept);
            co_await self.over_.send(const_buffers(request->pieces()), tag);
        }
    }
    /// A request with arguments that travel as their bytes.
    template <class M, class Arguments>
    static auto fixed_request(const typename Arguments::type& kept, time_point until) noexcept {
        const head first{M::number, M::signature, detail::time_to_send(until)};
        std::array<std::byte, sizeof first + Arguments::bytes> request;
        std::byte* to = request.data();
        std::memcpy(to, &first, sizeof first);
        to += sizeof first;
        std::apply(
            [&](const auto&... each) {
                ((std::memcpy(to, std::addressof(each), sizeof each), to += sizeof each), ...);
            },
            kept);
        return request;
    }
    [[nodiscard]] tag_type request_tag(kind which, std::uint64_t number, std::uint16_t service) noexcept {
        return detail::call_tag(which, number, service) | first_bit(service);
    }

    /// Waits for an answer of fixed length, or an error.
    template <class M, class Arguments>
    static task<typename M::result_type> run_call(calls& self, typename Arguments::type& kept,
                                                  time_point until) {
        using R = typename M::result_type;
        const pending counted(self);
        const tag_type asked = self.request_tag(kind::request, self.next_number(), M::service);
        result<> sent;
        if constexpr (Arguments::fixed) {  // without a frame of its own
            const auto request = fixed_request<M, Arguments>(kept, until);
            sent = co_await as_result(self.over_.send(std::span<const std::byte>(request), asked));
        } else {
            sent = co_await as_result(send_request<M, Arguments>(self, asked, kept, until));
        }
        if (!sent) co_await not_sent<M>(self, asked, sent);
        const tag_type answered = detail::call_tag(kind::answer, asked);
        constexpr std::size_t head_bytes = sizeof(detail::answer_head);
        if constexpr (detail::fixed_answer<R>()) {
            std::array<std::byte,
                       head_bytes + std::max(detail::answer_bytes<R>(), detail::longest_error_text)>
                room;
            const auto got =
                co_await as_result(self.over_.recv(std::span(room), answered, discard_if_canceled));
            if (!got) self.template answer_lost<M>(asked, got.error(), got.facts());
            const auto bytes = std::span(room).first(got->bytes);
            self.template check_answer<M>(bytes);
            if (bytes.size() != head_bytes + detail::answer_bytes<R>())
                detail::throw_malformed_answer(M::facts, "another length than its type's");
            if constexpr (!std::is_void_v<R>) {
                R value;
                std::memcpy(std::addressof(value), bytes.data() + head_bytes, sizeof value);
                co_return value;
            }
        } else {
            auto got = co_await as_result(self.over_.recv_lent(answered, discard_if_canceled));
            if (!got) self.template answer_lost<M>(asked, got.error(), got.facts());
            self.template check_answer<M>(got->bytes());
            co_return read_answer<M>(got->bytes().subspan(head_bytes));
        }
    }
    template <class M>
    static typename M::result_type read_answer(std::span<const std::byte> bytes) {
        using R = typename M::result_type;
        return detail::read_answer<R>(M::facts, bytes);
    }

    template <class M, class Arguments, class E>
    static task<std::size_t> run_call_into(calls& self, std::span<E> place, typename Arguments::type& kept,
                                           time_point until) {
        const pending counted(self);
        const tag_type asked = self.request_tag(kind::request, self.next_number(), M::service);
        const auto sent = co_await as_result(send_request<M, Arguments>(self, asked, kept, until));
        if (!sent) co_await not_sent<M>(self, asked, sent);
        const std::span<std::byte> bytes = std::as_writable_bytes(place);
        detail::answer_in_place room(bytes);
        const auto got = co_await as_result(
            self.over_.recv(room.into(), detail::call_tag(kind::answer, asked), discard_if_canceled));
        if (!got) self.template answer_lost<M>(asked, got.error(), got.facts());
        const std::size_t length = room.length(M::facts, got->bytes);
        if (length % sizeof(E) != 0) detail::throw_malformed_answer(M::facts, "a part of an element");
        co_return length / sizeof(E);
    }

    template <class M, class Arguments>
    static task<> run_cast(calls& self, typename Arguments::type& kept, time_point until) {
        const pending counted(self);
        self.check_refused(M::facts);
        const tag_type asked = self.request_tag(kind::one_way, self.next_number(), M::service);
        const auto sent = co_await as_result(send_request<M, Arguments>(self, asked, kept, until));
        if (!sent) detail::throw_call_failure(M::facts, sent.error(), sent.facts());
    }

    template <class M, class E, class Arguments>
    static task<stream_reader<E>> run_open(calls& self, typename Arguments::type& kept, time_point until) {
        const pending counted(self);
        const tag_type asked = self.request_tag(kind::open, self.next_number(), M::service);
        const auto sent = co_await as_result(send_request<M, Arguments>(self, asked, kept, until));
        if (!sent) {
            if (sent.error() == errc::canceled) self.leave_stream(asked, true);
            detail::throw_call_failure(M::facts, sent.error(), sent.facts());
        }
        co_return stream_reader<E>(self, M::facts, asked);
    }

    /// The request of a call that comes with a stream of its caller.
    template <class M, class Arguments>
    static task<call_writer<typename M::written_type, typename M::result_type>>
    run_write(calls& self, typename Arguments::type& kept, time_point until) {
        using R = typename M::result_type;
        calls_base& base = self;
        auto written = std::make_unique<detail::upstream>(
            base, M::facts, self.next_number() | detail::caller_writes_bit, detail::is_stream<R>);
        const tag_type asked = self.request_tag(detail::is_stream<R> ? kind::open : kind::request,
                                                written->number(), M::service);
        const auto sent = co_await as_result(
            without_stop(send_request<M, Arguments>(self, asked, kept, until), std::chrono::seconds(1)));
        if (!sent) {
            written->not_asked(sent.error() == errc::canceled);
            detail::throw_call_failure(M::facts, sent.error(), sent.facts());
        }
        co_return call_writer<typename M::written_type, R>(std::move(written));
    }

    /// A request's send has failed. One that was canceled may have arrived all the same: its answer is dropped.
    template <class M>
    static task<> not_sent(calls& self, tag_type asked, result<> sent) {
        if (sent.error() == errc::canceled) {
            self.tell_canceled(asked, true);
            std::byte none{};
            static_cast<void>(co_await as_result(self.over_.recv(
                std::span(&none, 1), detail::call_tag(kind::answer, asked), discard_if_canceled)));
        }
        detail::throw_call_failure(M::facts, sent.error(), sent.facts());
        co_return;
    }
    /// A call's answer did not come.
    template <class M>
    [[noreturn]] void answer_lost(tag_type asked, const std::error_code& code, const error_facts& facts) {
        if (code == errc::canceled) tell_canceled(asked, false);
        detail::throw_call_failure(M::facts, code, facts);
    }
    /// Throws unless it has a value.
    template <class M>
    static void check_answer(std::span<const std::byte> answer) {
        detail::answer_head first{};
        if (answer.size() < sizeof first)
            detail::throw_malformed_answer(M::facts, "an answer without a head");
        std::memcpy(&first, answer.data(), sizeof first);
        if (first.outcome != static_cast<std::uint32_t>(detail::outcome_kind::value)) [[unlikely]]
            detail::throw_answer(M::facts, answer);
    }

    /// Receives the requests to a service as its limits allow: where they are reached, the next one waits here, and the others at their callers.
    task<> serve_requests(service& of) {
        // Now and then what was answered may leave: a peer that waits for all of its calls goes on while the rest is served.
        constexpr unsigned most_at_once = 32;
        for (unsigned count = 1;; ++count) {
            if (count % most_at_once == 0) co_await yield();
            auto request = co_await as_result(receive_request(detail::requests_to(of_number(of))));
            if (!request) {
                if (ends_link(request.error())) co_return;
                if (request.error() == errc::truncated) co_await refuse_long(request.facts());
                continue;
            }
            if ((request->tag() & detail::first_call_bit) != 0) tell_known(of_number(of));
            const std::size_t bytes = request->size();
            const time_point until = due(*request);
            if (try_admit(of, bytes)) {
                begin_handler(serve_one(*this, *this, of, *std::move(request), until, true, nullptr));
            } else {
                event admitted;
                begin_handler(serve_one(*this, *this, of, *std::move(request), until, false, &admitted));
                co_await without_stop(admitted.wait());
            }
        }
    }
    [[nodiscard]] auto receive_request(tag_match wanted) noexcept { return over_.recv_lent(wanted); }
    task<> answer_failure(tag_type request, const detail::call_failure& failed) {
        const kind asked = detail::kind_of_call(request);
        if (asked != kind::one_way)
            co_await over_.send(failed.bytes(), detail::call_tag(detail::kind_of_answer(asked),
                                                                 detail::call_number(request)));
    }
    /// One request, from its arrival to its answer. `admitted`: whether it counts for the limits of its service; if not, it waits for that,
    /// and sets `then` when it waits no longer.
    static detail::child serve_one(detail::child_owner&, calls& self, service& of, message request,
                                   time_point until, bool admitted, event* then) {
        const std::uint64_t number = detail::call_number(request.tag());
        const std::size_t bytes = request.size();
        detail::call_failure failed;
        call_context context(self, number, bytes, until);
        const running_call cancelable(self, context);
        if (!admitted) {
            const waiting until_let_in(*then);
            const auto let_in = co_await as_result(with_stop(admit(of, bytes), token(context)));
            admitted = let_in.has_value();
            if (!admitted) failed.set(call_errc::stopped);
        }
        const admission held(admitted ? &of : nullptr, bytes);
        encoder_loan to(self);
        to->write(detail::answer_head{});
        detail::answer out{*to};
        const fate said = self.was_canceled(number);
        if (said == fate::answered) co_return;
        const bool canceled = failed || said == fate::canceled;
        detail::handler_base* const handler = self.find_handler(of, request, failed);
        if (canceled) {
            failed.set(call_errc::stopped);
        } else if (until != time_point{} && context.remaining() == duration::zero()) {
            failed.set(call_errc::expired);
        } else if (handler != nullptr) {
            serves(context, *handler);
            try {
                auto running = with_stop(handler->run(context, arguments(of, request), out), token(context));
                if (until == time_point{}) {
                    co_await std::move(running);
                } else {
                    co_await timeout(std::move(running), *context.remaining());
                }
            } catch (...) {
                failed.set_current(context);
            }
        }
        const kind asked = detail::kind_of_call(request.tag());
        self.end_reading(context);
        if (!failed) {
            try {
                if (asked == kind::open) {
                    const detail::answer_head end{static_cast<std::uint32_t>(detail::outcome_kind::end), 0};
                    co_await self.over_.send(std::as_bytes(std::span(&end, 1)),
                                             detail::call_tag(kind::item, number));
                } else if (asked == kind::request) {
                    co_await self.over_.send(const_buffers(to->pieces()),
                                             detail::call_tag(kind::answer, number));
                }
            } catch (...) {
                answer_not_sent(failed);
            }
        }
        if (failed) {
            if (asked == kind::one_way && handler == nullptr) co_await self.tell_refused(request, failed);
            co_await without_stop(self.answer_failure(request.tag(), failed), std::chrono::seconds(1));
        }
    }
    struct admission {
        admission(service* in, std::size_t n) noexcept : of(in), bytes(n) {}
        admission(const admission&) = delete;
        admission& operator=(const admission&) = delete;
        ~admission() {
            if (of != nullptr) leave(*of, bytes);
        }
        service* of;
        std::size_t bytes;
    };
    struct waiting {
        explicit waiting(event& set_then) noexcept : then(set_then) {}
        waiting(const waiting&) = delete;
        waiting& operator=(const waiting&) = delete;
        ~waiting() { then.set(); }
        event& then;
    };

    // What the parts that do not depend on the transport need of it.
    task<> send(const_buffers from, tag_type tag) override { co_await over_.send(from, tag); }
    task<message> receive(tag_match wanted) override { co_return co_await over_.recv_lent(wanted); }
    task<message> receive_or_drop(tag_match wanted) override {
        co_return co_await over_.recv_lent(wanted, discard_if_canceled);
    }
    std::size_t discard(tag_match wanted) override { return over_.discard(wanted); }
    task<> arrival(tag_match wanted) override { static_cast<void>(co_await over_.probe(wanted)); }
    void find_unserved(std::vector<tag_type>& into, tag_match among) override {
        into.reserve(256);
        auto& link = over_.connection();
        link.mailbox().matching().each_stored(link.source(), [&](detail::unexpected_message& m) noexcept {
            if (into.size() != into.capacity() && among.accepts(m.tag) &&
                !this->offers(detail::service_of(m.tag)))
                into.push_back(m.tag);
        });
    }
    bool is_stored(tag_match wanted) override {
        auto& link = over_.connection();
        return link.mailbox().matching().find(link.source(), wanted) != nullptr;
    }
    void abort_link() noexcept override { over_.abort(); }
    [[nodiscard]] std::string peer_name() const override { return over_.peer_name(); }
    task<> get(const remote_region& there, std::span<std::byte> into) override {
        if constexpr (requires { over_.rdma_get(there, into); }) {
            co_await over_.rdma_get(there, into);
        } else {
            detail::throw_error(errc::unsupported, "call::get: the transport has no one-sided operations");
        }
        co_return;
    }
    task<> put(std::span<const std::byte> from, const remote_region& there) override {
        if constexpr (requires { over_.rdma_put(from, there); }) {
            co_await over_.rdma_put(from, there);
        } else {
            detail::throw_error(errc::unsupported, "call::put: the transport has no one-sided operations");
        }
        co_return;
    }

    endpoint<T, P>& over_;
};

}  // namespace rdmacoro
