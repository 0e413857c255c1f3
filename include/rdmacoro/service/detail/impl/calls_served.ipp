// How requests are served: what is received, let in, run and answered.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/handler.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <utility>

namespace rdmacoro::detail {

// ---- requests

RDMACORO_DECL time_point calls_base::due(const message& request) const noexcept {
    request_head head{};
    if (request.size() < sizeof head) return {};
    std::memcpy(&head, request.bytes().data(), sizeof head);
    if (head.time == 0) return {};
    return owner_.now() + std::chrono::microseconds(head.time);
}

RDMACORO_DECL handler_base* calls_base::find_handler(const service& of, const message& request,
                                                     call_failure& failed) noexcept {
    request_head head{};
    if (request.size() < sizeof head) {
        failed.set(call_errc::malformed_request, "a request without a head");
        return nullptr;
    }
    std::memcpy(&head, request.bytes().data(), sizeof head);
    handler_base* const found = of.find(head.method);
    if (found == nullptr) {
        failed.set(call_errc::unknown_method);
    } else if (found->facts.signature != head.signature) {
        failed.set(call_errc::signature_mismatch, found->facts.name);
    } else {
        return found;
    }
    return nullptr;
}

RDMACORO_COLD void check_arguments(calls_base& of, const decoder& from, bool whole) {
    of.count_copied(from.copied());
    if (!whole) throw_malformed_request(from.why());
    if (from.left() != 0) throw_malformed_request("more bytes than the arguments have");
}

RDMACORO_DECL encoder& answer::encoder_of_it() {
    long_.bytes = of_.take_encoder();
    long_.bytes->write(answer_head{});
    return *long_.bytes;
}
RDMACORO_DECL void answer::give_back() noexcept { of_.give_encoder(std::move(long_.bytes)); }

// ---- limits

RDMACORO_DECL bool calls_base::try_admit(service& of, std::size_t bytes) noexcept {
    if (!of.running_.try_acquire()) return false;
    if (of.bytes_.try_acquire(std::min(bytes, of.options_.bytes))) return true;
    of.running_.release();
    return false;
}
RDMACORO_COLD task<> calls_base::admit(service& of, std::size_t bytes) {
    co_await of.bytes_.acquire(std::min(bytes, of.options_.bytes));
    try {
        co_await of.running_.acquire();
    } catch (...) {
        of.bytes_.release(std::min(bytes, of.options_.bytes));
        throw;
    }
}
RDMACORO_DECL void calls_base::leave_bytes(service& of, std::size_t bytes) noexcept {
    of.bytes_.release(std::min(bytes, of.options_.bytes));
}
RDMACORO_DECL void calls_base::leave(service& of, std::size_t bytes) noexcept {
    leave_bytes(of, bytes);
    of.running_.release();
}

RDMACORO_DECL bool calls_base::keep_place(service& of) noexcept {
    if (of.unsent_ >= of.options_.running / 2) return false;
    ++of.unsent_;
    return true;
}
RDMACORO_DECL void calls_base::keep_no_longer(service& of) noexcept { --of.unsent_; }

// ---- from the request to the answer

RDMACORO_COLD task<> calls_base::answer_failure(tag_type request, const call_failure& failed) {
    const call_kind asked = kind_of_call(request);
    if (asked == call_kind::one_way) co_return;
    co_await send(failed.bytes(), call_tag(kind_of_answer(asked), call_number(request)));
}

RDMACORO_DECL calls_base::served calls_base::serve_now(service& of, tag_type request,
                                                       std::span<const std::byte> bytes, answer& out,
                                                       call_failure& failed) noexcept {
    request_head head;
    if (bytes.size() < sizeof head) return served::later;
    std::memcpy(&head, bytes.data(), sizeof head);
    const call_kind asked = kind_of_call(request);
    const std::uint64_t number = call_number(request);
    handler_base* const handler = of.find(head.method);
    if (handler == nullptr || !handler->at_once || handler->facts.signature != head.signature ||
        asked == call_kind::open || (number & caller_writes_bit) != 0 ||
        history_.of(number) != fate::unknown || !try_admit(of, bytes.size()))
        return served::later;
    time_point until{};
    if (head.time != 0) until = owner_.now() + std::chrono::microseconds(head.time);
    call_context context(*this, number, bytes.size(), until);
    try {
        static_cast<void>(
            handler->begin(context, {bytes.subspan(sizeof head), of.options_.arguments, *this}, out));
    } catch (...) {
        failed.set_current(context);
    }
    if (!failed && out.is_long()) {
        try {
            static_cast<void>(out.bytes());  // what takes memory is done here
        } catch (...) {
            failed.set(errc::no_resources, "no memory for its answer");
        }
    }
    has_ended(number);
    if (out.is_long() && !failed && asked != call_kind::one_way) return served::long_answer;
    leave(of, bytes.size());
    if (asked == call_kind::one_way) return served::nothing;
    return failed ? served::failure : served::answer;
}

RDMACORO_DECL task<> calls_base::serve_requests(unsent_answers& unsent) {
    short_answers answers(*this, stop_.get_token());
    std::exception_ptr failure;
    try {
        co_await receive_requests(unsent, answers);
    } catch (...) {
        failure = std::current_exception();
    }
    for (std::size_t n = 0; n < answers.places(); ++n) co_await answers.until_sent(answers.place_at(n));
    if (failure) std::rethrow_exception(failure);
}

RDMACORO_DECL task<> calls_base::receive_requests(unsent_answers& unsent, short_answers& answers) {
    service& of = unsent.of;
    // Now and then what was answered may leave: a peer that waits for all of its calls goes on while the rest is served.
    constexpr unsigned most_at_once = 32;
    call_failure failed;
    for (unsigned count = 1;; ++count) {
        if (count % most_at_once == 0) co_await yield();
        short_answers::place* const place = answers.next();
        if (place == nullptr) [[unlikely]] {
            co_await answers.until_one_is_free();
            continue;
        }
        while (unsent.count >= of.options_.running) [[unlikely]]
            co_await unsent.fewer.wait();
        // Read in place. A move would load pairs of words that were just stored one by one, and wait for all stores before them: those of
        // answers, to lines that the peer's cache has.
        any_lent_receive arriving = receive(requests_to(of.number_));
        co_await arriving.until_ended();
        if (const std::error_code failure = arriving.code_) [[unlikely]] {
            if (ends_link(failure)) co_return;
            if (failure == errc::truncated || failure == errc::no_resources)
                co_await refuse_unreceived(arriving.got_, failure);
            continue;
        }
        const tag_type tag = arriving.got_.tag;
        if ((tag & first_call_bit) != 0) [[unlikely]]
            tell_known(of.number_);
        {
            answer out(*this, *place);
            const served how = serve_now(of, tag, arriving.bytes(), out, failed);
            if (how == served::answer) [[likely]] {
                const tag_type answered = call_tag(call_kind::answer, call_number(tag));
                if (!answers.begin(*place, out.size(), answered)) [[unlikely]] {
                    const busy until_sent(*this);
                    co_await answers.until_sent(*place);
                }
                continue;
            }
            if (how == served::long_answer) {
                admission counted(&of, arriving.bytes().size());
                const child sending = send_long(*this, *this, unsent, *arriving.outcome(), out.take_long());
                counted.of = nullptr;  // it counts from now on
                begin_handler(sending);
            }
            if (how == served::failure) {
                const busy until_sent(*this);
                const auto told = co_await as_result(without_stop(answer_failure(tag, failed), to_answer));
                if (!told && !ends_link(told.error())) abort_link();  // its caller would wait for ever
            }
            if (how != served::later) {
                if (failed) failed = call_failure();
                continue;
            }
        }
        message request = *arriving.outcome();
        const std::size_t bytes = request.size();
        const time_point until = due(request);
        if (try_admit(of, bytes)) {
            admission counted(&of, bytes);
            const child serving = serve_one(*this, *this, unsent, std::move(request), until, true, nullptr);
            counted.of = nullptr;  // it counts from now on
            begin_handler(serving);
        } else {
            event admitted;
            begin_handler(serve_one(*this, *this, unsent, std::move(request), until, false, &admitted));
            co_await without_stop(admitted.wait());
        }
    }
}

RDMACORO_DECL child calls_base::send_long(child_owner&, calls_base& self, unsent_answers& unsent,
                                          message request, long_answer out) {
    admission held(&unsent.of, request.size());
    const unsent_answer until_sent(unsent, held);
    const tag_type answered = call_tag(call_kind::answer, call_number(request.tag()));
    request.release();  // its bytes do not count any more
    call_failure failed;
    try {
        co_await without_stop(self.send(const_buffers(out.bytes->pieces()), answered), to_answer);
    } catch (...) {
        answer_not_sent(failed);
    }
    self.give_encoder(std::move(out.bytes));
    if (failed) co_await without_stop(self.answer_failure(request.tag(), failed), to_answer);
}

RDMACORO_COLD void calls_base::short_not_sent(tag_type answer, const std::error_code& why) noexcept {
    if (ends_link(why)) return;
    try {
        call_failure failed;
        failed.set(errc::no_resources, "its answer could not be sent");
        begin_handler(send_failure(*this, *this, answer, failed));
    } catch (...) {
        abort_link();
    }
}
RDMACORO_COLD child calls_base::send_failure(child_owner&, calls_base& self, tag_type answer,
                                             call_failure failed) {
    co_await without_stop(self.send(failed.bytes(), answer), to_answer);
}

RDMACORO_DECL short_answers::short_answers(calls_base& of, local_stop_token until) noexcept
    : of_(of), to_(of.link()), until_(until) {}
RDMACORO_COLD void short_answers::not_sent(const any_send& failed) noexcept {
    of_.short_not_sent(failed.tag_, failed.code_);
}
RDMACORO_DECL short_answers::place* short_answers::one_more() noexcept {
    if (!more_) more_.reset(new (std::nothrow) place[most]);
    if (!more_ || !is_free(more_[turn_])) return nullptr;
    return &more_[std::exchange(turn_, (turn_ + 1) % most)];
}

RDMACORO_DECL child calls_base::serve_one(child_owner&, calls_base& self, unsent_answers& unsent,
                                          message request, time_point until, bool admitted, event* then) {
    service& of = unsent.of;
    const std::uint64_t number = call_number(request.tag());
    const std::size_t bytes = request.size();
    call_failure failed;
    admission held(admitted ? &of : nullptr, bytes);
    call_context context(self, number, bytes, until);
    const running_call cancelable(self, context);
    const call_timer expires(self.owner_, context);
    if (!admitted) {
        const waiting until_let_in(*then);
        const auto let_in = co_await as_result(with_stop(self.admit(of, bytes), token(context)));
        if (let_in) {
            held.of = &of;
        } else {
            failed.set(call_errc::stopped);
        }
    }
    short_answer here;
    answer out(self, here);
    const fate said = self.was_canceled(number);
    if (said == fate::answered) co_return;
    const bool canceled = failed || said == fate::canceled;
    handler_base* const handler = self.find_handler(of, request, failed);
    if (handler != nullptr && until != time_point{} && context.remaining() == duration::zero()) {
        failed.set(call_errc::expired);
    } else if (canceled) {
        failed.set(call_errc::stopped);
    } else if (handler != nullptr) {
        context.method_ = &handler->facts;
        try {
            handler_run running = handler->begin(
                context, {request.bytes().subspan(sizeof(request_head)), of.options_.arguments, self}, out);
            if (!running.has_ended()) co_await running.under(token(context));
        } catch (...) {
            failed.set_current(context);
        }
    }
    const call_kind asked = kind_of_call(request.tag());
    // With a one-way request no caller writes a stream, and no answer would bound how many wait to be told that they are not read.
    if (asked != call_kind::one_way) self.end_reading(context);
    const unsent_answer until_sent(unsent, held);
    if (handler != nullptr) request.release();  // its bytes do not count any more
    if (!failed) {
        try {
            if (asked == call_kind::open) {
                const answer_head end{static_cast<std::uint32_t>(outcome_kind::end), 0};
                co_await without_stop(
                    self.send(std::as_bytes(std::span(&end, 1)), call_tag(call_kind::item, number)),
                    to_answer);
            } else if (asked == call_kind::request) {
                co_await without_stop(self.send(out.bytes(), call_tag(call_kind::answer, number)), to_answer);
            }
        } catch (...) {
            answer_not_sent(failed);
        }
    }
    if (failed) {
        if (asked == call_kind::one_way && handler == nullptr) co_await self.tell_refused(request, failed);
        co_await without_stop(self.answer_failure(request.tag(), failed), to_answer);
    }
}

}  // namespace rdmacoro::detail
