// plain_stream: bytes over TCP to and from a peer without this toolkit. Needs no network library.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/bytes.hpp>
#include <rdmacoro/memory/detail/owning_temporary.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace rdmacoro {

namespace detail {
struct plain_socket;
/// Ends the socket.
struct plain_socket_deleter {
    void operator()(plain_socket* of) const noexcept;
};
using plain_socket_owner = std::unique_ptr<plain_socket, plain_socket_deleter>;
}  // namespace detail

/// A TCP connection without messages or a handshake: the raw mode of `byte_stream`, with its operations. Each write and each read is a
/// system call, and nothing is gathered. Movable; operations refer to its state. For one scheduler's thread.
class plain_stream {
public:
    plain_stream() noexcept = default;
    /// Made by `connect_plain` and `plain_listener::accept`.
    explicit plain_stream(detail::plain_socket_owner made) noexcept : state_(std::move(made)) {}

    /// Awaitable.
    /// Completes: when the system has all of the elements.
    /// Buffers: borrowed until then; a temporary that owns its elements is refused.
    /// Concurrency: one `write`, `shutdown` or `close` at a time; `errc::invalid_argument` for the second.
    /// Errors: `errc::peer_lost`; `errc::closed` after `shutdown`; `errc::no_resources` without a descriptor or memory to wait with.
    ///     `info()` is how many bytes the system had before.
    /// Cancellation: at any time; `info()` of the error is how many bytes were written, exactly.
    /// Example:
    ///     co_await stream.write(std::string_view("GET / HTTP/1.0\r\n\r\n"));
    template <class Range>
        requires(detail::plain_range<Range> && !detail::owning_temporary<Range>)
    [[nodiscard]] task<> write(Range&& elements) {
        return write_bytes(state_.get(), detail::range_bytes(elements));
    }

    /// Awaitable.
    /// Ends with how many bytes were read: at least one, or 0 at the end of the stream, and for an empty `into`.
    /// Completes: when there are bytes, or the peer has shut its writing side down.
    /// Buffers: borrowed until then.
    /// Concurrency: one `read_some` or `read_exactly` at a time; `errc::invalid_argument` for the second.
    /// Errors: `errc::peer_lost`; `errc::no_resources` without memory to wait with.
    /// Cancellation: at any time; loses nothing.
    /// Example:
    ///     while (std::size_t n = co_await stream.read_some(buffer)) eat(std::span(buffer).first(n));
    [[nodiscard]] task<std::size_t> read_some(std::span<std::byte> into) {
        return read_bytes(state_.get(), into, false);
    }

    /// Awaitable.
    /// Ends with the length of `into` in bytes, or with 0 where the stream ended before its first byte.
    /// Completes: when all of `into` is filled.
    /// Buffers: borrowed until then.
    /// Concurrency: as `read_some`.
    /// Errors: as `read_some`, and `errc::closed` where the stream ended in the middle. `info()` of each is how many bytes are in
    ///     `into`; they are read.
    /// Cancellation: as `read_some`, and `info()` counts there, too.
    /// Example:
    ///     co_await stream.read_exactly(header);
    template <class Range>
        requires detail::writable_range<Range>
    [[nodiscard]] task<std::size_t> read_exactly(Range&& elements) {
        return read_bytes(state_.get(), detail::range_bytes(elements), true);
    }

    /// Awaitable.
    /// Nothing is gathered here: it is there for code that takes any stream.
    /// Completes: at once.
    /// Buffers: none.
    /// Concurrency: any.
    /// Errors: none.
    /// Cancellation: none.
    /// Example:
    ///     co_await stream.flush();
    [[nodiscard]] task<> flush() { return nothing(); }

    /// Awaitable.
    /// The half-close: the peer reads all that was written and then the end.
    /// Completes: at once.
    /// Buffers: none.
    /// Concurrency: as `write`.
    /// Errors: `errc::peer_lost`.
    /// Cancellation: none.
    /// Example:
    ///     co_await stream.shutdown();
    [[nodiscard]] task<> shutdown() { return shut_down(state_.get()); }

    /// Awaitable.
    /// Shuts the writing side down, drops what the peer still sends, and closes.
    /// Completes: when the peer has ended its direction, so that nothing that was written here is lost.
    /// Buffers: none.
    /// Concurrency: once, with nothing else under way.
    /// Errors: as `read_some`.
    /// Cancellation: closes at once; bytes may be lost.
    /// Example:
    ///     co_await timeout(stream.close(), 5s);
    [[nodiscard]] task<> close() { return close_all(state_.get()); }

    /// Ends the connection: later operations end with `errc::closed`. Not while one is under way.
    void abort() noexcept { state_.reset(); }

    [[nodiscard]] explicit operator bool() const noexcept { return state_ != nullptr; }
    /// Whether the peer has ended its direction, and all of it was read.
    [[nodiscard]] bool at_end() const noexcept;

private:
    static task<> write_bytes(detail::plain_socket* self, std::span<const std::byte> from);
    static task<std::size_t> read_bytes(detail::plain_socket* self, std::span<std::byte> into, bool all);
    static task<> shut_down(detail::plain_socket* self);
    static task<> close_all(detail::plain_socket* self);
    static task<> nothing();

    detail::plain_socket_owner state_;
};

/// Awaitable.
/// Ends with an open `plain_stream`. The address is "HOST:PORT", with "socket://" before it or without.
/// Completes: when the peer's system has accepted; of a host's addresses each is tried in turn.
/// Buffers: the address is copied.
/// Concurrency: any number at a time.
/// Errors: `errc::connection_refused`, `errc::address_invalid`, `errc::no_resources`, `errc::permission_denied` (a firewall's rule of this
///     host), with the address in the text.
/// Cancellation: at any time.
/// Example:
///     auto stream = co_await rdmacoro::connect_plain("127.0.0.1:7");
[[nodiscard]] task<plain_stream> connect_plain(std::string_view address);

/// Accepts TCP connections of peers without this toolkit. Movable. For one scheduler's thread.
class plain_listener {
public:
    /// Made by `listen_plain`.
    explicit plain_listener(detail::plain_socket_owner made) noexcept : state_(std::move(made)) {}

    /// Awaitable.
    /// Ends with an open `plain_stream`.
    /// Completes: when a peer has connected.
    /// Buffers: none.
    /// Concurrency: one at a time.
    /// Errors: `errc::no_resources` where no descriptor is left, or no memory.
    /// Cancellation: at any time; no peer is lost.
    /// Example:
    ///     auto stream = co_await listener.accept();
    [[nodiscard]] task<plain_stream> accept() { return accept_from(state_.get()); }
    /// "socket://HOST:PORT", with the real port where 0 was asked for.
    [[nodiscard]] std::string address() const;

private:
    static task<plain_stream> accept_from(detail::plain_socket* self);

    detail::plain_socket_owner state_;
};

/// Awaitable.
/// Ends with a `plain_listener`. The address is as for `connect_plain`; port 0 takes any free one.
/// Completes: when peers can connect.
/// Buffers: the address is copied.
/// Concurrency: any number at a time, at different addresses.
/// Errors: `errc::address_in_use` after 200 ms, for which a port that is taken is tried again; `errc::address_invalid`,
///     `errc::permission_denied`, `errc::no_resources`.
/// Cancellation: at any time.
/// Example:
///     auto listener = co_await rdmacoro::listen_plain("127.0.0.1:0");
[[nodiscard]] task<plain_listener> listen_plain(std::string_view address);

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/impl/plain_stream.ipp>
#endif
