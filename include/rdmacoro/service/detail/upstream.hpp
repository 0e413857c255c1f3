// upstream: the stream that the caller of a method writes and its handler reads, at the caller.
#pragma once

#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/method.hpp>

#include <cstddef>
#include <cstdint>
#include <system_error>

namespace rdmacoro::detail {

class calls_base;

/// Items go as the handler's credit allows. Exactly one end is sent for each call that the peer hears of: by `end`, or when the caller
/// leaves, or when the handler has left; the peer drops the items until it comes. In one place from the call's beginning to its end.
class upstream {
public:
    /// Of a call with `number`. `items`: what the handler answers with is a stream, too.
    upstream(calls_base& over, const method_facts& of, std::uint64_t number, bool items);
    upstream(const upstream&) = delete;
    upstream& operator=(const upstream&) = delete;
    /// Leaves where nothing has ended the call.
    ~upstream();

    [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
    [[nodiscard]] calls_base& over() const noexcept { return over_; }
    [[nodiscard]] const method_facts& of() const noexcept { return of_; }

    /// The request could not be sent. `perhaps`: in part, and the peer answers in any case.
    void not_asked(bool perhaps) noexcept;
    /// Begins the next item, to be encoded into what it returns.
    [[nodiscard]] encoder& begin();
    /// Sends that item when the handler has room.
    [[nodiscard]] task<> send();
    /// No item comes after this.
    void end() noexcept { end_with(outcome_kind::end); }
    /// `end`, and the answer, without its head checked: not for answers that are streams.
    [[nodiscard]] task<message> finish();
    /// The caller reads and writes no more: ends without `end`. The call is to be canceled by what reads its answers.
    void abandon() noexcept;

    // What the peer says.
    void has_room(std::size_t items) noexcept;
    void was_left() noexcept;
    void lost(const std::error_code& why) noexcept;

private:
    void end_with(outcome_kind why) noexcept;
    void wake() noexcept;
    /// Throws where no item may be sent any more.
    void check() const;

    calls_base& over_;
    const method_facts& of_;
    std::uint64_t number_;
    std::size_t room_ = stream_window;
    encoder item_;
    event changed_;
    std::error_code lost_;
    bool items_;
    bool ended_ = false;     // its end was sent
    bool left_ = false;      // by the handler
    bool answered_ = false;  // or nothing waits for the answer any more
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/calls_base.hpp>
#endif
