// How items travel: each a message, as many under way as the reader has given credit for.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/handler.hpp>
#include <rdmacoro/service/detail/upstream.hpp>
#include <rdmacoro/service/stream.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL void stream_writer_base::begin() {
    item_.clear();
    item_.write(answer_head{static_cast<std::uint32_t>(outcome_kind::value), 0});
}

RDMACORO_DECL task<> stream_writer_base::send() {
    co_await of_.credits_.acquire();
    co_await of_.over_.send(const_buffers(item_.pieces()), call_tag(call_kind::item, of_.number_));
}

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
      taken_(other.taken_),
      ended_(other.ended_) {}

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

RDMACORO_DECL task<std::optional<message>> stream_reader_base::receive() {
    std::optional<message> item;
    if (ended_) co_return item;
    if (taken_ >= stream_window / 2) {
        const note_kind more = serving_ != nullptr ? note_kind::room : note_kind::credit;
        const note_head credit{static_cast<std::uint32_t>(more), static_cast<std::uint32_t>(taken_), 0};
        co_await over_->send(std::as_bytes(std::span(&credit, 1)), call_tag(call_kind::note, number_));
        taken_ = 0;
    }
    const call_kind wanted = serving_ != nullptr ? call_kind::caller_item : call_kind::item;
    auto got = co_await as_result(over_->receive(call_tag(wanted, number_)));
    if (!got) {
        ended_ = true;
        // A part of the item may be lost: what comes after it is not read.
        if (!calls_base::ends_link(got.error()) || got.error() == errc::canceled) leave();
        throw_call_failure(*of_, got.error(), got.facts());
    }
    item = *std::move(got);
    answer_head head{};
    const auto bytes = item->bytes();
    if (bytes.size() < sizeof head) malformed("an item without a head");
    std::memcpy(&head, bytes.data(), sizeof head);
    if (!is_value(head.outcome, bytes)) item.reset();
    co_return item;
}

RDMACORO_DECL bool stream_reader_base::is_value(std::uint32_t outcome, std::span<const std::byte> item) {
    if (outcome == static_cast<std::uint32_t>(outcome_kind::value)) {
        ++taken_;
        return true;
    }
    ended_ = true;
    if (serving_ != nullptr) serving_->written_over_ = true;
    if (outcome == static_cast<std::uint32_t>(outcome_kind::end)) return false;
    if (serving_ == nullptr) throw_answer(*of_, item);
    throw error(make_error_code(call_errc::stopped),
                "call of " + std::string(of_->name) + ": its caller has left before the end of its stream");
}

RDMACORO_COLD void stream_reader_base::malformed(const char* why) {
    if (!std::exchange(ended_, true)) leave();
    if (serving_ != nullptr) throw_malformed_request(why);
    throw_malformed_answer(*of_, why);
}

}  // namespace rdmacoro::detail
