// Calls of this side: what is sent, what is waited for, and how they end.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/service/detail/answer_in_place.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/upstream.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_DECL task<> calls_base::send_request(tag_type tag, const call_request& what) {
    encoder_loan request(*this);
    request->write(request_head{what.of.number, what.of.signature, time_to_send(what.until)});
    what.write(*request, what.arguments);
    co_await send(const_buffers(request->pieces()), tag);
}

RDMACORO_COLD void calls_base::throw_if_refused(const method_facts& of) {
    const auto found = std::ranges::find(refused_, of.number, &note_head::method);
    if (found == refused_.end()) return;
    const std::error_code why(static_cast<int>(found->amount), call_category());
    refused_.erase(found);
    throw error(why, "call of " + std::string(of.name) + ": an earlier one was refused");
}

RDMACORO_COLD task<> calls_base::not_sent(const method_facts& of, tag_type asked, result<> sent) {
    if (perhaps_sent(sent.error(), sent.facts())) {
        tell_canceled(asked, true);
        static_cast<void>(co_await as_result(receive(call_tag(call_kind::answer, asked), true)));
    }
    throw_call_failure(of, sent.error(), sent.facts());
    co_return;
}
RDMACORO_COLD void calls_base::answer_lost(const method_facts& of, tag_type asked,
                                           const std::error_code& code, const error_facts& facts) {
    if (code == errc::canceled) tell_canceled(asked, false);
    throw lent_failure(of, "its answer", code, facts);
}

RDMACORO_DECL task<message> calls_base::take_answer(const method_facts& of, tag_type asked) {
    auto got = co_await as_result(receive(call_tag(call_kind::answer, asked), true));
    if (!got) [[unlikely]]
        answer_lost(of, asked, got.error(), got.facts());
    check_answer(of, got->bytes());
    co_return *std::move(got);
}

RDMACORO_DECL task<message> calls_base::ask(call_request what) {
    const pending counted(*this);
    const tag_type asked = request_tag(call_kind::request, next_number(), what.of.service);
    result<> sent;
    {
        encoder_loan request(*this);
        request->write(request_head{what.of.number, what.of.signature, time_to_send(what.until)});
        what.write(*request, what.arguments);
        sent = co_await as_result(send(const_buffers(request->pieces()), asked));
    }
    if (!sent) [[unlikely]]
        co_await not_sent(what.of, asked, sent);
    auto got = co_await as_result(receive(call_tag(call_kind::answer, asked), true));
    if (!got) [[unlikely]]
        answer_lost(what.of, asked, got.error(), got.facts());
    check_answer(what.of, got->bytes());
    co_return *std::move(got);
}

RDMACORO_DECL task<message> calls_base::ask_further(any_send& sending, tag_type asked,
                                                    const method_facts& of) {
    const auto sent = co_await as_result(sending);
    if (!sent) co_await not_sent(of, asked, sent);
    co_return co_await take_answer(of, asked);
}

RDMACORO_DECL task<std::size_t> calls_base::ask_into(call_request what, std::span<std::byte> place) {
    const pending counted(*this);
    const tag_type asked = request_tag(call_kind::request, next_number(), what.of.service);
    const auto sent = co_await as_result(send_request(asked, what));
    if (!sent) co_await not_sent(what.of, asked, sent);
    answer_in_place room(place);
    const auto got = co_await as_result(any_receive(link_, call_tag(call_kind::answer, asked), room.into()));
    if (!got) {
        if (got.error() == errc::canceled) tell_canceled(asked, false);
        throw_call_failure(what.of, got.error(), got.facts());
    }
    co_return room.length(what.of, got->bytes);
}

RDMACORO_DECL task<> calls_base::tell(call_request what) {
    const pending counted(*this);
    check_refused(what.of);
    const tag_type asked = request_tag(call_kind::one_way, next_number(), what.of.service);
    const auto sent = co_await as_result(send_request(asked, what));
    if (!sent) throw_call_failure(what.of, sent.error(), sent.facts());
}

RDMACORO_COLD task<tag_type> calls_base::open_reader(call_request what) {
    const pending counted(*this);
    const tag_type asked = request_tag(call_kind::open, next_number(), what.of.service);
    const auto sent = co_await as_result(send_request(asked, what));
    if (!sent) {
        if (perhaps_sent(sent.error(), sent.facts())) leave_stream(asked, true);
        throw_call_failure(what.of, sent.error(), sent.facts());
    }
    co_return asked;
}

/// Until the request of a stream is made: its peer does not know of it.
struct asking_upstream {
    upstream* of;
    ~asking_upstream() {
        if (of != nullptr) of->not_asked(false);
    }
};

RDMACORO_COLD task<std::unique_ptr<upstream>> calls_base::open_writer(call_request what, bool items) {
    auto written = std::make_unique<upstream>(*this, what.of, next_number() | caller_writes_bit, items);
    const tag_type asked =
        request_tag(items ? call_kind::open : call_kind::request, written->number(), what.of.service);
    asking_upstream encoding{written.get()};  // may throw anything
    const auto sent = co_await as_result(send_request(asked, what));
    encoding.of = nullptr;
    if (!sent) {
        written->not_asked(perhaps_sent(sent.error(), sent.facts()));
        throw_call_failure(what.of, sent.error(), sent.facts());
    }
    co_return written;
}

}  // namespace rdmacoro::detail
