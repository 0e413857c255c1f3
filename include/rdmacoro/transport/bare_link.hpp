// bare_link: the bare network, awaited: messages in order and unmatched, get and put. For programs that need no endpoint.
#pragma once

#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/bare_core.hpp>

#include <concepts>
#include <memory>
#include <string>

namespace rdmacoro {

/// A send. Described at `bare_link::send`.
template <class Core>
class [[nodiscard]] bare_send_operation
    : public basic_operation<bare_send_operation<Core>, void, detail::bare_send_request> {
public:
    template <class Buffers>
    bare_send_operation(Core& core, Buffers&& from) noexcept
        : bare_send_operation::basic_operation(&core.link().owner(), static_cast<Buffers&&>(from)),
          core_(&core) {}
    bare_send_operation(bare_send_operation&&) noexcept = default;

    void start() noexcept { core_->send(*this); }
    void cancel() noexcept { core_->cancel(*this); }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<void> outcome() noexcept { return this->code_; }

private:
    Core* core_;
};

/// A receive. Described at `bare_link::recv`.
template <class Core>
class [[nodiscard]] bare_receive_operation
    : public basic_operation<bare_receive_operation<Core>, std::size_t, detail::bare_receive_request> {
public:
    template <class Buffers>
    bare_receive_operation(Core& core, Buffers&& into) noexcept
        : bare_receive_operation::basic_operation(&core.link().owner(), static_cast<Buffers&&>(into)),
          core_(&core) {}
    bare_receive_operation(bare_receive_operation&&) noexcept = default;

    void start() noexcept { core_->receive(*this); }
    void cancel() noexcept { core_->cancel(*this); }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<std::size_t> outcome() noexcept {
        if (this->code_) return {this->code_, this->info_};
        return this->bytes_;
    }

private:
    Core* core_;
};

/// A get or put. Described at `bare_link::rdma_get`.
template <class Core>
class [[nodiscard]] bare_transfer_operation
    : public basic_operation<bare_transfer_operation<Core>, void, detail::bare_transfer_request> {
public:
    bare_transfer_operation(Core& core, const remote_region& there, std::span<std::byte> here,
                            bool read) noexcept
        : bare_transfer_operation::basic_operation(&core.link().owner(), there, here, read), core_(&core) {}
    bare_transfer_operation(bare_transfer_operation&&) noexcept = default;

    void start() noexcept { core_->transfer(*this); }
    void cancel() noexcept { core_->cancel(*this); }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<void> outcome() noexcept { return this->code_; }

private:
    Core* core_;
};

/// One peer over transport `T`, without matching, protocols and credits. Both ends are bare links. Movable; operations
/// refer to what it holds, not to it. Destroying it closes it. Only for its scheduler's thread.
///
/// Without a receive a message stays in the network; when that is full the peer's sends wait. So does the news that the
/// peer is gone: what it had sent is received first. A program that sends for long without receiving gives its sends a
/// `timeout`.
template <transport T>
class bare_link {
    using core = detail::bare_core<T>;

public:
    using transport_type = T;
    using link_type = typename core::link_type;

    /// Over a fresh connection, from `domain.connect` or `listener.accept`.
    explicit bare_link(typename T::connection made) : core_(std::make_unique<core>(std::move(made))) {}

    /// Awaitable.
    /// Completes: when the message's memory is the caller's again; the network has it by then.
    /// Buffers: borrowed until then. One span, or several with `gather`; at most `capabilities().max_message` bytes.
    /// Concurrency: any number at a time; messages arrive in the order in which their sends began.
    /// Errors: `errc::message_too_long`, `errc::closed`, `errc::peer_lost`, `errc::protocol_violation`.
    /// Cancellation: a send that waits for room is withdrawn; one that the network has begun with ends with its value. Only
    ///     where memory is too short for that it ends canceled, and the link with `errc::no_resources`.
    /// Example:
    ///     co_await link.send(std::as_bytes(std::span(text)));
    template <std::convertible_to<const_buffers> Buffers = const_buffers>
    [[nodiscard]] bare_send_operation<core> send(Buffers&& from) noexcept {
        return {*core_, static_cast<Buffers&&>(from)};
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
    [[nodiscard]] bare_receive_operation<core> recv(Buffers&& into) noexcept {
        return {*core_, static_cast<Buffers&&>(into)};
    }

    /// Awaitable.
    /// Completes: when `into` holds the peer's bytes. `there.length` equals `into.size()`.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time, in no order.
    /// Errors: `errc::bad_key`, `errc::out_of_bounds`, `errc::access_denied` leave the link usable; `errc::closed`,
    ///     `errc::peer_lost`; `errc::invalid_argument` when the lengths differ.
    /// Cancellation: at any time.
    /// Example:
    ///     co_await link.rdma_get(region_of_peer.part(0, 64), buffer);
    [[nodiscard]] bare_transfer_operation<core> rdma_get(const remote_region& there,
                                                         std::span<std::byte> into) noexcept
        requires one_sided_link<link_type>
    {
        return {*core_, there, into, true};
    }

    /// Awaitable.
    /// Completes: when the bytes are in the peer's memory, visible to it. `there.length` equals `from.size()`.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time, in no order.
    /// Errors: as `rdma_get`.
    /// Cancellation: at any time; how much was written is then unknown.
    /// Example:
    ///     co_await link.rdma_put(buffer, region_of_peer);
    [[nodiscard]] bare_transfer_operation<core> rdma_put(std::span<const std::byte> from,
                                                         const remote_region& there) noexcept
        requires one_sided_link<link_type>
    {
        return {*core_, there, {const_cast<std::byte*>(from.data()), from.size()}, false};
    }

    /// Ends the link now; everything pending ends with `errc::closed`, at the peer with `errc::peer_lost`. What was sent
    /// last may be lost: who must know that it arrived lets the peer say so first.
    void close() noexcept { core_->close(make_error_code(errc::closed)); }

    /// Why the link is down; zero while it is not.
    [[nodiscard]] std::error_code reason() const noexcept { return core_->reason(); }
    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept {
        return core_->link().capabilities();
    }
    [[nodiscard]] std::string peer_name() const { return core_->link().peer_name(); }
    [[nodiscard]] scheduler& owner() noexcept { return core_->link().owner(); }

private:
    std::unique_ptr<core> core_;
};

}  // namespace rdmacoro
