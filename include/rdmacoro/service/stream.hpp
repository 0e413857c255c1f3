// Streams of values: a handler writes them, its caller reads them as they come.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/service/call_context.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/method.hpp>

#include <optional>
#include <utility>

namespace rdmacoro {

namespace detail {

/// The part of a writer that does not depend on its items' type.
class stream_writer_base {
public:
    stream_writer_base(const stream_writer_base&) = delete;
    stream_writer_base& operator=(const stream_writer_base&) = delete;

protected:
    explicit stream_writer_base(call_context& of) noexcept : of_(of) {}
    ~stream_writer_base() = default;

    /// Begins the next item.
    void begin();
    /// Sends what was encoded, when the reader has room.
    [[nodiscard]] task<> send();

    encoder item_;

private:
    call_context& of_;
};

class upstream;

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

    /// The next item, without its head; nothing at the end.
    [[nodiscard]] task<std::optional<message>> receive();
    [[noreturn]] void malformed(const char* why);

private:
    /// No item is read any more.
    void leave() noexcept;
    /// Of an item with this head: whether it has a value. Throws where the stream ended by an error.
    bool is_value(std::uint32_t outcome, std::span<const std::byte> item);

    calls_base* over_;
    const method_facts* of_;
    std::uint64_t number_;
    upstream* written_ = nullptr;
    call_context* serving_ = nullptr;
    std::size_t taken_ = 0;  // items for which no credit was given yet
    bool ended_ = false;
};

}  // namespace detail

/// The writing end of a stream, of the handler that serves its call. Last argument of the handler; do not keep it.
template <class T>
class stream_writer : private detail::stream_writer_base {
public:
    /// Made for the handler.
    explicit stream_writer(call_context& of) noexcept : stream_writer_base(of) {}

    /// Awaitable.
    /// Completes: when `item` has been sent. Waits while the reader has so many items before it that it has not taken.
    /// Buffers: `item` is borrowed until then.
    /// Concurrency: one at a time.
    /// Errors: those of `endpoint::send`.
    /// Cancellation: when the reader leaves, among other reasons: the handler ends then, too.
    /// Example:
    ///     for (const row& one : rows) co_await out.write(one);
    [[nodiscard]] task<> write(const T& item) {
        begin();
        item_.write(item);
        return send();
    }
    /// The same for an item that is made of its parts: `co_await out.write(key, value)`. All of it is copied. (g++ 12 destroys what
    /// `co_await out.write({key, value})` makes twice: write a variable, or its parts.)
    template <class... Parts>
        requires(sizeof...(Parts) > 1 && requires(Parts&&... parts) { T{static_cast<Parts&&>(parts)...}; })
    [[nodiscard]] task<> write(Parts&&... parts) {
        begin();
        item_.write(T{static_cast<Parts&&>(parts)...});
        return send();
    }
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
    [[nodiscard]] task<std::optional<T>> next() {
        std::optional<T> item;
        std::optional<message> got = co_await receive();
        if (got) {
            decoder from(got->bytes().subspan(sizeof(detail::answer_head)));
            if (!from.read(item.emplace()) || from.left() != 0)
                malformed(from.why() != nullptr ? from.why() : "more bytes than the item has");
        }
        co_return item;
    }
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

/// Whether all answers of a method with result `R` have one length, that of `answer_bytes` behind their heads.
template <class R>
constexpr bool fixed_answer() noexcept {
    if constexpr (std::is_void_v<R>) {
        return true;
    } else {
        return bytes_are_value<R>();
    }
}
template <class R>
constexpr std::size_t answer_bytes() noexcept {
    if constexpr (std::is_void_v<R>) {
        return 0;
    } else {
        return sizeof(R);
    }
}
}  // namespace detail

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/service.hpp>
#endif
