// How items travel: each a message, as many under way as the reader has given credit for.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
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
      taken_(other.taken_),
      ended_(other.ended_) {}

RDMACORO_COLD stream_reader_base::~stream_reader_base() {
    if (over_ == nullptr) return;
    if (!ended_) over_->leave_stream(number_, false);
    over_->ended();
}

RDMACORO_DECL task<std::optional<message>> stream_reader_base::receive() {
    std::optional<message> item;
    if (ended_) co_return item;
    if (taken_ >= stream_window / 2) {
        const note_head credit{static_cast<std::uint32_t>(note_kind::credit),
                               static_cast<std::uint32_t>(taken_), 0};
        co_await over_->send(std::as_bytes(std::span(&credit, 1)), call_tag(call_kind::note, number_));
        taken_ = 0;
    }
    auto got = co_await as_result(over_->receive(call_tag(call_kind::item, number_)));
    if (!got) {
        ended_ = true;
        // A part of the item may be lost: what comes after it is not read.
        if (!calls_base::ends_link(got.error()) || got.error() == errc::canceled)
            over_->leave_stream(number_, false);
        throw_call_failure(*of_, got.error(), got.facts());
    }
    item = *std::move(got);
    answer_head head{};
    const auto bytes = item->bytes();
    if (bytes.size() < sizeof head) malformed("an item without a head");
    std::memcpy(&head, bytes.data(), sizeof head);
    switch (static_cast<outcome_kind>(head.outcome)) {
        case outcome_kind::value: ++taken_; break;
        case outcome_kind::end:
            ended_ = true;
            item.reset();
            break;
        default: ended_ = true; throw_answer(*of_, bytes);
    }
    co_return item;
}

RDMACORO_COLD void stream_reader_base::malformed(const char* why) {
    if (!std::exchange(ended_, true)) over_->leave_stream(number_, false);
    throw_malformed_answer(*of_, why);
}

}  // namespace rdmacoro::detail
