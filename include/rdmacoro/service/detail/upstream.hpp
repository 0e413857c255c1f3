// upstream: the stream that the caller of a method writes and its handler reads, at the caller.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/detail/item_sender.hpp>
#include <rdmacoro/service/method.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <system_error>

namespace rdmacoro::detail {

class calls_base;
class upstream;

/// Its items. Lives until they are sent or lost, also where the caller has left.
class caller_writer final : public item_sender {
public:
    caller_writer(upstream& of, std::uint64_t number);

    /// The end of the stream goes behind its items, which are lost where it has left.
    void end(outcome_kind outcome) noexcept;
    /// Items that are not sent yet are dropped, and writes end with `why`: an end that waits for them says that not all came.
    void drop(const std::error_code& why) noexcept;
    /// The caller has left.
    void leave() noexcept;

private:
    RDMACORO_DECL ~caller_writer() override;
    RDMACORO_DECL void broken(const std::error_code&) noexcept override;
    RDMACORO_DECL void became_idle() noexcept override;

    upstream* of_;  // nullptr: it has left
    std::uint64_t number_;
    std::optional<outcome_kind> end_;  // to be sent when it is idle
};

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
    [[nodiscard]] const method_facts& of() const noexcept { return method_; }
    /// To which items are written.
    [[nodiscard]] item_sender& items() const noexcept { return *writer_; }

    /// The request could not be sent. `perhaps`: in part, and the peer answers in any case.
    void not_asked(bool perhaps) noexcept;
    /// No item comes after this.
    void end() noexcept;
    /// `end`, and the answer, without its head checked: not for answers that are streams.
    [[nodiscard]] task<message> finish();
    /// The caller reads and writes no more: ends without `end`. The call is to be canceled by what reads its answers.
    void abandon() noexcept;

    // The peer's notes.
    void has_room(std::uint64_t items, std::uint64_t bytes) noexcept { writer_->has_room(items, bytes); }
    void was_left() noexcept;
    void lost(const std::error_code& why) noexcept { writer_->refuse(why); }

private:
    /// The answer is not waited for.
    void leave_answer() noexcept;

    calls_base& over_;
    const method_facts& method_;
    std::uint64_t number_;
    caller_writer* writer_;
    bool answers_with_items_;
    bool ended_ = false;     // its end was sent, or will be
    bool left_ = false;      // by the handler
    bool answered_ = false;  // or nothing waits for the answer any more
};

}  // namespace rdmacoro::detail
