// endpoint: one peer, with matching and protocols; what most programs talk through.
#pragma once

#include <rdmacoro/messaging/operations.hpp>
#include <rdmacoro/protocol/connection.hpp>
#include <rdmacoro/protocol/explain.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <memory>
#include <string>

namespace rdmacoro {

template <transport T, protocol_list P>
class mailbox;

namespace detail {

/// What an endpoint's operations refer to. A mailbox that attaches the endpoint takes it over, and its own `box` goes.
template <class T, class P>
struct endpoint_core {
    endpoint_core(scheduler& owner, typename T::connection made, const mailbox_options& options)
        : box(std::make_unique<mailbox_base>(owner, options, false)), link(*box, 0, std::move(made)) {}

    std::unique_ptr<mailbox_base> box;
    connection<T, P> link;
};

}  // namespace detail

/// One peer over transport `T`, with messages that travel as `P` says. Movable; operations refer to what it holds, not to
/// it. Destroying it ends the link at once and everything pending with `errc::closed`; `close` first to be sure that what
/// was sent arrives. Only for its scheduler's thread.
template <transport T, protocol_list P = default_protocols<T>>
class endpoint {
public:
    using transport_type = T;
    using protocols_type = P;
    using connection_type = detail::connection<T, P>;

    endpoint() noexcept = default;

    /// Over a fresh connection. `connect` and `listener` do this and wait for the peer to say who it is.
    endpoint(scheduler& owner, typename T::connection made, const mailbox_options& options = {})
        : core_(std::make_unique<core>(owner, std::move(made), options)) {}

    /// Awaitable.
    /// Completes: when the message's memory is the caller's again: a short message has been handed to the network or the
    ///     peer's memory by then, a long one has been sent but for what the network still holds.
    /// Buffers: borrowed until then. One span, or several with `gather`.
    /// Concurrency: any number at a time; messages to one peer match in the order in which their sends began.
    /// Errors: `errc::closed`, `errc::peer_lost`, `errc::message_too_long`.
    /// Cancellation: a send that waits for its turn, for credit or for a long message's receiver is withdrawn; one whose
    ///     bytes are with the network already ends with its value.
    /// Example:
    ///     co_await peer.send(std::as_bytes(std::span(text)), 7);
    template <std::convertible_to<const_buffers> Buffers = const_buffers>
    [[nodiscard]] send_operation<connection_type> send(Buffers&& from, tag_type tag = 0) noexcept {
        return {core_->link, static_cast<Buffers&&>(from), tag, false};
    }

    /// Awaitable.
    /// Completes: when the peer has matched the message with a receive, and its memory is the caller's again.
    /// Buffers: borrowed until then.
    /// Concurrency: as `send`.
    /// Errors: as `send`.
    /// Cancellation: at any time; whether the peer still received it is then unknown.
    /// Example:
    ///     co_await peer.ssend(std::as_bytes(std::span(text)), 7);
    template <std::convertible_to<const_buffers> Buffers = const_buffers>
    [[nodiscard]] send_operation<connection_type> ssend(Buffers&& from, tag_type tag = 0) noexcept {
        return {core_->link, static_cast<Buffers&&>(from), tag, true};
    }

    /// Awaitable.
    /// Ends with the message's length, tag and source.
    /// Completes: when a message that `wanted` accepts is in the buffer. Without `wanted`: any message.
    /// Buffers: borrowed until then. One span, or several with `scatter`, filled in order.
    /// Concurrency: any number at a time; they match in the order in which they began.
    /// Errors: `errc::truncated` when the message is longer than the buffer: it is consumed, and the error's `info()` is
    ///     its true length; `errc::closed`, `errc::peer_lost`, `errc::peer_canceled`, `errc::protocol_violation`.
    /// Cancellation: at any time. A message of which a part had arrived is lost.
    /// Example:
    ///     std::vector<std::byte> buffer(1 << 20);
    ///     auto got = co_await peer.recv(buffer, 7);
    template <std::convertible_to<mutable_buffers> Buffers = mutable_buffers>
    [[nodiscard]] receive_operation<connection_type> recv(Buffers&& into,
                                                          tag_match wanted = any_tag) noexcept {
        return {core_->link, static_cast<Buffers&&>(into), wanted, 0};
    }

    /// Awaitable.
    /// Ends with a `message` that is read where it lies.
    /// Completes: when a message that `wanted` accepts is there.
    /// Buffers: the toolkit's, until the `message` goes; holding many holds the peer up.
    /// Concurrency: as `recv`, and in one order with it.
    /// Errors: as `recv`; `errc::truncated` above `mailbox_options::lent_bytes`.
    /// Cancellation: as `recv`.
    /// Example:
    ///     rdmacoro::message m = co_await peer.recv_lent(7);
    [[nodiscard]] lent_receive_operation<connection_type> recv_lent(tag_match wanted = any_tag) noexcept {
        return {core_->link, wanted, 0};
    }

    /// Awaitable.
    /// Ends with the length, tag and source of a message that waits; the message stays.
    /// Completes: when a message that `wanted` accepts has begun to arrive and no receive was posted for it.
    /// Buffers: none.
    /// Concurrency: any number at a time. Another receive may take the message first.
    /// Errors: `errc::closed`, `errc::peer_lost`.
    /// Cancellation: at any time.
    /// Example:
    ///     auto what = co_await peer.probe();
    ///     std::vector<std::byte> buffer(what.bytes);
    [[nodiscard]] probe_operation<connection_type> probe(tag_match wanted = any_tag) noexcept {
        return {core_->link, wanted, 0};
    }

    /// Awaitable.
    /// Completes: when `into` holds the peer's bytes. `there.length` equals `into.size()`.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time, in no order.
    /// Errors: `errc::bad_key`, `errc::out_of_bounds`, `errc::access_denied` leave the link usable; `errc::closed`,
    ///     `errc::peer_lost`; `errc::invalid_argument` when the lengths differ.
    /// Cancellation: at any time.
    /// Example:
    ///     co_await peer.rdma_get(region_of_peer.part(0, 64), buffer);
    [[nodiscard]] auto rdma_get(const remote_region& there, std::span<std::byte> into) noexcept
        requires one_sided_link<typename connection_type::link_type>
    {
        return one_sided_operation<typename connection_type::link_type>(core_->link.link(), there, into,
                                                                        true);
    }

    /// Awaitable.
    /// Completes: when the bytes are in the peer's memory, visible to it. `there.length` equals `from.size()`.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time, in no order.
    /// Errors: as `rdma_get`.
    /// Cancellation: at any time; how much was written is then unknown.
    /// Example:
    ///     co_await peer.rdma_put(buffer, region_of_peer);
    [[nodiscard]] auto rdma_put(std::span<const std::byte> from, const remote_region& there) noexcept
        requires one_sided_link<typename connection_type::link_type>
    {
        const std::span<std::byte> here(const_cast<std::byte*>(from.data()), from.size());
        return one_sided_operation<typename connection_type::link_type>(core_->link.link(), there, here,
                                                                        false);
    }

    /// Awaitable.
    /// Ends with what the peer's number at `there` was; `value` has been added to it, modulo 2 to the 64th.
    /// Completes: when it is known. `there` is 8 bytes, aligned to 8, of a region with all rights.
    /// Buffers: none.
    /// Concurrency: any number at a time, from any number of peers, in no order; each counts. The peer's own processor is
    ///     not promised to take part: it reads the number, but changes it through the network, too.
    /// Errors: as `rdma_get`; `errc::unsupported` where `link_capabilities().atomics` is false, `errc::invalid_argument` for
    ///     what is not 8 aligned bytes.
    /// Cancellation: where the link revokes at once, and whether it was added is then unknown; over others it ends with its value.
    /// Example:
    ///     std::uint64_t ticket = co_await peer.rdma_fetch_add(counter_of_peer, 1);
    [[nodiscard]] auto rdma_fetch_add(const remote_region& there, std::uint64_t value) noexcept
        requires atomic_link<typename connection_type::link_type>
    {
        using operation = atomic_operation<typename connection_type::link_type>;
        return operation(core_->link.link(), there, operation::kind::fetch_add, value, 0);
    }

    /// Awaitable.
    /// Ends with what the peer's number at `there` was. If that is `expected`, the number is `desired` now.
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
        return operation(core_->link.link(), there, operation::kind::compare_swap, expected, desired);
    }

    /// Awaitable.
    /// Completes: when everything sent before has reached the peer's mailbox and the link is closed. From the beginning of
    ///     `close` on nothing else can be sent; the peer's receives end with `errc::closed` once its messages are used up.
    /// Buffers: none.
    /// Concurrency: once.
    /// Errors: none: a link that is down already is closed.
    /// Cancellation: closes at once; what was sent may be lost. Use it with `timeout`.
    /// Example:
    ///     co_await peer.close();
    [[nodiscard]] close_operation<connection_type> close() noexcept {
        return close_operation<connection_type>(core_->link);
    }

    /// Ends the link now; everything pending ends with `errc::closed`.
    void abort() noexcept {
        if (core_) core_->link.close(make_error_code(errc::closed));
    }

    [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }
    /// Whether messages can be sent and received.
    [[nodiscard]] bool is_open() const noexcept { return core_ && core_->link.is_open(); }
    [[nodiscard]] const metrics& counts() const noexcept { return core_->link.counts(); }
    [[nodiscard]] const capabilities& link_capabilities() noexcept { return core_->link.link_capabilities(); }
    [[nodiscard]] std::string peer_name() const { return core_->link.link().peer_name(); }
    [[nodiscard]] scheduler& owner() noexcept { return core_->link.box().owner(); }
    /// The table of protocols as they are chosen on this link.
    [[nodiscard]] std::string explain() const {
        return rdmacoro::explain<T, P>(core_->link.link_capabilities());
    }

    /// For `connect`, `listener` and those who build on endpoints.
    [[nodiscard]] connection_type& connection() noexcept { return core_->link; }

private:
    friend class mailbox<T, P>;

    using core = detail::endpoint_core<T, P>;

    std::unique_ptr<core> core_;
};

}  // namespace rdmacoro
