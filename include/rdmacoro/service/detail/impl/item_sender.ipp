// How items are gathered and sent.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/item_sender.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>

namespace rdmacoro {

RDMACORO_DECL void item_write::start() noexcept { to_->write(*this); }
RDMACORO_COLD void item_write::cancel() noexcept { to_->cancel(*this); }
RDMACORO_COLD void item_write::finish_canceled() noexcept {
    code_ = errc::canceled;
    to_->broken(make_error_code(errc::canceled));
}

RDMACORO_COLD void item_write::throw_failure() const {
    if (thrown_) std::rethrow_exception(thrown_);
    if (to_ == nullptr) throw error(errc::invalid_argument, "a call_writer that was moved from");
    const std::error_code code = code_;
    const detail::method_facts& of = to_->of();
    if (code == call_errc::reader_left) {
        to_->over().throw_of_stream(
            error(code, "call of " + std::string(of.name) +
                            ": its handler has ended before the stream was; its result says why"));
    }
    if (code == errc::closed && to_->failure() != errc::closed)
        to_->over().throw_of_stream(
            error(code, "call of " + std::string(of.name) + ": its stream has ended"));
    to_->over().throw_of_stream(error(code, "call of " + std::string(of.name), facts_));
}

namespace detail {

RDMACORO_DECL item_sender::item_sender(calls_base& over, const method_facts& of, tag_type tag) noexcept
    : over_(over), of_(of), tag_(tag) {}
RDMACORO_DECL item_sender::~item_sender() {
    if (under_way_ || waiting_ != nullptr) fatal("a stream was destroyed while a write to it was under way");
    if (pump_) pump_.destroy();
}

// ---- writing

RDMACORO_DECL void item_sender::write(item_write& one) noexcept {
    static constexpr wait_facts facts{"stream write", "the reader has not taken enough items",
                                      next_actor::peer_receive,
                                      [](const parked_wait& of, pending_operation& into) {
                                          // The send of that message is described, too.
                                          if (static_cast<const item_write&>(of).message_ == 0) return;
                                          into.stage = "its item is not sent";
                                          into.next = next_actor::peer_poll;
                                      }};
    if (waiting_ != nullptr) [[unlikely]]
        return one.fail(make_error_code(errc::invalid_argument), {});
    waiting_ = &one;
    advance();
    if (waiting_ == &one) one.park(one, facts);
}

RDMACORO_COLD void item_sender::cancel(item_write& one) noexcept {
    if (one.message_ > begun_) {  // in the buffer, behind all others
        --items_;
        buffers_[filling_].take_back();
    } else if (one.message_ != 0) {  // its memory is with the network
        // Ends in `pump`, which is no part of what awaits the write: a destructor that waits for that has to let it go on.
        if (!std::exchange(taken_back_, true)) over_.owner_.unstopped_wait_began();
        taking_back_->request_stop();
        return;
    }
    waiting_ = nullptr;
    one.fail(make_error_code(errc::canceled), {});
    broken(make_error_code(errc::canceled));
}

RDMACORO_DECL bool item_sender::has_place() const noexcept {
    const encoder& to = buffers_[filling_];
    const std::size_t gathered = items_ == 0 ? 0 : to.size();
    return items_ < room_ && room_bytes_ > static_cast<std::int64_t>(gathered) && gathered < most_gathered;
}

RDMACORO_DECL void item_sender::take(item_write& one) noexcept {
    encoder& to = buffers_[filling_];
    std::size_t borrowed = 0;
    try {
        if (!pump_ && !pumped_) pump_ = pump(over_, *this).frame;
        if (items_ == 0) {
            to.clear();
            to.write(answer_head{static_cast<std::uint32_t>(outcome_kind::value), 0});
        }
        to.remember();
        borrowed = to.size() - to.copied();
        one.encode_(to, one.item_);
    } catch (...) {
        if (items_ != 0) to.take_back();
        waiting_ = nullptr;
        one.thrown_ = std::current_exception();
        one.fail(make_error_code(errc::invalid_argument), {});
        return;
    }
    ++items_;
    one.message_ = begun_ + 1;
    one.until_sent_ = to.size() - to.copied() != borrowed;
}

RDMACORO_DECL void item_sender::advance() noexcept {
    for (;;) {
        if (waiting_ != nullptr && waiting_->message_ == 0) {
            if (refused_) [[unlikely]] {
                std::exchange(waiting_, nullptr)->fail(refused_, facts_);
            } else if (has_place()) {
                take(*waiting_);
            }
        }
        if (items_ == 0 || under_way_) break;
        send_gathered();
        // Where that was sent at once, there is a place now for the item that found none: nothing else would look at it again.
        if (under_way_ || waiting_ == nullptr || waiting_->message_ != 0) break;
    }
    if (waiting_ != nullptr && waiting_->message_ != 0 &&
        (!waiting_->until_sent_ || waiting_->message_ <= ended_))
        std::exchange(waiting_, nullptr)->complete();
}

// ---- sending

RDMACORO_DECL void item_sender::send_gathered() noexcept {
    encoder& out = buffers_[filling_];
    std::span<const std::span<const std::byte>> pieces;
    try {
        pieces = out.pieces();
    } catch (const std::bad_alloc&) {
        return lose(make_error_code(errc::no_resources), {});
    }
    const answer_head head{static_cast<std::uint32_t>(outcome_kind::value),
                           static_cast<std::int32_t>(items_)};
    out.overwrite_front(std::as_bytes(std::span(&head, 1)));
    room_ -= items_;
    room_bytes_ -= static_cast<std::int64_t>(out.size() - sizeof head);
    items_ = 0;
    filling_ ^= 1;
    ++begun_;
    ::new (static_cast<void*>(&sending_)) any_send(over_.link(), const_buffers(pieces), tag_);
    sending_.bind({&over_.owner_, taking_back_->get_token()});
    sending_.begin();
    under_way_ = true;
    if (sending_.done()) [[likely]] {
        settle(sending_.take_result());
    } else if (!pumped_) {
        pumped_ = true;
        over_.begin_handler(child{std::exchange(pump_, {})});
    }
}

RDMACORO_DECL void item_sender::settle(const result<>& sent) noexcept {
    std::destroy_at(&sending_);
    under_way_ = false;
    if (std::exchange(taken_back_, false)) [[unlikely]] {
        over_.owner_.unstopped_wait_ended();
        taking_back_.emplace(
            stopping_.get_token());  // later messages go: this one may have been too late to be taken back
    }
    ended_ = begun_;
    over_.count_copied(buffers_[filling_ ^ 1].copied());
    if (!sent) [[unlikely]]
        lose(sent.error(), sent.facts());
}

RDMACORO_COLD child item_sender::pump(child_owner&, item_sender& self) {
    while (self.under_way_) {
        const result<> sent = co_await as_result(with_stop(self.sending_, self.taking_back_->get_token()));
        self.settle(sent);
        self.advance();
        self.settled_.set();
        self.settled_.reset();
    }
    self.pumped_ = false;
    if (self.deleted_) {
        delete &self;
    } else if (self.idle()) {
        self.became_idle();
    }
}

RDMACORO_COLD void item_sender::lose(const std::error_code& why, const error_facts& facts) noexcept {
    failed_ = why;
    facts_ = facts;
    items_ = 0;
    if (!refused_) refused_ = why;
    if (waiting_ != nullptr) std::exchange(waiting_, nullptr)->fail(refused_, facts);
    broken(why);
}

RDMACORO_DECL void item_sender::has_room(std::uint64_t items, std::uint64_t bytes) noexcept {
    room_ += std::min(items, stream_window - std::min(room_, stream_window));
    const auto most = static_cast<std::int64_t>(stream_window_bytes);
    const std::int64_t missing = most - std::min(room_bytes_, most);
    room_bytes_ += bytes < static_cast<std::uint64_t>(missing) ? static_cast<std::int64_t>(bytes) : missing;
    advance();
}

RDMACORO_COLD void item_sender::refuse(const std::error_code& why) noexcept {
    if (!refused_) refused_ = why;
    advance();
}
RDMACORO_COLD void item_sender::stop(const std::error_code& why) noexcept {
    if (!refused_) refused_ = why;
    items_ = 0;
    if (waiting_ != nullptr && (waiting_->message_ == 0 || waiting_->message_ > begun_))
        std::exchange(waiting_, nullptr)->fail(refused_, facts_);
    if (under_way_) stopping_.request_stop();
}
RDMACORO_COLD void item_sender::delete_later() noexcept {
    stop(make_error_code(errc::closed));
    if (pumped_) {
        deleted_ = true;
    } else {
        delete this;
    }
}

RDMACORO_COLD task<> item_sender::wait_until_idle() {
    while (!idle()) co_await settled_.wait();
}

RDMACORO_COLD void item_sender::run_until_idle() noexcept {
    over_.owner_.run_until([this] { return idle() && !pumped_; }, over_.stop_);
}

// ---- of handlers

RDMACORO_COLD handler_writer::handler_writer(call_context& of, const method_facts& method) noexcept
    : item_sender(of.over_, method, call_tag(call_kind::item, of.number_)), context_(of) {
    stopping().follow(of.stop_.get_token());
    of.writer_ = this;
}
RDMACORO_COLD handler_writer::~handler_writer() {
    if (!idle()) {  // there was no memory to await that
        stop(make_error_code(errc::canceled));
        run_until_idle();
    }
    context_.writer_ = nullptr;
}

RDMACORO_COLD task<> handler_writer::finish(std::exception_ptr failure) {
    if (!idle()) co_await without_stop(wait_until_idle());
    if (failure) std::rethrow_exception(failure);
    if (this->failure()) throw_call_failure(of(), this->failure(), facts());
}

}  // namespace detail
}  // namespace rdmacoro
