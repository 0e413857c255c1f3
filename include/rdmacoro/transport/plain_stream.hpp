// plain_stream: bytes over TCP to and from a peer without this toolkit. Needs no network library.
#pragma once

#include <rdmacoro/coro/detail/counted.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/bytes.hpp>
#include <rdmacoro/memory/detail/owning_temporary.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace rdmacoro {

namespace detail {
class plain_sockets;
class plain_wait;

/// One connection or listener. Its stream or listener, and each operation, is one of its owners. A descriptor is in an epoll instance
/// once, so that the writing side has its own.
struct plain_socket final : counted {
    plain_socket(plain_sockets& among, scheduler& on, int fd) noexcept : in(among), owner(on), reads(fd) {}
    RDMACORO_DECL ~plain_socket() override;

    /// The stream or listener is destroyed or aborted: closes the descriptors, and ends the waits with `errc::closed`. An operation that
    /// does not wait for the socket finds `closed` when it goes on.
    RDMACORO_DECL void leave() noexcept;

    plain_sockets& in;
    scheduler& owner;
    int reads;                         // -1 once it is closed
    int writes = -1;                   // made when a write must wait
    plain_wait* read_wait = nullptr;   // while it is watched
    plain_wait* write_wait = nullptr;  // as `read_wait`
    bool reading = false;
    bool writing = false;
    bool shut = false;
    bool ended = false;
    bool closed = false;
};
using plain_socket_owner = counted_ptr<plain_socket>;
}  // namespace detail

/// A TCP connection without messages or a handshake: the raw mode of `byte_stream`, with its operations. Each write and each read is a
/// system call, and nothing is gathered. Movable; operations refer to its state, not to it. For one scheduler's thread.
///
/// Destroying it, or assigning another stream to it, closes the connection at once: operations under way end with `errc::closed`, and so
/// do those that were made before and begin later. `close` first to be sure that what was written arrives.
class plain_stream {
public:
    plain_stream() noexcept = default;
    /// Made by `connect_plain` and `plain_listener::accept`.
    explicit plain_stream(detail::plain_socket_owner made) noexcept : state_(std::move(made)) {}
    plain_stream(plain_stream&&) noexcept = default;
    plain_stream& operator=(plain_stream&& other) noexcept {
        if (this != &other) {
            abort();
            state_ = std::move(other.state_);
        }
        return *this;
    }
    ~plain_stream() { abort(); }

    /// Awaitable.
    /// Completes: when the system has all of the elements.
    /// Buffers: borrowed until then; a temporary that owns its elements is refused.
    /// Concurrency: one `write`, `shutdown` or `close` at a time; `errc::invalid_argument` for the second.
    /// Errors: `errc::peer_lost`; `errc::closed` after `shutdown`, and where the stream is destroyed or aborted; `errc::no_resources`
    ///     without a descriptor or memory to wait with. `info()` is how many bytes the system had before.
    /// Cancellation: at any time; `info()` of the error is how many bytes were written, exactly.
    /// Example:
    ///     co_await stream.write(std::string_view("GET / HTTP/1.0\r\n\r\n"));
    template <class Range>
        requires(detail::plain_range<Range> && !detail::owning_temporary<Range>)
    [[nodiscard]] task<> write(Range&& elements) {
        return write_bytes(state_, detail::range_bytes(elements));
    }

    /// Awaitable.
    /// Ends with how many bytes were read: at least one, or 0 at the end of the stream, and for an empty `into`.
    /// Completes: when there are bytes, or the peer has shut its writing side down.
    /// Buffers: borrowed until then.
    /// Concurrency: one `read_some` or `read_exactly` at a time; `errc::invalid_argument` for the second.
    /// Errors: `errc::peer_lost`; `errc::closed` where the stream is destroyed or aborted; `errc::no_resources` without memory to
    ///     wait with.
    /// Cancellation: at any time; loses nothing.
    /// Example:
    ///     while (std::size_t n = co_await stream.read_some(buffer)) eat(std::span(buffer).first(n));
    [[nodiscard]] task<std::size_t> read_some(std::span<std::byte> into) {
        return read_bytes(state_, into, false);
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
        return read_bytes(state_, detail::range_bytes(elements), true);
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
    /// Errors: `errc::peer_lost`; `errc::closed` where the stream is destroyed or aborted.
    /// Cancellation: none.
    /// Example:
    ///     co_await stream.shutdown();
    [[nodiscard]] task<> shutdown() { return shut_down(state_); }

    /// Awaitable.
    /// Shuts the writing side down, drops what the peer still sends, and closes.
    /// Completes: when the peer has ended its direction, so that nothing that was written here is lost.
    /// Buffers: none.
    /// Concurrency: once, with nothing else under way.
    /// Errors: as `read_some`.
    /// Cancellation: closes at once; bytes may be lost.
    /// Example:
    ///     co_await timeout(stream.close(), 5s);
    [[nodiscard]] task<> close() { return close_all(state_); }

    /// Closes the connection at once: operations under way, and later ones, end with `errc::closed`. The stream is then as one that was
    /// default-constructed.
    void abort() noexcept {
        if (state_) state_->leave();
        state_.reset();
    }

    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(state_); }
    /// Whether the peer has ended its direction, and all of it was read.
    [[nodiscard]] bool at_end() const noexcept;

private:
    static task<> write_bytes(detail::plain_socket_owner self, std::span<const std::byte> from);
    static task<std::size_t> read_bytes(detail::plain_socket_owner self, std::span<std::byte> into, bool all);
    static task<> shut_down(detail::plain_socket_owner self);
    static task<> close_all(detail::plain_socket_owner self);
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

/// Accepts TCP connections of peers without this toolkit. Movable; an `accept` refers to its state, not to it. For one scheduler's thread.
///
/// Destroying it, or assigning another listener to it, refuses peers from then on: an `accept` that waits ends with `errc::closed`.
class plain_listener {
public:
    /// Made by `listen_plain`.
    explicit plain_listener(detail::plain_socket_owner made) noexcept : state_(std::move(made)) {}
    plain_listener(plain_listener&&) noexcept = default;
    plain_listener& operator=(plain_listener&& other) noexcept {
        if (this != &other) {
            leave();
            state_ = std::move(other.state_);
        }
        return *this;
    }
    ~plain_listener() { leave(); }

    /// Awaitable.
    /// Ends with an open `plain_stream`.
    /// Completes: when a peer has connected.
    /// Buffers: none.
    /// Concurrency: one at a time.
    /// Errors: `errc::closed` where the listener is destroyed; `errc::no_resources` where no descriptor is left, or no memory.
    /// Cancellation: at any time; no peer is lost.
    /// Example:
    ///     auto stream = co_await listener.accept();
    [[nodiscard]] task<plain_stream> accept() { return accept_from(state_); }
    /// "socket://HOST:PORT", with the real port where 0 was asked for.
    [[nodiscard]] std::string address() const;

private:
    void leave() noexcept {
        if (state_) state_->leave();
    }
    static task<plain_stream> accept_from(detail::plain_socket_owner self);

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
