// item_sender: the writing end of a stream of values, whichever side writes it.
#pragma once

#include <rdmacoro/coro/detail/child.hpp>
#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/messaging/detail/any_operations.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/method.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

namespace rdmacoro {

class call_context;

namespace detail {
class calls_base;
class item_sender;
}  // namespace detail

/// The operation of `write` of both writers of streams. Described at `stream_writer::write`.
class [[nodiscard]] item_write final : public basic_operation<item_write, void>, private detail::parked_wait {
    using base = basic_operation<item_write, void>;

public:
    /// Appends the item's encoding.
    using encode_function = void (*)(encoder& to, const void* item);

    item_write(detail::item_sender& to, const void* item, encode_function encode) noexcept
        : item_write(&to, item, encode) {}
    /// `to`: nullptr where the writer was moved from.
    item_write(detail::item_sender* to, const void* item, encode_function encode) noexcept
        : base(to != nullptr ? nullptr : detail::no_scheduler()), to_(to), item_(item), encode_(encode) {}
    item_write(item_write&& other) noexcept
        : base(std::move(other)), parked_wait(), to_(other.to_), item_(other.item_), encode_(other.encode_) {}

    /// For an item that has moved with its operation.
    void refer_to(const void* item) noexcept { item_ = item; }

    [[nodiscard]] error_facts facts() const noexcept { return facts_; }
    [[noreturn]] RDMACORO_DECL void throw_failure() const;

private:
    friend base;
    friend class detail::item_sender;

    RDMACORO_DECL void start() noexcept;
    RDMACORO_DECL void cancel() noexcept;
    RDMACORO_DECL void finish_canceled() noexcept;
    void finish_of_nothing() noexcept { code_ = errc::invalid_argument; }
    [[nodiscard]] result<void> outcome() noexcept { return code_; }
    void fail(const std::error_code& code, const error_facts& facts) noexcept {
        code_ = code;
        facts_ = facts;
        complete();
    }

    detail::item_sender* to_;
    const void* item_;
    encode_function encode_;
    std::uint64_t message_ = 0;  // with which the item goes; 0: it is not written yet
    bool until_sent_ = false;    // a part of it is borrowed
    detail::status code_{};
    error_facts facts_{};
    std::exception_ptr thrown_;  // by the encoding
};

/// The same with an item of its own. Described at `stream_writer::write`.
template <class T>
class [[nodiscard]] kept_item_write {
public:
    using value_type = void;

    kept_item_write(detail::item_sender& to, T&& item) : kept_item_write(&to, std::move(item)) {}
    /// `to`: nullptr where the writer was moved from.
    kept_item_write(detail::item_sender* to, T&& item)
        : item_(std::move(item)), write_(to, nullptr, [](encoder& into, const void* one) {
              into.write(*static_cast<const T*>(one));
          }) {}

    void bind(const environment& env) noexcept { write_.bind(env); }
    bool await_ready() noexcept {
        write_.refer_to(std::addressof(item_));
        return write_.await_ready();
    }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { write_.await_suspend(awaiting); }
    [[nodiscard]] bool ended_at_once() const noexcept { return write_.ended_at_once(); }
    void await_resume() { write_.await_resume(); }
    [[nodiscard]] result<> take_result() noexcept { return write_.take_result(); }

private:
    T item_;
    item_write write_;
};

namespace detail {

/// Items go out at once while the network takes them. Those that are written while a message is under way go together with the next one, up
/// to `most_gathered` bytes; an item with a row that is borrowed waits until it is sent. The reader gives credit, in items and in bytes.
class item_sender {
public:
    /// Of messages with `tag`, of a call of `of`.
    item_sender(calls_base& over, const method_facts& of, tag_type tag) noexcept;
    item_sender(const item_sender&) = delete;
    item_sender& operator=(const item_sender&) = delete;

    /// The reader has room for so many more.
    void has_room(std::uint64_t items, std::uint64_t bytes) noexcept;
    /// Nothing more is written: writes end with `why`, the one that waits included. What is gathered is sent all the same.
    void refuse(const std::error_code& why) noexcept;
    /// The same; what is gathered is dropped, and what is under way is taken back where that is possible.
    void stop(const std::error_code& why) noexcept;
    /// Why writes are refused; an empty code while they are not.
    [[nodiscard]] std::error_code refusal() const noexcept { return refused_; }
    /// Whether all that was written is with the network, or lost.
    [[nodiscard]] bool idle() const noexcept { return !under_way_ && items_ == 0; }
    /// Why something that was written is lost; an empty code: nothing is.
    [[nodiscard]] std::error_code failure() const noexcept { return failed_; }
    [[nodiscard]] const error_facts& facts() const noexcept { return facts_; }
    /// Ends when it is idle.
    [[nodiscard]] task<> wait_until_idle();

    [[nodiscard]] calls_base& over() const noexcept { return over_; }
    [[nodiscard]] const method_facts& of() const noexcept { return of_; }
    [[nodiscard]] local_stop_source& stopping() noexcept { return stopping_; }

protected:
    /// Precondition: it is idle.
    RDMACORO_DECL virtual ~item_sender();

    /// A send has failed, or a write was canceled before its item was sent: `why`.
    virtual void broken(const std::error_code& why) noexcept = 0;
    /// It has become idle.
    virtual void became_idle() noexcept {}

    /// Deletes it when it is idle. Nothing is written any more.
    void delete_later() noexcept;
    /// Runs the scheduler until it is idle.
    void run_until_idle() noexcept;

private:
    friend class rdmacoro::item_write;

    static constexpr std::size_t most_gathered = 16u << 10;

    void write(item_write& one) noexcept;
    void cancel(item_write& one) noexcept;
    void advance() noexcept;
    void take(item_write& one) noexcept;
    [[nodiscard]] bool has_place() const noexcept;
    void send_gathered() noexcept;
    void settle(const result<>& sent) noexcept;
    void lose(const std::error_code& why, const error_facts& facts) noexcept;
    static child pump(child_owner&, item_sender& self);

    calls_base& over_;
    const method_facts& of_;
    tag_type tag_;
    encoder buffers_[2];
    unsigned filling_ = 0;                // the other one is under way
    std::uint32_t items_ = 0;             // in the one that is filled
    std::uint64_t room_ = stream_window;  // items that the reader has room for, those in the buffer included
    std::int64_t room_bytes_ = stream_window_bytes;  // below 0 by a part of an item
    std::uint64_t begun_ = 0;                        // messages
    std::uint64_t ended_ = 0;
    item_write* waiting_ = nullptr;
    std::error_code refused_;
    std::error_code failed_;
    error_facts facts_{};
    local_stop_source stopping_;  // of the messages
    // Of the one that is under way; anew where it was sent all the same.
    std::optional<local_stop_source> taking_back_{std::in_place, stopping_.get_token()};
    event settled_;
    bool under_way_ = false;
    bool taken_back_ = false;  // by the cancellation of a write that waits for it
    bool pumped_ = false;      // a coroutine waits for what is under way
    std::coroutine_handle<child::promise_type>
        pump_;              // the next such coroutine: made before a message that may need it
    bool deleted_ = false;  // when it is idle
    union {
        any_send sending_;  // while it is under way
    };
};

/// The writer of a handler. Lives in the handler's frame.
class handler_writer final : public item_sender {
public:
    /// Of the call that `of` is the context of.
    handler_writer(call_context& of, const method_facts& method) noexcept;
    RDMACORO_DECL ~handler_writer() override;

    /// The handler has ended, by `failure` or well: what it has written goes to the reader first. Throws `failure`, and otherwise what
    /// has happened to that.
    [[nodiscard]] task<> finish(std::exception_ptr failure);

private:
    void broken(const std::error_code&) noexcept override {}

    call_context& context_;
};

}  // namespace detail
}  // namespace rdmacoro
