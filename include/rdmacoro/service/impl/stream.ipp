// How items are read: several come in one message, as many under way as the reader has given credit for.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/handler.hpp>
#include <rdmacoro/service/detail/upstream.hpp>
#include <rdmacoro/service/stream.hpp>

#include <cstring>
#include <limits>
#include <new>
#include <string>

namespace rdmacoro::detail {

RDMACORO_COLD stream_reader_base::stream_reader_base(calls_base& over, const method_facts& of,
                                                     std::uint64_t number) noexcept
    : over_(&over), of_(&of), number_(number) {
    over.began();
}

RDMACORO_COLD stream_reader_base::stream_reader_base(stream_reader_base&& other) noexcept
    : over_(std::exchange(other.over_, nullptr)),
      of_(other.of_),
      number_(other.number_),
      written_(other.written_),
      serving_(other.serving_),
      message_(std::move(other.message_)),
      at_(other.at_),
      items_(std::exchange(other.items_, 0)),
      granted_(other.granted_),
      taken_(other.taken_),
      taken_bytes_(other.taken_bytes_),
      ended_(std::exchange(other.ended_, true)) {}

RDMACORO_COLD stream_reader_base::stream_reader_base(calls_base& over, const method_facts& of,
                                                     upstream& written) noexcept
    : stream_reader_base(over, of, written.number()) {
    written_ = &written;
}

RDMACORO_COLD stream_reader_base::stream_reader_base(call_context& serving, const method_facts& of) noexcept
    : over_(&serving.over_), of_(&of), number_(serving.number_), serving_(&serving) {}

RDMACORO_COLD stream_reader_base::~stream_reader_base() {
    if (over_ == nullptr || serving_ != nullptr)
        return;  // what the handler has not read is dropped at its end
    if (!ended_) leave();
    over_->ended();
}

RDMACORO_COLD void stream_reader_base::leave() noexcept {
    if (serving_ != nullptr) return;
    if (written_ != nullptr) written_->abandon();
    over_->leave_stream(number_, false);
}

RDMACORO_COLD void stream_reader_base::malformed(const char* why) {
    items_ = 0;
    if (!std::exchange(ended_, true)) leave();
    if (serving_ != nullptr) throw_malformed_request(why);
    try {
        throw_malformed_answer(*of_, why);
    } catch (const error& failed) {
        over_->throw_of_stream(failed);
    }
}

RDMACORO_COLD void stream_reader_base::answered(std::span<const std::byte> with) {
    try {
        throw_answer(*of_, with);
    } catch (const error& failed) {
        over_->throw_of_stream(failed);
    }
}

RDMACORO_COLD void stream_reader_base::lost(const std::error_code& why, const error_facts& facts) {
    items_ = 0;
    ended_ = true;
    // A part of the item may be lost: what comes after it is not read.
    if (!calls_base::ends_link(why) || why == errc::canceled) leave();
    over_->throw_of_stream(lent_failure(*of_, "an item", why, facts));
}

RDMACORO_DECL void stream_reader_base::received(result<message> got) {
    if (!got) [[unlikely]]
        lost(got.error(), got.facts());
    message_ = *std::move(got);
    answer_head head;
    const auto bytes = message_.bytes();
    if (bytes.size() < sizeof head) malformed("an item without a head");
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.outcome == static_cast<std::uint32_t>(outcome_kind::value)) [[likely]] {
        const auto count = static_cast<std::uint64_t>(head.code);  // of a negative one: too many
        if (count == 0 || count > granted_) malformed("another number of items than its reader has room for");
        granted_ -= count;
        items_ = count;
        at_ = 0;
        return;
    }
    ended_ = true;
    if (serving_ != nullptr) serving_->written_over_ = true;
    if (head.outcome == static_cast<std::uint32_t>(outcome_kind::end)) return;
    if (serving_ == nullptr) answered(bytes);
    throw error(make_error_code(call_errc::stopped),
                "call of " + std::string(of_->name) + ": its caller has left before the end of its stream");
}

RDMACORO_DECL decoder stream_reader_base::next_item() const noexcept {
    decoder from(message_.bytes().subspan(sizeof(answer_head)));
    from.skip_to(at_);
    return from;
}
RDMACORO_DECL void stream_reader_base::item_was_read(const decoder& from, bool whole) {
    if (!whole) [[unlikely]]
        malformed(from.why());
    taken_bytes_ += from.at() - at_;
    ++taken_;
    at_ = from.at();
    over_->count_copied(from.copied());
    if (--items_ != 0) return;
    if (from.left() != 0) [[unlikely]]
        malformed("more bytes than its items have");
    message_.release();
}

RDMACORO_DECL task<> stream_reader_base::go_on() {
    if (owes_credit()) {
        const note_kind more = serving_ != nullptr ? note_kind::room : note_kind::credit;
        const note_head credit{static_cast<std::uint32_t>(more), static_cast<std::uint32_t>(taken_),
                               taken_bytes_};
        const auto sent = co_await as_result(
            over_->send(std::as_bytes(std::span(&credit, 1)), call_tag(call_kind::note, number_)));
        if (!sent) lost(sent.error(), sent.facts());
        granted_ += taken_;
        taken_ = 0;
        taken_bytes_ = 0;
    }
    if (items_ != 0) {
        const auto others = co_await as_result(yield());
        if (!others) lost(others.error(), others.facts());
    } else {
        received(co_await as_result(over_->receive(tag())));
    }
}

// ---- a read

RDMACORO_COLD task<> others_first() { co_await turn_for_others(); }

RDMACORO_DECL item_read_base::~item_read_base() {
    if (receives_) std::destroy_at(&receive_);
}

RDMACORO_DECL bool item_read_base::await_ready() {
    stream_reader_base& of = *of_;
    if (of.ended_) [[unlikely]] {
        if (env_.owner == nullptr || env_.owner->may_go_on()) return true;
        further_ = others_first();
        further_.bind(env_);
        return false;
    }
    if (!of.owes_credit()) [[likely]] {
        if (of.items_ == 0 || env_.stop.stop_requested()) {
            ::new (static_cast<void*>(&receive_)) any_lent_receive(of.over_->link(), of.tag());
            receives_ = true;
            receive_.bind(env_);
            return receive_.await_ready();
        }
        if (env_.owner == nullptr || env_.owner->may_go_on()) return true;
    }
    further_ = of.go_on();
    further_.bind(env_);
    return false;
}
RDMACORO_DECL std::coroutine_handle<>
item_read_base::await_suspend(std::coroutine_handle<> awaiting) noexcept {
    if (receives_) [[likely]] {
        receive_.await_suspend(awaiting);
        return std::noop_coroutine();
    }
    return task<>::awaiter(further_.handle()).await_suspend(awaiting);
}
RDMACORO_DECL bool item_read_base::has_item() {
    if (receives_) {
        of_->received(receive_.take_result());
    } else if (further_.handle()) [[unlikely]] {
        task<>::awaiter(further_.handle()).await_resume();
    }
    if (of_->over_ == nullptr) [[unlikely]]
        throw error(errc::invalid_argument, "a stream_reader that was moved from");
    return of_->items_ != 0;
}

}  // namespace rdmacoro::detail
