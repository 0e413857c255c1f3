// endpoint: one peer, with matching and protocols; the class that most programs use.
#pragma once

#include <rdmacoro/messaging/detail/endpoint_base.hpp>
#include <rdmacoro/messaging/one_sided_operations.hpp>
#include <rdmacoro/messaging/operations.hpp>
#include <rdmacoro/protocol/connection.hpp>
#include <rdmacoro/protocol/explain.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace rdmacoro {

template <transport T, protocol_list P>
class mailbox;
template <transport T, protocol_list P>
class listener;

namespace detail {

/// The state of an endpoint.
template <class T, class P>
class endpoint_state final : public endpoint_base {
public:
    /// `answers`: as for `connection`.
    [[gnu::cold]] endpoint_state(scheduler& owner, typename T::connection made,
                                 const mailbox_options& options, bool answers = false);
    [[gnu::cold]] ~endpoint_state() override;

    [[nodiscard]] connection_base& base() noexcept override;

    connection<T, P> link;
};

template <class T, class P>
endpoint_state<T, P>::endpoint_state(scheduler& owner, typename T::connection made,
                                     const mailbox_options& options, bool answers)
    : endpoint_base(owner, options), link(*box(), 0, std::move(made), answers) {}
template <class T, class P>
endpoint_state<T, P>::~endpoint_state() = default;
template <class T, class P>
connection_base& endpoint_state<T, P>::base() noexcept {
    return link;
}

}  // namespace detail

/// One peer over transport `T`, with the protocols of `P`. Movable; operations refer to its state, not to it.
/// Destroying it ends the link at once, everything pending with `errc::closed`, and at the peer with `errc::peer_lost`; `close` first to be
/// sure that sent messages arrive. Only for its scheduler's thread: an operation that waits on another one ends the process with a message, and so
/// does, unless `NDEBUG` is defined, one that begins there. A default-constructed or moved-from endpoint's operations end with
/// `errc::invalid_argument`; asking it about its link or its peer ends the process with a message.
template <transport T, protocol_list P = default_protocols<T>>
class endpoint : detail::takes_text_vectors_and_spans {
    static_assert(!P::delegates || matching_link<typename T::template link<detail::sink_archetype>>,
                  "protocols<provider_matched> needs a transport whose link models matching_link");

public:
    using transport_type = T;
    using protocols_type = P;
    using connection_type = detail::connection<T, P>;
    using detail::takes_text_vectors_and_spans::rdma_get;
    using detail::takes_text_vectors_and_spans::rdma_put;
    using detail::takes_text_vectors_and_spans::recv;
    using detail::takes_text_vectors_and_spans::send;
    using detail::takes_text_vectors_and_spans::ssend;

    endpoint() noexcept = default;

    /// Over a fresh connection. `connect` and `listener` do this and wait for the handshake.
    endpoint(scheduler& owner, typename T::connection made, const mailbox_options& options = {})
        : state_(new state(owner, std::move(made), options)) {}

    /// Awaitable.
    /// Completes: when the message's memory is the caller's again: a short message has been handed to the network or
    ///     the peer's memory by then, a long one has been sent except for the bytes that the network still holds.
    /// Buffers: borrowed until then. Text, or a vector, array or span of trivially copyable elements; several with `gather`, a
    ///     value with `bytes_of`.
    /// Concurrency: any number at a time; messages to one peer match in the order in which their sends began.
    /// Errors: `errc::closed`, `errc::peer_lost`, `errc::message_too_long`.
    /// Cancellation: a send that waits for its turn, for credit or for a long message's receiver is withdrawn; a send
    ///     that has handed its bytes to the network already ends with its value.
    /// Example:
    ///     co_await peer.send(text, 7);
    template <class Buffers = const_buffers>
        requires detail::sendable<Buffers>
    [[nodiscard]] detail::operation_on<send_operation<connection_type>, Buffers>
    send(Buffers&& from, tag_type tag = 0) noexcept {
        return {link(), detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag, false};
    }

    /// Awaitable.
    /// Completes: when the peer has matched the message with a receive, and its memory is the caller's again.
    /// Buffers: borrowed until then.
    /// Concurrency: as `send`.
    /// Errors: as `send`; `errc::unsupported` where the protocol list carries `send` of this length, but not `ssend`.
    /// Cancellation: at any time; whether the peer still received it is then unknown.
    /// Example:
    ///     co_await peer.ssend(text, 7);
    template <class Buffers = const_buffers>
        requires detail::sendable<Buffers>
    [[nodiscard]] detail::operation_on<send_operation<connection_type>, Buffers>
    ssend(Buffers&& from, tag_type tag = 0) noexcept {
        return {link(), detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag, true};
    }

    /// Awaitable.
    /// Ends with the message's length, tag and source.
    /// Completes: when a message that `wanted` accepts is in the buffer. Without `wanted`: any message.
    /// Buffers: borrowed until then, and as `send`, but not const; several with `scatter`, filled in order.
    /// Concurrency: any number at a time; they match in the order in which they began.
    /// Errors: `errc::truncated` when the message is longer than the buffer: it is consumed, and the error's `info()` is
    ///     its true length; the buffer is as it was, or, where the transport matches (`provider_matched`), may hold the
    ///     message's beginning. After any other error the buffer's contents are not specified. `errc::closed`, `errc::peer_lost`, `errc::peer_canceled`, `errc::protocol_violation`.
    /// Cancellation: at any time. A message of which a part had arrived is lost.
    /// Example:
    ///     std::vector<std::byte> buffer(1 << 20);
    ///     auto got = co_await peer.recv(buffer, 7);
    template <class Buffers = mutable_buffers>
        requires detail::receivable<Buffers>
    [[nodiscard]] receive_operation<connection_type> recv(Buffers&& into,
                                                          tag_match wanted = any_tag) noexcept {
        return {link(), detail::as_buffers<mutable_buffers>(static_cast<Buffers&&>(into)), wanted, 0};
    }

    /// The same; if it is canceled, also before it has begun, the message that it would have taken is dropped on arrival, and not
    /// fetched if it was only announced. Until then a record of 432 bytes keeps the receive's place among the others. It is freed
    /// with its message, with the link, or with this endpoint. When there are `mailbox_options::canceled_receives` such records, a
    /// receive is canceled without one, as by the overload above.
    ///
    ///     auto answer = co_await as_result(timeout(peer.recv(buffer, request_id, discard_if_canceled), 5s));
    template <class Buffers = mutable_buffers>
        requires detail::receivable<Buffers>
    [[nodiscard]] receive_operation<connection_type> recv(Buffers&& into, tag_match wanted,
                                                          discard_if_canceled_t) noexcept {
        return detail::discarding(recv(static_cast<Buffers&&>(into), wanted));
    }

    /// Drops the messages that were not received yet and that `wanted` accepts, in the order in which they came. Answers how many.
    /// Of those that are still coming the rest is dropped, too; messages of which nothing has come yet are not touched. Throws
    /// `std::bad_alloc`; then some may have been dropped. Without a connection: 0.
    std::size_t discard(tag_match wanted = any_tag) {
        return *this ? linked().mailbox().discard(linked().source(), wanted) : 0;
    }

    /// Awaitable.
    /// Ends with a `message` that is read where it lies, or, of up to 64 bytes, in that object.
    /// Completes: when a message that `wanted` accepts is there.
    /// Buffers: the toolkit's, until the `message` is destroyed; holding many stops the peer.
    /// Concurrency: as `recv`, and in one order with it.
    /// Errors: as `recv`; `errc::truncated` above `mailbox_options::lent_bytes`, unless the message has come in one piece, or was stored whole:
    ///     one that has memory already is accepted at any size.
    /// Cancellation: as `recv`.
    /// Example:
    ///     rdmacoro::message m = co_await peer.recv_lent(7);
    [[nodiscard]] lent_receive_operation<connection_type> recv_lent(tag_match wanted = any_tag) noexcept {
        return {link(), wanted, 0};
    }
    /// The same; if it is canceled, its message is dropped, as for `recv`.
    [[nodiscard]] lent_receive_operation<connection_type> recv_lent(tag_match wanted,
                                                                    discard_if_canceled_t) noexcept {
        return detail::discarding(recv_lent(wanted));
    }

    /// Awaitable.
    /// Ends with the length, tag and source of a message that waits; the message stays.
    /// Completes: when a message that `wanted` accepts has begun to arrive and no receive was posted for it.
    /// Buffers: none.
    /// Concurrency: any number at a time. Another receive may take the message first.
    /// Errors: `errc::closed`, `errc::peer_lost`.
    /// Cancellation: at any time.
    /// Example:
    ///     auto found = co_await peer.probe();
    ///     std::vector<std::byte> buffer(found.bytes);
    [[nodiscard]] probe_operation<connection_type> probe(tag_match wanted = any_tag) noexcept {
        return {link(), wanted, 0};
    }

    /// Awaitable.
    /// Completes: when `into` holds the peer's bytes. `there.length` equals its length in bytes.
    /// Buffers: borrowed until then. A vector, array or span of trivially copyable elements, not const; a value with `bytes_of`.
    /// Concurrency: any number at a time, in no order.
    /// Errors: `errc::bad_key`, `errc::out_of_bounds`, `errc::access_denied` leave the link usable. Where
    ///     `link_capabilities().ends_on_refusal` (verbs, and libfabric's providers that refuse by themselves) they end the link, and the code may
    ///     be `errc::peer_lost`. `errc::closed`, `errc::peer_lost`; `errc::no_resources` without memory for it; `errc::invalid_argument` when the
    ///     lengths differ.
    /// Cancellation: at any time where the link revokes at once (`link_capabilities().revokes_at_once`: shm, tcp). Over verbs and libfabric one
    ///     that has begun ends with its value, or with the link, whatever is stopped.
    /// Example:
    ///     co_await peer.rdma_get(region_of_peer.part(0, 64), buffer);
    template <class Bytes = std::span<std::byte>>
        requires detail::one_piece_to_write<Bytes> && one_sided_link<typename connection_type::link_type>
    [[nodiscard]] auto rdma_get(const remote_region& there, Bytes&& into) noexcept {
        const std::span<std::byte> here =
            detail::as_buffers<std::span<std::byte>>(static_cast<Bytes&&>(into));
        return one_sided_operation<typename connection_type::link_type>(link(), there, here, true);
    }

    /// Awaitable.
    /// Completes: when the bytes are in the peer's memory, visible to it. `there.length` equals their number.
    /// Buffers: borrowed until then. Text, or a vector, array or span of trivially copyable elements; a value with `bytes_of`.
    /// Concurrency: any number at a time, in no order.
    /// Errors: as `rdma_get`.
    /// Cancellation: as `rdma_get`; how much was written is then unknown.
    /// Example:
    ///     co_await peer.rdma_put(buffer, region_of_peer);
    template <class Bytes = std::span<const std::byte>>
        requires detail::one_piece_to_read<Bytes> && one_sided_link<typename connection_type::link_type>
    [[nodiscard]] auto rdma_put(Bytes&& bytes, const remote_region& there) noexcept {
        const std::span<const std::byte> from =
            detail::as_buffers<std::span<const std::byte>>(static_cast<Bytes&&>(bytes));
        const std::span<std::byte> here(const_cast<std::byte*>(from.data()), from.size());
        using operation = one_sided_operation<typename connection_type::link_type>;
        return detail::operation_on<operation, Bytes>(link(), there, here, false);
    }

    /// Awaitable.
    /// Ends with the peer's number at `there` as it was before; `value` has been added to it, modulo 2 to the 64th. Only over
    /// transports with atomics, verbs and libfabric: over others it does not compile.
    /// Completes: when it is known. `there` is 8 bytes, aligned to 8, of a region with all rights.
    /// Buffers: none.
    /// Concurrency: any number at a time, from any number of peers, in no order; each counts. The peer's own processor is
    ///     not promised to take part: it reads the number, but changes it through the network, too.
    /// Errors: as `rdma_get`; `errc::unsupported` where the device has none (`link_capabilities().atomics` is false),
    ///     `errc::invalid_argument` unless `there` is 8 aligned bytes.
    /// Cancellation: where the link revokes at once, and whether it was added is then unknown; over others it ends with its value.
    /// Example:
    ///     std::uint64_t ticket = co_await peer.rdma_fetch_add(counter_of_peer, 1);
    [[nodiscard]] auto rdma_fetch_add(const remote_region& there, std::uint64_t value) noexcept
        requires atomic_link<typename connection_type::link_type>
    {
        using operation = atomic_operation<typename connection_type::link_type>;
        return operation(link(), there, operation::kind::fetch_add, value, 0);
    }

    /// Awaitable.
    /// Ends with the peer's number at `there` as it was before. If that is `expected`, the number is `desired` now.
    /// Completes: when it is known. `there` is 8 bytes, aligned to 8, of a region with all rights.
    /// Buffers: none.
    /// Concurrency: as `rdma_fetch_add`.
    /// Errors: as `rdma_fetch_add`.
    /// Cancellation: as `rdma_fetch_add`.
    /// Example:
    ///     const bool taken = co_await peer.rdma_compare_swap(lock_of_peer, 0, my_id) == 0;
    [[nodiscard]] auto rdma_compare_swap(const remote_region& there, std::uint64_t expected,
                                         std::uint64_t desired) noexcept
        requires atomic_link<typename connection_type::link_type>
    {
        using operation = atomic_operation<typename connection_type::link_type>;
        return operation(link(), there, operation::kind::compare_swap, expected, desired);
    }

    /// Awaitable.
    /// Completes: when everything sent before has reached the peer's mailbox and the link is closed. From the beginning of
    ///     `close` on nothing else can be sent; the peer's receives end with `errc::closed` once its messages are used up.
    ///     Where the peer has closed before, it ends at once: what was sent since that began may be lost.
    /// Buffers: none.
    /// Concurrency: any number: all wait for the same. One that is canceled ends the others, which do not tell.
    /// Errors: `errc::invalid_argument` without a connection. None else: a link that is down already is closed.
    /// Cancellation: closes at once; sent messages may be lost. Use it with `timeout`.
    /// Example:
    ///     co_await peer.close();
    [[nodiscard]] close_operation close() noexcept { return close_operation(link()); }

    /// Ends the link now; everything pending ends with `errc::closed`. On another thread than the scheduler's it ends the process with
    /// a message.
    void abort() noexcept {
        if (!*this) return;
        detail::require_thread_of(&owner(), "a link of", "was aborted");
        linked().close(make_error_code(errc::closed));
    }

    [[nodiscard]] explicit operator bool() const noexcept { return state_.get() != nullptr; }
    /// Whether messages can be sent and received.
    [[nodiscard]] bool is_open() const noexcept { return *this && linked().is_open(); }
    /// The connection's counts.
    [[nodiscard]] const metrics& counts() const noexcept { return linked().counts(); }
    /// The link's capabilities; the protocol of a message is chosen by them.
    [[nodiscard]] const capabilities& link_capabilities() const noexcept {
        return linked().link_capabilities();
    }
    /// The peer's address or process, for texts.
    [[nodiscard]] std::string peer_name() const { return linked().link().peer_name(); }
    [[nodiscard]] scheduler& owner() noexcept { return linked().mailbox().owner(); }
    /// The table of protocols as they are chosen on this link.
    [[nodiscard]] std::string explain() const {
        return rdmacoro::explain<T, P>(linked().link_capabilities());
    }

    /// For `connect`, `listener` and code that builds on endpoints.
    [[nodiscard]] connection_type& connection() noexcept { return linked(); }

private:
    friend class mailbox<T, P>;
    friend class listener<T, P>;

    using state = detail::endpoint_state<T, P>;

    explicit endpoint(detail::endpoint_owner&& made) noexcept : state_(std::move(made)) {}
    /// For operations, which end with an error if there is none.
    [[nodiscard]] detail::way<connection_type> link() const noexcept {
        return {static_cast<connection_type*>(state_.link()), state_.owner()};
    }
    [[nodiscard]] connection_type& linked() const noexcept {
        if (!*this) [[unlikely]]
            detail::fatal(
                "an endpoint without a connection, default-constructed or moved from, was asked about one");
        return *static_cast<connection_type*>(state_.link());
    }

    detail::endpoint_owner state_;
};

}  // namespace rdmacoro
