// How the items of a caller travel, and how their stream ends on both sides.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/upstream.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace rdmacoro::detail {

// The items.

RDMACORO_COLD caller_writer::caller_writer(upstream& of, std::uint64_t number)
    : item_sender(of.over(), of.of(), call_tag(call_kind::caller_item, number)), of_(&of), number_(number) {}
RDMACORO_COLD caller_writer::~caller_writer() {
    if (end_) over().end_written(number_, *end_);
}

RDMACORO_DECL void caller_writer::end(outcome_kind outcome) noexcept {
    refuse(make_error_code(errc::closed));
    if (idle()) {
        over().end_written(number_, outcome);
    } else {
        end_ = outcome;
    }
}
RDMACORO_COLD void caller_writer::drop(const std::error_code& why) noexcept {
    if (end_) end_ = outcome_kind::call_error;
    stop(why);
}
RDMACORO_COLD void caller_writer::leave() noexcept {
    of_ = nullptr;
    drop(make_error_code(errc::closed));
    delete_later();
}
RDMACORO_COLD void caller_writer::broken(const std::error_code&) noexcept {
    if (end_) {
        end_ = outcome_kind::call_error;  // not all of it came
    } else if (of_ != nullptr) {
        of_->abandon();
    }
}
RDMACORO_COLD void caller_writer::became_idle() noexcept {
    if (!end_) return;
    const outcome_kind outcome = *end_;
    end_.reset();
    over().end_written(number_, outcome);
}

// The call.

RDMACORO_COLD upstream::upstream(calls_base& over, const method_facts& of, std::uint64_t number, bool items)
    : over_(over),
      method_(of),
      number_(number),
      writer_(new caller_writer(*this, number)),
      answers_with_items_(items) {
    try {
        if (const std::error_code why = over_.enlist(*this)) writer_->refuse(why);
    } catch (...) {
        writer_->leave();
        throw;
    }
    over_.began();
}

RDMACORO_COLD upstream::~upstream() {
    abandon();
    leave_answer();
    writer_->leave();
    over_.forget(*this);
    over_.ended();
}

RDMACORO_COLD void upstream::leave_answer() noexcept {
    if (!answers_with_items_ && !std::exchange(answered_, true)) over_.leave_written(number_);
}

RDMACORO_COLD void upstream::not_asked(bool perhaps) noexcept {
    answered_ = true;
    if (!perhaps) {
        ended_ = true;  // the peer does not know of it
    } else {
        abandon();
        if (answers_with_items_) {
            over_.leave_stream(number_, true);
        } else {
            over_.tell_canceled(number_, true);
            over_.drop_answer_of(number_);
        }
    }
}

RDMACORO_DECL void upstream::end() noexcept {
    if (!std::exchange(ended_, true)) writer_->end(outcome_kind::end);
}
RDMACORO_COLD void upstream::abandon() noexcept {
    writer_->drop(make_error_code(errc::closed));
    if (!std::exchange(ended_, true)) over_.end_written(number_, outcome_kind::call_error);
}
RDMACORO_COLD void upstream::was_left() noexcept {
    left_ = true;
    writer_->drop(make_error_code(call_errc::reader_left));
    abandon();
}

RDMACORO_DECL task<message> upstream::finish() {
    end();
    if (!writer_->idle()) {
        const auto sent = co_await as_result(writer_->wait_until_idle());
        if (!sent) {
            writer_->drop(sent.error());
            leave_answer();
            throw_call_failure(method_, sent.error(), sent.facts());
        }
    }
    if (const std::error_code why = writer_->failure(); why && !left_) {
        leave_answer();
        throw_call_failure(method_, why, writer_->facts());
    }
    auto got = co_await as_result(over_.receive(call_tag(call_kind::answer, number_), true));
    answered_ = true;
    if (!got) {
        if (got.error() == errc::canceled) over_.tell_canceled(number_, false);
        throw lent_failure(method_, "its answer", got.error(), got.facts());
    }
    co_return *std::move(got);
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
        at->second->has_room(note.amount, note.method);
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
    make_handler([&] { return send_end(*this, *this, number, outcome); });
}

RDMACORO_COLD child calls_base::drop_answer(child_owner&, calls_base& self, std::uint64_t number) {
    const dropping counted(self);
    static_cast<void>(co_await as_result(self.receive(call_tag(call_kind::answer, number))));
}
RDMACORO_COLD void calls_base::drop_answer_of(std::uint64_t number) noexcept {
    make_handler([&] { return drop_answer(*this, *this, number); });
}
RDMACORO_COLD void calls_base::leave_written(std::uint64_t number) noexcept {
    tell_canceled(number, false);
    drop_answer_of(number);
}

RDMACORO_COLD child calls_base::drop_items(child_owner&, calls_base& self, std::uint64_t number, bool waits) {
    const note_head left{static_cast<std::uint32_t>(note_kind::left), 0, 0};
    if (waits) ++self.dropping_written_;  // before the note, which may wait for room while others begin
    co_await self.send(std::as_bytes(std::span(&left, 1)), call_tag(call_kind::note, number));
    const tag_type items = call_tag(call_kind::caller_item, number);
    if (!waits) {
        self.discard(items);
        co_return;
    }
    const dropping counted(self);
    static_cast<void>(co_await as_result(self.drop_until_end(items)));
    --self.dropping_written_;
}
RDMACORO_COLD void calls_base::drop_written(std::uint64_t number) noexcept {
    // Only a peer that does not end its streams has so many; what it still writes is its mailbox's part here, which is bounded.
    make_handler([&] { return drop_items(*this, *this, number, dropping_written_ < most_dropping); });
}

}  // namespace rdmacoro::detail
