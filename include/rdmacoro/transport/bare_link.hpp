// bare_link: the bare network, awaited: messages in order and unmatched, get and put. For programs that need no endpoint.
#pragma once

#include <rdmacoro/memory/detail/owning_temporary.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/bare_session.hpp>

#include <concepts>
#include <memory>
#include <string>

namespace rdmacoro {

/// A send. Described at `bare_link::send`.
template <class Session>
class [[nodiscard]] bare_send_operation
    : public basic_operation<bare_send_operation<Session>, void, detail::bare_send_request> {
public:
    template <class Buffers>
    bare_send_operation(Session& session, Buffers&& from) noexcept
        : bare_send_operation::basic_operation(&session.link().owner(), static_cast<Buffers&&>(from)),
          session_(&session) {}
    bare_send_operation(bare_send_operation&&) noexcept = default;

    void start() noexcept { session_->send(*this); }
    void cancel() noexcept { session_->cancel(*this); }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<void> outcome() noexcept { return this->code_; }

private:
    Session* session_;
};

/// A receive. Described at `bare_link::recv`.
template <class Session>
class [[nodiscard]] bare_receive_operation
    : public basic_operation<bare_receive_operation<Session>, std::size_t, detail::bare_receive_request> {
public:
    template <class Buffers>
    bare_receive_operation(Session& session, Buffers&& into) noexcept
        : bare_receive_operation::basic_operation(&session.link().owner(), static_cast<Buffers&&>(into)),
          session_(&session) {}
    bare_receive_operation(bare_receive_operation&&) noexcept = default;

    void start() noexcept { session_->receive(*this); }
    void cancel() noexcept { session_->cancel(*this); }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<std::size_t> outcome() noexcept {
        if (this->code_) return {this->code_, this->info_};
        return this->bytes_;
    }

private:
    Session* session_;
};

/// A get or put. Described at `bare_link::rdma_get`.
template <class Session>
class [[nodiscard]] bare_transfer_operation
    : public basic_operation<bare_transfer_operation<Session>, void, detail::bare_transfer_request> {
public:
    bare_transfer_operation(Session& session, const remote_region& there, std::span<std::byte> here,
                            bool read) noexcept
        : bare_transfer_operation::basic_operation(&session.link().owner(), there, here, read),
          session_(&session) {}
    bare_transfer_operation(bare_transfer_operation&&) noexcept = default;

    void start() noexcept { session_->transfer(*this); }
    void cancel() noexcept { session_->cancel(*this); }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<void> outcome() noexcept { return this->code_; }

private:
    Session* session_;
};

/// One peer over transport `T`, without matching, protocols and credits. Both ends are bare links. Movable; operations
/// refer to its session, not to it. Destroying it closes it. Only for its scheduler's thread.
///
/// Without a receive a message stays in the network; when that is full the peer's sends wait. The end of a closed or
/// dead peer is reported after its messages are received. A program that sends for long without receiving gives its
/// sends a `timeout`.
///
/// Over tcp all that a peer sends comes in one stream: while a message waits for a receive, nothing behind it is read. So it holds up the gets
/// and puts of its link, those of both ends, and the news that the peer is gone, until it is received or the link closed. A program that
/// cannot have a receive pending gives its gets and puts a `timeout`, too. Over shm they go on.
template <transport T>
class bare_link {
    using session = detail::bare_session<T>;

public:
    using transport_type = T;
    using link_type = typename session::link_type;

    /// Over a fresh connection, from `domain.connect` or `listener.accept`.
    explicit bare_link(typename T::connection made) : session_(std::make_unique<session>(std::move(made))) {}

    /// Awaitable.
    /// Completes: when the message's memory is the caller's again; the network has it by then.
    /// Buffers: borrowed until then. One span, or several with `gather`; at most `capabilities().max_message` bytes.
    /// Concurrency: any number at a time; messages arrive in the order in which their sends began.
    /// Errors: `errc::message_too_long`, `errc::closed`, `errc::peer_lost`, `errc::protocol_violation`.
    /// Cancellation: a send that waits for room is withdrawn; a send that the network has begun ends with its value.
    ///     Only where memory is too short for that it ends canceled, and the link with `errc::no_resources`.
    /// Example:
    ///     co_await link.send(std::as_bytes(std::span(text)));
    template <std::convertible_to<const_buffers> Buffers = const_buffers>
    [[nodiscard]] detail::operation_on<bare_send_operation<session>, Buffers> send(Buffers&& from) noexcept {
        return {*session_, static_cast<Buffers&&>(from)};
    }

    /// Awaitable.
    /// Ends with the message's length in bytes.
    /// Completes: when the next message is in the buffer.
    /// Buffers: borrowed until then. One span, or several with `scatter`, filled in order.
    /// Concurrency: any number at a time; each takes one message, in the order in which they began.
    /// Errors: `errc::truncated` when the message is longer than the buffer: it is consumed, and the error's `info()` is
    ///     its true length; `errc::closed`, `errc::peer_lost`, `errc::protocol_violation`.
    /// Cancellation: at any time. A message of which a part had arrived is lost.
    /// Example:
    ///     std::vector<std::byte> buffer(link.capabilities().max_message);
    ///     std::size_t bytes = co_await link.recv(buffer);
    template <std::convertible_to<mutable_buffers> Buffers = mutable_buffers>
    [[nodiscard]] bare_receive_operation<session> recv(Buffers&& into) noexcept {
        return {*session_, static_cast<Buffers&&>(into)};
    }

    /// Awaitable.
    /// Completes: when `into` holds the peer's bytes. `there.length` equals `into.size()`. Over tcp not while a message waits for its receive, at
    ///     either end.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time, in no order.
    /// Errors: `errc::bad_key`, `errc::out_of_bounds`, `errc::access_denied` leave the link usable. Where `capabilities().ends_on_refusal`
    ///     (verbs, and libfabric's providers that refuse by themselves) they end the link, and the code may be `errc::peer_lost`.
    ///     `errc::closed`, `errc::peer_lost`; `errc::no_resources` without memory for it; `errc::invalid_argument` when the lengths differ.
    /// Cancellation: at any time. Over verbs and libfabric the call waits for the pieces that are under way. If they do not end (verbs: nothing
    ///     does for 100 ms; libfabric: for a second) the link ends with `errc::peer_lost`, over libfabric with all others of its domain.
    /// Example:
    ///     co_await link.rdma_get(region_of_peer.part(0, 64), buffer);
    [[nodiscard]] bare_transfer_operation<session> rdma_get(const remote_region& there,
                                                            std::span<std::byte> into) noexcept
        requires one_sided_link<link_type>
    {
        return {*session_, there, into, true};
    }

    /// Awaitable.
    /// Completes: when the bytes are in the peer's memory, visible to it. `there.length` equals `from.size()`. Over tcp as `rdma_get`.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time, in no order.
    /// Errors: as `rdma_get`.
    /// Cancellation: as `rdma_get`; how much was written is then unknown.
    /// Example:
    ///     co_await link.rdma_put(buffer, region_of_peer);
    template <std::convertible_to<std::span<const std::byte>> Bytes = std::span<const std::byte>>
    [[nodiscard]] detail::operation_on<bare_transfer_operation<session>, Bytes>
    rdma_put(Bytes&& bytes, const remote_region& there) noexcept
        requires one_sided_link<link_type>
    {
        const std::span<const std::byte> from = static_cast<Bytes&&>(bytes);
        const std::span<std::byte> here(const_cast<std::byte*>(from.data()), from.size());
        return {*session_, there, here, false};
    }

    /// Ends the link now; everything pending ends with `errc::closed`, at the peer with `errc::peer_lost`. Messages sent
    /// last may be lost: a program that must know that they arrived waits for an answer of the peer first.
    void close() noexcept { session_->close(make_error_code(errc::closed)); }

    /// Why the link is down; zero while it is not.
    [[nodiscard]] std::error_code reason() const noexcept { return session_->reason(); }
    /// The link's capabilities.
    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept {
        return session_->link().capabilities();
    }
    /// The peer's address or process, for texts.
    [[nodiscard]] std::string peer_name() const { return session_->link().peer_name(); }
    [[nodiscard]] scheduler& owner() noexcept { return session_->link().owner(); }

private:
    std::unique_ptr<session> session_;
};

}  // namespace rdmacoro
