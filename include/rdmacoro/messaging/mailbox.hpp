// mailbox: many peers, and receives from any of them.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/detail/wait_node.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/protocol/detail/grown_array.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace rdmacoro {

namespace detail {

class mailbox_state_base;

}  // namespace detail

/// A peer of a mailbox, and why its link has ended. The value of `mailbox::gone`.
struct gone_peer {
    peer_id peer;         ///< still its name, until it is removed
    std::error_code why;  ///< `errc::closed`, `errc::peer_lost`, `errc::protocol_violation`, ...
};

/// A wait for the end of a link. Described at `mailbox::gone`.
class [[nodiscard]] gone_operation final : public basic_operation<gone_operation, gone_peer>,
                                           private detail::wait_node<gone_operation> {
    using base = basic_operation<gone_operation, gone_peer>;

public:
    gone_operation(scheduler* owner, detail::mailbox_state_base* of) noexcept;
    gone_operation(gone_operation&& other) noexcept : base(std::move(other)), of_(other.of_) {}

private:
    friend base;
    friend detail::mailbox_state_base;
    friend detail::intrusive_list<gone_operation>;

    void start() noexcept;
    void cancel() noexcept;
    void finish_canceled() noexcept { code_ = errc::canceled; }
    void finish_of_nothing() noexcept { code_ = errc::invalid_argument; }
    result<gone_peer> outcome() noexcept;
    void end(detail::status why) noexcept;

    detail::mailbox_state_base* of_;
    gone_peer found_{};
    detail::status code_{};
};

namespace detail {

/// The state of a mailbox without the types of transport and protocols: the peers and the mailbox they share. A peer's
/// id is its index in the list; the index of a removed peer is used again.
class mailbox_state_base : private link_watcher {
public:
    mailbox_state_base(const mailbox_state_base&) = delete;
    mailbox_state_base& operator=(const mailbox_state_base&) = delete;

    [[nodiscard]] mailbox_base& mailbox() noexcept { return mailbox_; }

    /// Takes `made` over; leaves it alone when it throws.
    [[nodiscard]] peer_id attach(endpoint_owner& made);
    void remove(peer_id peer);

    [[nodiscard]] endpoint_base* peer(peer_id id) noexcept {
        return id < peers_.size() ? peers_[id] : nullptr;
    }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    /// A wait for the end of a link begins: it ends at once if one has ended that was not told of.
    void wait_for_gone(gone_operation& waits) noexcept;

    /// Closes all peers concurrently. `self` must stay until it has ended.
    template <class = void>
    static task<> close_all(mailbox_state_base* self) {
        self->closing_ = true;
        task_group closing;
        peer_id next = 0;
        try {
            for (; next < self->peers_.size(); ++next) closing.spawn(close_one<>, self, next);
        } catch (const std::bad_alloc&) {}
        result<void> outcome = co_await as_result(closing.join());
        // Those that memory was short for, one after the other.
        for (; next < self->peers_.size(); ++next) {
            endpoint_base* const of = self->peer(next);
            if (of == nullptr) continue;
            if (outcome) {
                close_operation one(of->base());
                outcome = co_await as_result(one);
            } else {
                of->base().close(make_error_code(errc::closed));
            }
        }
        self->closed_ = true;
        self->end_receives_from_any();
        self->end_waits_for_gone();
        outcome.value();
    }

protected:
    mailbox_state_base(scheduler& owner, const mailbox_options& options);
    ~mailbox_state_base();

    mailbox_base mailbox_;
    grown_array<endpoint_base*> peers_;
    std::uint32_t turn_ = 0;
    std::uint32_t found_at_ = 0;
    bool closed_ = false;

private:
    template <class = void>
    static task<> close_one(mailbox_state_base* self, peer_id peer) {
        endpoint_base* of = self->peer(peer);
        if (of == nullptr) co_return;
        close_operation closing(of->base());
        co_await closing;
    }
    void end_receives_from_any() noexcept;
    void end_waits_for_gone() noexcept;
    RDMACORO_DECL void link_ended(peer_id source) noexcept override;
    /// Tells the operation that has waited longest of the link that ended first.
    void tell_of_gone() noexcept;

    intrusive_list<endpoint_base> gone_;       // in the order in which they ended
    intrusive_list<gone_operation> awaiting_;  // empty while there are such
    std::size_t count_ = 0;
    std::uint32_t first_free_ = 0;  // no place below it is free
    bool closing_ = false;
};

/// The state of a mailbox, which its operations refer to.
template <class T, class P>
class mailbox_state final : public mailbox_state_base {
public:
    using connection_type = connection<T, P>;

    mailbox_state(scheduler& owner, const mailbox_options& options) : mailbox_state_base(owner, options) {}

    /// Why no message can come from `source` any more; nothing while one can.
    [[nodiscard]] status why_not_from(peer_id source) noexcept {
        if (source == any_source) return closed_ ? status(errc::closed) : status();
        connection_type* from = find(source);
        return from != nullptr ? from->why_not_from(source) : status(errc::invalid_argument);
    }

    /// One try to find a message from `source`. For any source that is a look at two links, however many there are: one in
    /// turn, and the one where such a look found something last. The scheduler's turns poll all.
    void poll_for(peer_id source) noexcept {
        if (source != any_source) {
            find(source)->poll_for(source);
            return;
        }
        if (!mailbox_.starving().empty()) [[unlikely]]
            mailbox_.receive_posted();
        if (++turn_ >= peers_.size()) turn_ = 0;
        if (found_at_ == turn_ || !look_at(turn_)) look_at(found_at_);
    }

    // As a receiving operation's poller; see `connection`. Receives from any source are never announced.
    static constexpr bool speculates = connection_type::speculates;
    void posted(receive_request& r) noexcept {
        if (r.source_ != any_source) find(r.source_)->posted(r);
    }
    [[nodiscard]] bool cancel_posted(receive_request& r) noexcept {
        return r.source_ == any_source || find(r.source_)->cancel_posted(r);
    }

    static constexpr bool delegates = connection_type::delegates;
    void receive(receive_request& r) noexcept
        requires delegates
    {
        if (r.source_ != any_source) {
            find(r.source_)->receive(r);
        } else {
            mailbox_.matching().post(r);
            look_for(any_source);
        }
    }
    void receive_here(receive_request& r) noexcept
        requires delegates
    {
        mailbox_.matching().post(r);
        look_for(r.source_);
    }
    void look_for(peer_id source) noexcept
        requires delegates
    {
        if (source != any_source) {
            find(source)->look_for(source);
            return;
        }
        for (endpoint_base* peer : peers_) {
            if (peer != nullptr) link_of(*peer).look_for(source);
        }
    }

    /// Throws when there is no such peer.
    [[nodiscard]] connection_type& at(peer_id id) {
        endpoint_base* found = peer(id);
        if (found == nullptr) throw_error(errc::invalid_argument, "the mailbox has no such peer");
        return link_of(*found);
    }
    [[nodiscard]] connection_type* find(peer_id id) noexcept {
        endpoint_base* found = peer(id);
        return found != nullptr ? &link_of(*found) : nullptr;
    }

private:
    /// False: there is nothing.
    bool look_at(std::uint32_t place) noexcept {
        endpoint_base* const found = peer(place);
        if (found == nullptr || link_of(*found).poll(1) == 0) return false;
        found_at_ = place;
        return true;
    }

    [[nodiscard]] static connection_type& link_of(endpoint_base& of) noexcept {
        return static_cast<endpoint_state<T, P>&>(of).link;
    }
};

}  // namespace detail

namespace detail {
/// Owns a mailbox's state, which a moved-from mailbox has no more: operations are of nothing then, and calls throw.
template <class State>
class mailbox_owner {
public:
    explicit mailbox_owner(std::unique_ptr<State> owned) noexcept : owned_(std::move(owned)) {}

    [[nodiscard]] way<State> operator*() const noexcept {
        return owned_ != nullptr ? way<State>(*owned_) : way<State>();
    }
    [[nodiscard]] State* operator->() const {
        if (owned_ == nullptr) [[unlikely]]
            throw_error(errc::invalid_argument, "the mailbox was moved from");
        return owned_.get();
    }
    [[nodiscard]] explicit operator bool() const noexcept { return owned_ != nullptr; }

private:
    std::unique_ptr<State> owned_;
};
}  // namespace detail

/// Many peers over transport `T`, and receives from one of them or from any. Peers come by `attach` and are named by a
/// `peer_id`; messages of one peer are received in the order sent, and an any-source receive takes its turn among the
/// others. Movable; operations refer to its state, not to it. Destroying it ends all links at once and everything
/// pending with `errc::closed`; `close` first to be sure that sent messages arrive. Only for its scheduler's thread.
///
/// A receive or probe from any source waits for peers that are yet to be attached, too: it ends when a message comes, or
/// when the whole mailbox is closed, not when the last peer is removed.
template <transport T, protocol_list P = default_protocols<T>>
class mailbox : detail::mailbox_takes_text_vectors_and_spans {
    using state = detail::mailbox_state<T, P>;

public:
    using transport_type = T;
    using protocols_type = P;
    using connection_type = detail::connection<T, P>;
    using detail::mailbox_takes_text_vectors_and_spans::rdma_get;
    using detail::mailbox_takes_text_vectors_and_spans::rdma_put;
    using detail::mailbox_takes_text_vectors_and_spans::recv;
    using detail::mailbox_takes_text_vectors_and_spans::send;
    using detail::mailbox_takes_text_vectors_and_spans::ssend;

    /// On the scheduler that runs on this thread. Throws `errc::invalid_argument` where none does.
    explicit mailbox(const mailbox_options& options = {}) : mailbox(detail::running_scheduler(), options) {}
    /// Without peers: see `attach`.
    explicit mailbox(scheduler& owner, const mailbox_options& options = {})
        : state_(std::make_unique<state>(owner, options)) {}

    /// Takes an endpoint over, with the messages that wait in it and the sends that are under way; the name it has here.
    /// Its grant to the peer stays that of its own options; `lent_bytes` is the mailbox's from here on. An operation of the
    /// endpoint that has not begun may begin later: it is one of the same peer, and ends with the name that the peer has here. So does a receive
    /// that a message has met and that is being filled. Throws `errc::invalid_argument` when a probe of it is pending, or a receive that no
    /// message has met (with `provider_matched`: one that was posted with the link), or it belongs to another scheduler; `errc::closed` when the mailbox
    /// was closed.
    peer_id attach(endpoint<T, P>&& peer) { return state_->attach(peer.state_); }

    /// Forgets a peer: ends its link now, everything pending on it with `errc::closed`, and drops its messages that were not
    /// received. Its id may be given to another. Throws `errc::invalid_argument` when there is no such peer.
    void remove(peer_id peer) { state_->remove(peer); }

    /// Awaitable.
    /// Completes: when the message's memory is the caller's again, as `endpoint::send`.
    /// Buffers: borrowed until then. Text, or a vector, array or span of trivially copyable elements; several with `gather`, a
    ///     value with `bytes_of`.
    /// Concurrency: any number at a time; messages to one peer match in the order in which their sends began.
    /// Errors: `errc::closed`, `errc::peer_lost`, `errc::message_too_long`; `errc::invalid_argument` when there is no such peer: when
    ///     this was called it had been removed, or never was.
    /// Cancellation: as `endpoint::send`.
    /// Example:
    ///     co_await peers.send(worker, text, 7);
    template <class Buffers = const_buffers>
        requires detail::sendable<Buffers>
    [[nodiscard]] detail::operation_on<send_operation<connection_type>, Buffers>
    send(peer_id peer, Buffers&& from, tag_type tag = 0) noexcept {
        return {way_to(peer), detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag, false};
    }

    /// Awaitable.
    /// Completes: when the peer has matched the message with a receive, and its memory is the caller's again.
    /// Buffers: borrowed until then.
    /// Concurrency: as `send`.
    /// Errors: as `send`; `errc::unsupported` as `endpoint::ssend`.
    /// Cancellation: at any time; whether the peer still received it is then unknown.
    /// Example:
    ///     co_await peers.ssend(worker, text, 7);
    template <class Buffers = const_buffers>
        requires detail::sendable<Buffers>
    [[nodiscard]] detail::operation_on<send_operation<connection_type>, Buffers>
    ssend(peer_id peer, Buffers&& from, tag_type tag = 0) noexcept {
        return {way_to(peer), detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag, true};
    }

    /// Awaitable.
    /// Ends with the message's length, tag and source.
    /// Completes: when a message that `wanted` accepts, from `source` or from any, is in the buffer.
    /// Buffers: borrowed until then, and as `send`, but not const; several with `scatter`, filled in order.
    /// Concurrency: any number at a time; they match in the order in which they began.
    /// Errors: `errc::truncated` as `endpoint::recv`, the buffer included; `errc::peer_canceled`, `errc::peer_lost`, `errc::protocol_violation`
    ///     when that happened to the message's peer before all of it had come. From one source: `errc::closed`, `errc::peer_lost` when it is
    ///     closed and its messages are used up, `errc::invalid_argument` when there is no such peer. From any: `errc::closed` when the mailbox is closed.
    /// Cancellation: at any time. A message of which a part had arrived is lost.
    /// Example:
    ///     auto got = co_await peers.recv(buffer);
    ///     co_await peers.send(got.source, std::span(buffer).first(got.bytes), got.tag);
    template <class Buffers = mutable_buffers>
        requires detail::receivable<Buffers>
    [[nodiscard]] receive_operation<state> recv(Buffers&& into, tag_match wanted = any_tag,
                                                peer_id source = any_source) noexcept {
        return {*state_, detail::as_buffers<mutable_buffers>(static_cast<Buffers&&>(into)), wanted, source};
    }

    /// The same; if it is canceled, the message that it would have taken is dropped when it comes, as `endpoint::recv` describes.
    template <class Buffers = mutable_buffers>
        requires detail::receivable<Buffers>
    [[nodiscard]] receive_operation<state> recv(Buffers&& into, tag_match wanted, peer_id source,
                                                discard_if_canceled_t) noexcept {
        return detail::discarding(recv(static_cast<Buffers&&>(into), wanted, source));
    }

    /// Drops the messages from `source` or from any that were not received yet and that `wanted` accepts, as `endpoint::discard`.
    std::size_t discard(tag_match wanted = any_tag, peer_id source = any_source) {
        return state_->mailbox().discard(source, wanted);
    }

    /// Awaitable.
    /// Ends with a `message` that is read where it lies.
    /// Completes: when a message that `wanted` accepts, from `source` or from any, is there.
    /// Buffers: the toolkit's, until the `message` is destroyed; holding many stops the peer.
    /// Concurrency: as `recv`, and in one order with it.
    /// Errors: as `recv`; `errc::truncated` above `mailbox_options::lent_bytes`, unless the message has come in one piece, or was stored whole:
    ///     one that has memory already is accepted at any size.
    /// Cancellation: as `recv`.
    /// Example:
    ///     rdmacoro::message m = co_await peers.recv_lent();
    [[nodiscard]] lent_receive_operation<state> recv_lent(tag_match wanted = any_tag,
                                                          peer_id source = any_source) noexcept {
        return {*state_, wanted, source};
    }
    /// The same; if it is canceled, its message is dropped, as for `recv`.
    [[nodiscard]] lent_receive_operation<state> recv_lent(tag_match wanted, peer_id source,
                                                          discard_if_canceled_t) noexcept {
        return detail::discarding(recv_lent(wanted, source));
    }

    /// Awaitable.
    /// Ends with the length, tag and source of a message that waits; the message stays.
    /// Completes: when a message that `wanted` accepts has begun to arrive and no receive was posted for it.
    /// Buffers: none.
    /// Concurrency: any number at a time. Another receive may take the message first.
    /// Errors: as `recv`, without the errors of the message itself.
    /// Cancellation: at any time.
    /// Example:
    ///     auto found = co_await peers.probe();
    ///     std::vector<std::byte> buffer(found.bytes);
    ///     co_await peers.recv(buffer, found.tag, found.source);
    [[nodiscard]] probe_operation<state> probe(tag_match wanted = any_tag,
                                               peer_id source = any_source) noexcept {
        return {*state_, wanted, source};
    }

    /// Awaitable.
    /// Completes: when `into` holds the peer's bytes. `there.length` equals its length in bytes.
    /// Buffers: as `endpoint::rdma_get`.
    /// Concurrency: any number at a time, in no order.
    /// Errors: as `endpoint::rdma_get`. The call itself throws `errc::invalid_argument` when there is no such peer.
    /// Cancellation: as `endpoint::rdma_get`: not over verbs and libfabric.
    /// Example:
    ///     co_await peers.rdma_get(worker, region_of_worker, buffer);
    template <class Bytes = std::span<std::byte>>
        requires detail::one_piece_to_write<Bytes>
    [[nodiscard]] auto rdma_get(peer_id peer, const remote_region& there, Bytes&& into)
        requires one_sided_link<typename connection_type::link_type>
    {
        const std::span<std::byte> here =
            detail::as_buffers<std::span<std::byte>>(static_cast<Bytes&&>(into));
        const detail::way<connection_type> via = state_->at(peer);
        return one_sided_operation<typename connection_type::link_type>(via, there, here, true);
    }

    /// Awaitable.
    /// Completes: when the bytes are in the peer's memory, visible to it. `there.length` equals their number.
    /// Buffers: as `endpoint::rdma_put`.
    /// Concurrency: any number at a time, in no order.
    /// Errors: as `rdma_get`.
    /// Cancellation: as `rdma_get`; how much was written is then unknown.
    /// Example:
    ///     co_await peers.rdma_put(worker, buffer, region_of_worker);
    template <class Bytes = std::span<const std::byte>>
        requires detail::one_piece_to_read<Bytes>
    [[nodiscard]] auto rdma_put(peer_id peer, Bytes&& bytes, const remote_region& there)
        requires one_sided_link<typename connection_type::link_type>
    {
        const std::span<const std::byte> from =
            detail::as_buffers<std::span<const std::byte>>(static_cast<Bytes&&>(bytes));
        const std::span<std::byte> here(const_cast<std::byte*>(from.data()), from.size());
        using operation = one_sided_operation<typename connection_type::link_type>;
        return detail::operation_on<operation, Bytes>(detail::way<connection_type>(state_->at(peer)), there,
                                                      here, false);
    }

    /// Awaitable.
    /// Completes: when everything sent to this peer before has reached its mailbox and the link is closed. Its messages
    ///     that wait can still be received; `remove` gives the peer's id back.
    /// Buffers: none.
    /// Concurrency: any number, as `endpoint::close`; also beside `close()`.
    /// Errors: none: a link that is down already is closed. The call itself throws `errc::invalid_argument` when there is no
    ///     such peer.
    /// Cancellation: closes at once; sent messages may be lost. Use it with `timeout`.
    /// Example:
    ///     co_await peers.close(worker);
    [[nodiscard]] close_operation close(peer_id peer) { return close_operation(state_->at(peer)); }

    /// Awaitable.
    /// Completes: when every peer is closed, all concurrently, as by `close(peer)`. No peer can be attached from its
    ///     beginning on; receives from any source end with `errc::closed` at its end, later receives once the stored
    ///     messages are used up.
    /// Buffers: none.
    /// Concurrency: once. The mailbox must stay until it has ended.
    /// Errors: none.
    /// Cancellation: closes all at once; sent messages may be lost. Use it with `timeout`.
    /// Example:
    ///     co_await peers.close();
    [[nodiscard]] task<> close() { return detail::mailbox_state_base::close_all<>(state_.operator->()); }

    /// Awaitable.
    /// Ends with a peer that has no link any more, and why: `errc::peer_lost`; `errc::closed` after a `close` of either side; the error that
    ///     ended it. Each end is told of once, in their order; those that happen meanwhile wait, without memory of their own.
    /// Completes: when there is one. Messages of that peer that have come can still be received; `remove` gives its id back.
    /// Buffers: none.
    /// Concurrency: any number; each peer is told of to one of them, the one that has waited longest.
    /// Errors: `errc::closed` when the whole mailbox is closed and each peer was told of. A peer that is removed is not told of any more,
    ///     but for a `gone` that has ended and is not resumed yet: where other coroutines remove peers, too, its id may be none's by then, or another's.
    /// Cancellation: at any time; no peer is lost.
    /// Example:
    ///     for (;;) {
    ///         auto [worker, why] = co_await peers.gone();
    ///         peers.remove(worker);
    ///     }
    [[nodiscard]] gone_operation gone() noexcept {
        const detail::way<state> of = *state_;
        return gone_operation(of.owner(), of.to());
    }

    /// Peers that were attached and not removed, closed ones included.
    [[nodiscard]] std::size_t size() const noexcept { return state_ ? state_->count() : 0; }
    /// Whether messages can be sent to it and received from it. False for a peer that was removed.
    [[nodiscard]] bool is_open(peer_id peer) const noexcept {
        const connection_type* found = state_ ? state_->find(peer) : nullptr;
        return found != nullptr && found->is_open();
    }
    /// The counts of the connection to that peer.
    [[nodiscard]] const metrics& counts(peer_id peer) const { return state_->at(peer).counts(); }
    /// The capabilities of the link to that peer.
    [[nodiscard]] const capabilities& link_capabilities(peer_id peer) const {
        return state_->at(peer).link_capabilities();
    }
    /// The peer's address or process, for texts.
    [[nodiscard]] std::string peer_name(peer_id peer) const { return state_->at(peer).peer_name(); }
    [[nodiscard]] scheduler& owner() { return state_->mailbox().owner(); }

    /// For code that builds on mailboxes.
    [[nodiscard]] connection_type& connection(peer_id peer) { return state_->at(peer); }
    [[nodiscard]] detail::mailbox_base& base() { return state_->mailbox(); }

private:
    /// For sends, which end with an error if there is no such peer.
    [[nodiscard]] detail::way<connection_type> way_to(peer_id peer) const noexcept {
        connection_type* const found = state_ ? state_->find(peer) : nullptr;
        return found != nullptr ? detail::way<connection_type>(*found) : detail::way<connection_type>();
    }

    detail::mailbox_owner<state> state_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/messaging/impl/mailbox.ipp>
#endif
