// Streams of values: a handler writes them, its caller reads them as they come; or the other way.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/messaging/detail/any_operations.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/service/call_context.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/detail/item_sender.hpp>
#include <rdmacoro/service/method.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <utility>

namespace rdmacoro {

namespace detail {

class upstream;
class item_read_base;
template <class R, class Values, class Item>
class stream_handler_base;

/// The part of a reader that does not depend on its items' type.
class stream_reader_base {
public:
    stream_reader_base(const stream_reader_base&) = delete;
    stream_reader_base& operator=(const stream_reader_base&) = delete;

protected:
    /// `number`: of the call.
    stream_reader_base(calls_base& over, const method_facts& of, std::uint64_t number) noexcept;
    /// Of a call in which the caller writes, too: `written` lives as long.
    stream_reader_base(calls_base& over, const method_facts& of, upstream& written) noexcept;
    /// Of the handler that serves `of`.
    stream_reader_base(call_context& serving, const method_facts& of) noexcept;
    stream_reader_base(stream_reader_base&& other) noexcept;
    ~stream_reader_base();

    /// Of the message with the next item, of which there is one: what follows what was read.
    [[nodiscard]] decoder next_item() const noexcept;
    /// `from` has read the item, or not.
    void item_was_read(const decoder& from, bool whole);

private:
    friend class item_read_base;

    /// No item is read any more.
    void leave() noexcept;
    /// A message with items, or the end. Throws where the stream ended by an error.
    void received(result<message> got);
    /// The same without the message.
    void lost(const std::error_code& why, const error_facts& facts);
    /// The writer is to be told that it may write more.
    [[nodiscard]] bool owes_credit() const noexcept {
        return taken_ >= stream_window / 2 || taken_bytes_ >= stream_window_bytes / 2;
    }
    /// Gives credit, lets others have their turn, and receives where nothing is left.
    [[nodiscard]] task<> go_on();
    [[nodiscard]] tag_type tag() const noexcept {
        return call_tag(serving_ != nullptr ? call_kind::caller_item : call_kind::item, number_);
    }
    [[noreturn]] void malformed(const char* why);
    /// The stream has ended with an error of the handler's.
    [[noreturn]] void answered(std::span<const std::byte> with);

    calls_base* over_;
    const method_facts* of_;
    std::uint64_t number_;
    upstream* written_ = nullptr;
    call_context* serving_ = nullptr;
    message message_;
    std::size_t at_ = 0;                     // of its items, where the next one begins
    std::uint64_t items_ = 0;                // in it, not read yet
    std::uint64_t granted_ = stream_window;  // that the writer may send, beside those that have come
    std::uint64_t taken_ = 0;                // for which no credit was given yet
    std::uint64_t taken_bytes_ = 0;
    bool ended_ = false;
};

/// The part of a read that does not depend on the item's type.
class item_read_base {
public:
    void bind(const environment& env) noexcept { env_ = env; }
    bool await_ready();
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept;
    /// As that of operations.
    [[nodiscard]] bool ended_at_once() const noexcept {
        return receives_ ? receive_.ended_at_once() : of_->ended_;
    }

protected:
    explicit item_read_base(stream_reader_base& of) noexcept : of_(&of) {}
    item_read_base(item_read_base&& other) noexcept : of_(other.of_) {}  // only before it is awaited
    ~item_read_base();

    /// Whether there is an item to be decoded. Throws where the stream ended by an error.
    [[nodiscard]] bool has_item();

private:
    stream_reader_base* of_;
    environment env_{};
    bool receives_ = false;
    union {
        any_lent_receive receive_;
    };
    task<> further_;  // where there is more to do
};

}  // namespace detail

template <class T>
class item_read;

/// The writing end of a stream, of the handler that serves its call. Last argument of the handler; do not keep it.
template <class T>
class stream_writer {
public:
    /// Made for the handler.
    stream_writer(call_context& of, const detail::method_facts& method) noexcept : out_(of, method) {}

    /// Awaitable.
    /// Completes: when `item` was copied, to go out at once or, while an earlier one is under way, together with others. An item with a
    ///     row of 1 KiB or more: when it has been sent, from where it is. Waits while the reader has 128 items or 1 MiB before it that it has
    ///     not taken.
    /// Buffers: `item` is borrowed until then; a temporary is moved in.
    /// Concurrency: one at a time; `errc::invalid_argument` for the second.
    /// Errors: those of `endpoint::send`, also of earlier items; what the encoding of `item` throws.
    /// Cancellation: when the reader leaves, among other reasons: the handler ends then, too.
    /// Example:
    ///     for (const row& one : rows) co_await out.write(one);
    [[nodiscard]] item_write write(const T& item) noexcept {
        return item_write(out_, std::addressof(item),
                          [](encoder& to, const void* one) { to.write(*static_cast<const T*>(one)); });
    }
    /// The same of a temporary.
    [[nodiscard]] kept_item_write<T> write(T&& item) { return kept_item_write<T>(out_, std::move(item)); }
    /// The same for an item that is made of its parts: `co_await out.write(key, value)`. (g++ 12 destroys what
    /// `co_await out.write({key, value})` makes twice: write a variable, or its parts.)
    template <class... Parts>
        requires(sizeof...(Parts) > 1 && requires(Parts&&... parts) { T{static_cast<Parts&&>(parts)...}; })
    [[nodiscard]] kept_item_write<T> write(Parts&&... parts) {
        return kept_item_write<T>(out_, T{static_cast<Parts&&>(parts)...});
    }

private:
    template <class, class, class>
    friend class detail::stream_handler_base;

    [[nodiscard]] task<> finish(std::exception_ptr failure) { return out_.finish(std::move(failure)); }

    detail::handler_writer out_;
};

/// The reading end of a stream. Of the caller: destroying it before the end cancels the call; movable between two reads. Of the handler
/// of a method that takes a stream, behind the values: the handler may end before the stream does, and its caller's writes end then; do not
/// keep it.
template <class T>
class stream_reader : private detail::stream_reader_base {
    static_assert((detail::must_not_have_views<T>(), true));

public:
    /// Made by `calls::open`.
    stream_reader(detail::calls_base& over, const detail::method_facts& of, std::uint64_t number) noexcept
        : stream_reader_base(over, of, number) {}
    /// Made for a caller that writes, too.
    stream_reader(detail::calls_base& over, const detail::method_facts& of,
                  detail::upstream& written) noexcept
        : stream_reader_base(over, of, written) {}
    /// Made for a handler.
    stream_reader(call_context& serving, const detail::method_facts& of) noexcept
        : stream_reader_base(serving, of) {}
    stream_reader(stream_reader&&) noexcept = default;

    /// Awaitable.
    /// Ends with the next item, or with nothing at the end of the stream.
    /// Completes: when it is there.
    /// Buffers: none; views among the item's parts are not possible.
    /// Concurrency: one at a time.
    /// Errors: those of `endpoint::recv_lent`. Of the caller: what the handler threw; `call_errc::malformed_answer`. Of the handler:
    ///     `call_errc::stopped` when the caller has left before the end, `call_errc::malformed_request`. The stream has ended then.
    /// Cancellation: at any time; the stream has ended. The caller's cancels the call; the handler's is canceled when the caller leaves.
    /// Example:
    ///     while (auto row = co_await rows.next()) use(*row);
    [[nodiscard]] item_read<T> next() noexcept { return item_read<T>(*this); }

private:
    friend class item_read<T>;

    void read(T& item) {
        decoder from = this->next_item();
        const bool whole = from.read(item);
        this->item_was_read(from, whole);
    }
};

/// The operation of `stream_reader::next`. Described there.
template <class T>
class [[nodiscard]] item_read : public detail::item_read_base {
public:
    using value_type = std::optional<T>;

    /// Made by `stream_reader::next`.
    explicit item_read(stream_reader<T>& of) noexcept : item_read_base(of), of_(&of) {}
    item_read(item_read&&) noexcept = default;

    std::optional<T> await_resume() {
        std::optional<T> item;
        if (this->has_item()) of_->read(item.emplace());
        return item;
    }

private:
    stream_reader<T>* of_;
};

namespace detail {
template <class R>
struct writer_of_result {
    using type = int;  // none
};
template <class T>
struct writer_of_result<stream<T>> {
    using type = stream_writer<T>;
};
template <class R>
using writer_of = typename writer_of_result<R>::type;

/// The value of a call's answer.
template <class R>
struct answer_value {
    using type = R;
};
template <>
struct answer_value<one_way> {
    using type = void;
};
template <class R>
using answer_type = typename answer_value<R>::type;
}  // namespace detail

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/service.hpp>
#endif
