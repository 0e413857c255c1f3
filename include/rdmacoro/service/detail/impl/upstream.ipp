// How the items of a caller travel, and how their stream ends on both sides.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/upstream.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD upstream::upstream(calls_base& over, const method_facts& of, std::uint64_t number, bool items)
    : over_(over), of_(of), number_(number), items_(items) {
    lost_ = over_.enlist(*this);
    over_.began();
}

RDMACORO_COLD upstream::~upstream() {
    abandon();
    if (!items_ && !answered_) over_.leave_written(number_);
    over_.forget(*this);
    over_.ended();
}

RDMACORO_COLD void upstream::not_asked(bool perhaps) noexcept {
    answered_ = true;
    if (!perhaps) {
        ended_ = true;  // the peer does not know of it
    } else {
        abandon();
        if (items_) {
            over_.leave_stream(number_, true);
        } else {
            over_.tell_canceled(number_, true);
            over_.drop_answer_of(number_);
        }
    }
}

RDMACORO_DECL encoder& upstream::begin() {
    item_.clear();
    item_.write(answer_head{static_cast<std::uint32_t>(outcome_kind::value), 0});
    return item_;
}

RDMACORO_DECL void upstream::check() const {
    if (lost_) throw_call_failure(of_, lost_, {});
    if (left_) {
        throw error(make_error_code(call_errc::reader_left),
                    "call of " + std::string(of_.name) +
                        ": its handler has ended before the stream was; its result says why");
    }
    if (ended_) throw_error(errc::closed, "call of " + std::string(of_.name) + ": its stream has ended");
}

RDMACORO_DECL task<> upstream::send() {
    check();
    while (room_ == 0) {
        const auto waited = co_await as_result(changed_.wait());
        if (!waited) {
            abandon();
            throw_call_failure(of_, waited.error(), waited.facts());
        }
        check();
    }
    --room_;
    const auto sent = co_await as_result(
        over_.send(const_buffers(item_.pieces()), call_tag(call_kind::caller_item, number_)));
    if (!sent) {
        if (sent.error() == errc::canceled) abandon();  // the handler gets a part of the item, or none
        throw_call_failure(of_, sent.error(), sent.facts());
    }
}

RDMACORO_DECL task<message> upstream::finish() {
    end();
    auto got = co_await as_result(over_.receive_or_drop(call_tag(call_kind::answer, number_)));
    answered_ = true;
    if (!got) {
        if (got.error() == errc::canceled) over_.tell_canceled(number_, false);
        throw_call_failure(of_, got.error(), got.facts());
    }
    co_return *std::move(got);
}

RDMACORO_COLD void upstream::abandon() noexcept {
    end_with(outcome_kind::call_error);
    wake();
}
RDMACORO_DECL void upstream::end_with(outcome_kind why) noexcept {
    if (!std::exchange(ended_, true)) over_.end_written(number_, why);
}

RDMACORO_DECL void upstream::has_room(std::size_t items) noexcept {
    room_ += std::min(items, stream_window - std::min(room_, stream_window));
    wake();
}
RDMACORO_COLD void upstream::was_left() noexcept {
    left_ = true;
    abandon();
}
RDMACORO_COLD void upstream::lost(const std::error_code& why) noexcept {
    lost_ = why;
    wake();
}
RDMACORO_DECL void upstream::wake() noexcept {
    changed_.set();
    changed_.reset();
}

// The connection's part.

RDMACORO_COLD std::error_code calls_base::enlist(upstream& one) {
    writers_.emplace(one.number(), &one);
    return notes_end_;
}
RDMACORO_COLD void calls_base::forget(const upstream& one) noexcept { writers_.erase(one.number()); }
RDMACORO_DECL void calls_base::tell_writer(std::uint64_t number, const note_head& note) noexcept {
    const auto at = writers_.find(number);
    if (at == writers_.end()) return;  // it has ended by itself
    if (static_cast<note_kind>(note.kind) == note_kind::room) {
        at->second->has_room(note.amount);
    } else {
        at->second->was_left();
    }
}
RDMACORO_COLD void calls_base::end_writers(const std::error_code& why) noexcept {
    notes_end_ = why;
    for (const auto& [number, one] : writers_) one->lost(why);
}

RDMACORO_COLD child calls_base::send_end(child_owner&, calls_base& self, std::uint64_t number,
                                         outcome_kind outcome) {
    const answer_head end{static_cast<std::uint32_t>(outcome), 0};
    co_await self.send(std::as_bytes(std::span(&end, 1)), call_tag(call_kind::caller_item, number));
}
RDMACORO_COLD void calls_base::end_written(std::uint64_t number, outcome_kind outcome) noexcept {
    begin_handler(send_end(*this, *this, number, outcome));
}

RDMACORO_COLD child calls_base::drop_answer(child_owner&, calls_base& self, std::uint64_t number) {
    static_cast<void>(co_await as_result(self.receive(call_tag(call_kind::answer, number))));
}
RDMACORO_COLD void calls_base::drop_answer_of(std::uint64_t number) noexcept {
    begin_handler(drop_answer(*this, *this, number));
}
RDMACORO_COLD void calls_base::leave_written(std::uint64_t number) noexcept {
    tell_canceled(number, false);
    drop_answer_of(number);
}

RDMACORO_COLD child calls_base::drop_items(child_owner&, calls_base& self, std::uint64_t number, bool waits) {
    const note_head left{static_cast<std::uint32_t>(note_kind::left), 0, 0};
    co_await self.send(std::as_bytes(std::span(&left, 1)), call_tag(call_kind::note, number));
    const tag_type items = call_tag(call_kind::caller_item, number);
    if (!waits) {
        self.discard(items);
        co_return;
    }
    ++self.dropping_;
    static_cast<void>(co_await as_result(self.drop_until_end(items)));
    --self.dropping_;
}
RDMACORO_COLD void calls_base::drop_written(std::uint64_t number) noexcept {
    // Only a peer that does not end its streams has so many; what it still writes is its mailbox's part here, which is bounded.
    begin_handler(drop_items(*this, *this, number, dropping_ < most_dropping));
}

}  // namespace rdmacoro::detail
