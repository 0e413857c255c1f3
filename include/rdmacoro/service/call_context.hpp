// call_context: what a handler knows of the call that it serves.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace rdmacoro {

namespace detail {
class calls_base;
class call_failure;
class handler_writer;
class stream_reader_base;
struct method_facts;
}  // namespace detail

/// A call that a handler serves: first argument of every handler. Lives until the handler has ended, on its scheduler's thread.
class call_context : private detail::list_node<call_context> {
public:
    /// Made by the receiver of a request. `due`: when its time is over; the clock's zero: never.
    call_context(detail::calls_base& over, std::uint64_t number, std::size_t bytes, time_point due) noexcept
        : over_(over), number_(number), bytes_(bytes), due_(due) {}
    call_context(const call_context&) = delete;
    call_context& operator=(const call_context&) = delete;
    ~call_context() = default;

    /// The rest of the call's time, at least 0; nothing where the caller set no limit, or one of more than 71 minutes. For the handler's own calls:
    /// `timeout(next.call(m, x), *c.remaining())`.
    [[nodiscard]] std::optional<duration> remaining() const noexcept;
    /// Of the request, its arguments' encoding included.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// The caller's address or process, for texts.
    [[nodiscard]] std::string peer_name() const;
    /// Whether the caller has canceled it.
    [[nodiscard]] bool canceled() const noexcept { return canceled_; }

    /// Awaitable.
    /// Completes: when `into` holds the bytes at `there`, in the caller's memory: one-sided, over the connection that the call came by.
    /// Buffers: borrowed until then. `there.length` equals `into.size()`.
    /// Concurrency: any number at a time.
    /// Errors: as `endpoint::rdma_get`; `errc::unsupported` where the transport has no one-sided operations.
    /// Cancellation: as `endpoint::rdma_get`: not over verbs and libfabric.
    /// Example:
    ///     co_await c.get(from, room);
    [[nodiscard]] task<> get(const remote_region& there, std::span<std::byte> into);

    /// Awaitable.
    /// Completes: when the bytes are in the caller's memory.
    /// Buffers: borrowed until then. `there.length` equals `from.size()`.
    /// Concurrency: any number at a time.
    /// Errors: as `get`.
    /// Cancellation: as `get`; how much was written is then unknown.
    /// Example:
    ///     co_await c.put(found, into);
    [[nodiscard]] task<> put(std::span<const std::byte> from, const remote_region& there);

private:
    friend class detail::calls_base;
    friend class detail::call_failure;
    friend class detail::handler_writer;
    friend class detail::stream_reader_base;
    friend class detail::intrusive_list<call_context, call_context>;

    detail::calls_base& over_;
    std::uint64_t number_;
    std::size_t bytes_;
    time_point due_;
    const detail::method_facts* method_ = nullptr;  // once its handler was found
    local_stop_source stop_;                        // of all that the handler does
    detail::handler_writer* writer_ = nullptr;      // of the stream that it answers with
    bool canceled_ = false;
    bool written_over_ = false;  // the end of the stream that the caller writes was read
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/stream.hpp>
#endif
