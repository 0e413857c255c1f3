// call_writer: what the caller of a method that takes a stream has: it writes the items, and gets the result.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/answer_value.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/upstream.hpp>
#include <rdmacoro/service/stream.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace rdmacoro {

namespace detail {

/// The writing of both kinds of `call_writer`.
template <class T>
class item_writer {
public:
    /// Awaitable.
    /// Completes: when `item` was copied, to go out at once or, while an earlier one is under way, together with others. An item with a
    ///     row of 1 KiB or more: when it has been sent, from where it is. Waits while the handler has 128 items or 1 MiB before it that it has
    ///     not taken.
    /// Buffers: `item` is borrowed until then; a temporary is moved in.
    /// Concurrency: one at a time; `errc::invalid_argument` for the second.
    /// Errors: `call_errc::reader_left` when the handler has ended, with a result or an error; those of `endpoint::send`, also of earlier
    ///     items; what the encoding of `item` throws; `errc::closed` after the end.
    /// Cancellation: at any time; it ends the stream, and the handler's reads with `call_errc::stopped`.
    /// Example:
    ///     for (const row& one : all) co_await rows.write(one);
    [[nodiscard]] item_write write(const T& item) noexcept {
        return item_write(items(), std::addressof(item),
                          [](encoder& to, const void* one) { to.write(*static_cast<const T*>(one)); });
    }
    /// The same of a temporary.
    [[nodiscard]] kept_item_write<T> write(T&& item) { return kept_item_write<T>(items(), std::move(item)); }
    /// The same for an item that is made of its parts: `co_await rows.write(key, value)`.
    template <class... Parts>
        requires(sizeof...(Parts) > 1 && requires(Parts&&... parts) { T{static_cast<Parts&&>(parts)...}; })
    [[nodiscard]] kept_item_write<T> write(Parts&&... parts) {
        return kept_item_write<T>(items(), T{static_cast<Parts&&>(parts)...});
    }

protected:
    explicit item_writer(std::unique_ptr<upstream> made) noexcept : upstream_(std::move(made)) {}
    item_writer(item_writer&&) noexcept = default;
    ~item_writer() = default;

    std::unique_ptr<upstream> upstream_;

private:
    /// nullptr: it was moved from.
    [[nodiscard]] item_sender* items() const noexcept {
        return upstream_ != nullptr ? &upstream_->items() : nullptr;
    }
};

}  // namespace detail

/// The caller's end of a method that takes a stream: writes its items, and gets the result `R`. Destroying it before `finish` cancels the
/// call: the handler is asked to stop, and its reads end. Movable between two operations.
template <class T, class R>
class call_writer : public detail::item_writer<T> {
    static_assert((detail::must_not_have_views<R>(), true));

public:
    /// Made by `calls::open`.
    explicit call_writer(std::unique_ptr<detail::upstream> made) noexcept
        : detail::item_writer<T>(std::move(made)) {}
    call_writer(call_writer&&) noexcept = default;

    /// Awaitable.
    /// Ends the stream, and with the method's result. Also after a write that failed, to hear why.
    /// Completes: when the handler has answered.
    /// Buffers: none.
    /// Concurrency: once, and after the last write.
    /// Errors: as `calls::call`; those of a stream to a node name it, as those of `node_calls::call`.
    /// Cancellation: as `calls::call`.
    /// Example:
    ///     std::uint64_t stored = co_await rows.finish();
    [[nodiscard]] task<R> finish() {
        if (this->upstream_ == nullptr)
            detail::throw_error(errc::invalid_argument, "a call_writer that was moved from");
        try {
            const message got = co_await this->upstream_->finish();
            const auto value = detail::value_of_answer(this->upstream_->of(), got.bytes());
            if constexpr (std::is_void_v<R>) {
                detail::read_answer<void>(this->upstream_->of(), value);
            } else {
                co_return detail::read_answer<R>(this->upstream_->of(), value);
            }
        } catch (const error& failed) {
            this->upstream_->over().throw_of_stream(failed);
        }
    }
};

/// The same where the result is a stream as well: one coroutine may write while another reads.
template <class T, class R>
class call_writer<T, stream<R>> : public detail::item_writer<T> {
public:
    /// Made by `calls::open`.
    explicit call_writer(std::unique_ptr<detail::upstream> made) noexcept
        : detail::item_writer<T>(std::move(made)),
          answers_(this->upstream_->over(), this->upstream_->of(), *this->upstream_) {}
    call_writer(call_writer&&) noexcept = default;

    /// No item comes after this: the handler reads the end. Never waits.
    void end() noexcept {
        if (this->upstream_ != nullptr) this->upstream_->end();
    }

    /// Awaitable.
    /// Ends with the next item of the handler's, or with nothing at the end of its stream.
    /// Completes: when it is there.
    /// Buffers: none; views among the item's parts are not possible.
    /// Concurrency: one at a time, beside a write.
    /// Errors: as `stream_reader::next`.
    /// Cancellation: at any time; it cancels the call, and both streams have ended.
    /// Example:
    ///     while (auto found = co_await both.next()) use(*found);
    [[nodiscard]] item_read<R> next() noexcept { return answers_.next(); }

private:
    stream_reader<R> answers_;
};

}  // namespace rdmacoro
