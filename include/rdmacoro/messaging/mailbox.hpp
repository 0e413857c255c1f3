// mailbox: many peers, and receives from any of them.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace rdmacoro {

namespace detail {

/// What a mailbox's operations refer to: the peers and what they share. A peer's id is its place in the list; the place
/// of one that was removed is used again.
template <class T, class P>
class mailbox_core {
public:
    using connection_type = connection<T, P>;

    mailbox_core(scheduler& owner, const mailbox_options& options) : box_(owner, options, true) {}
    mailbox_core(const mailbox_core&) = delete;
    mailbox_core& operator=(const mailbox_core&) = delete;
    ~mailbox_core() {
        peers_.clear();
        end_receives_from_any();
    }

    [[nodiscard]] mailbox_base& box() noexcept { return box_; }

    /// Why no message can come from `source` any more; nothing while one can.
    [[nodiscard]] std::error_code why_not_from(peer_id source) const noexcept {
        if (source == any_source) return closed_ ? make_error_code(errc::closed) : std::error_code{};
        const connection_type* from = find(source);
        if (from == nullptr) return make_error_code(errc::invalid_argument);
        return from->why_not_from(source);
    }

    /// One try to find a message from `source`. For any source the links take turns, up to the first that moved.
    void poll_for(peer_id source) noexcept {
        if (source != any_source) {
            find(source)->poll(1);
            return;
        }
        for (std::size_t n = peers_.size(); n > 0; --n) {
            if (++turn_ >= peers_.size()) turn_ = 0;
            if (peers_[turn_] != nullptr && peers_[turn_]->link.poll(1) != 0) return;
        }
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
    void receive(receive_request& r) noexcept {
        if (r.source_ != any_source) {
            find(r.source_)->receive(r);
        } else {
            box_.matching().post(r);
            look_for(any_source);
        }
    }
    void look_for(peer_id source) noexcept {
        for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
            if ((source == any_source || source == peer) && peers_[peer] != nullptr)
                peers_[peer]->link.look_for(source);
        }
    }

    /// Takes `made` over; leaves it alone when it throws.
    [[nodiscard]] peer_id attach(std::unique_ptr<endpoint_core<T, P>>& made) {
        if (!made || &made->link.box().owner() != &box_.owner()) {
            throw error(errc::invalid_argument,
                        "mailbox::attach: not an endpoint of this mailbox's scheduler");
        }
        if (made->box->matching().posted() != 0 || made->box->matching().has_probes() ||
            made->link.has_receives()) {
            throw error(errc::invalid_argument,
                        "mailbox::attach: the endpoint has a pending receive or probe");
        }
        if (closed_ || closing_) throw error(errc::closed, "mailbox::attach: the mailbox is closed");
        std::size_t place = 0;
        if (count_ == peers_.size()) {
            place = count_;
            peers_.emplace_back();
        } else {
            while (peers_[place] != nullptr) ++place;
        }
        const auto id = static_cast<peer_id>(place);
        connection_type& link = made->link;
        peers_[place] = std::move(made);
        ++count_;
        link.move_to(box_, id);
        peers_[place]->box.reset();
        return id;
    }

    void remove(peer_id peer) {
        connection_type& gone = at(peer);
        gone.close(make_error_code(errc::closed));
        for (unexpected_message* m = box_.matching().oldest(); m != nullptr;) {
            unexpected_message* after = box_.matching().after(*m);
            if (m->source == peer) gone.withdraw(*m);
            m = after;
        }
        peers_[peer].reset();
        --count_;
    }

    /// Throws when there is no such peer.
    [[nodiscard]] connection_type& at(peer_id peer) {
        connection_type* found = find(peer);
        if (found == nullptr) throw_error(errc::invalid_argument, "the mailbox has no such peer");
        return *found;
    }
    [[nodiscard]] connection_type* find(peer_id peer) noexcept {
        return peer < peers_.size() && peers_[peer] != nullptr ? &peers_[peer]->link : nullptr;
    }
    [[nodiscard]] const connection_type* find(peer_id peer) const noexcept {
        return peer < peers_.size() && peers_[peer] != nullptr ? &peers_[peer]->link : nullptr;
    }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }

    /// Closes every peer, beside each other. `self` must stay until it has ended.
    static task<> close_all(mailbox_core* self) {
        self->closing_ = true;
        task_group closing;
        for (std::size_t peer = 0; peer < self->peers_.size(); ++peer) {
            closing.spawn(close_one, self, static_cast<peer_id>(peer));
        }
        result<void> outcome = co_await as_result(closing.join());
        self->closed_ = true;
        self->end_receives_from_any();
        outcome.value();
    }

private:
    static task<> close_one(mailbox_core* self, peer_id peer) {
        connection_type* link = self->find(peer);
        if (link == nullptr) co_return;
        close_operation<connection_type> closing(*link);
        co_await closing;
    }

    void end_receives_from_any() noexcept {
        const std::error_code why = make_error_code(errc::closed);
        box_.matching().take_all_of(
            any_source, [&](receive_request& r) noexcept { r.finish(why); },
            [&](probe_request& p) noexcept { p.finish(why); });
    }

    mailbox_base box_;
    std::vector<std::unique_ptr<endpoint_core<T, P>>> peers_;
    std::size_t count_ = 0;
    std::size_t turn_ = 0;
    bool closing_ = false;
    bool closed_ = false;
};

}  // namespace detail

/// Many peers over transport `T`, and receives from one of them or from any. Peers come by `attach` and are named by a
/// `peer_id`; what was sent by one peer is received in the order sent, and an any-source receive takes its turn among the
/// others. Movable; operations refer to what it holds, not to it. Destroying it ends all links at once and everything
/// pending with `errc::closed`; `close` first to be sure that what was sent arrives. Only for its scheduler's thread.
///
/// A receive or probe from any source waits for peers that are yet to be attached, too: it ends when a message comes, or
/// when the whole mailbox is closed, not when the last peer goes.
template <transport T, protocol_list P = default_protocols<T>>
class mailbox {
    using core = detail::mailbox_core<T, P>;

public:
    using transport_type = T;
    using protocols_type = P;
    using connection_type = detail::connection<T, P>;

    /// On the scheduler that runs on this thread. Throws `errc::invalid_argument` where none does.
    explicit mailbox(const mailbox_options& options = {}) : mailbox(detail::running_scheduler(), options) {}
    explicit mailbox(scheduler& owner, const mailbox_options& options = {})
        : core_(std::make_unique<core>(owner, options)) {}

    /// Takes an endpoint over, with the messages that wait in it and the sends that are under way; the name it has here.
    /// What it granted its peer stays as its own options said; `lent_bytes` is the mailbox's from here on. Throws
    /// `errc::invalid_argument` when a receive or probe of it is pending, or it belongs to another scheduler;
    /// `errc::closed` when the mailbox was closed.
    peer_id attach(endpoint<T, P>&& peer) { return core_->attach(peer.core_); }

    /// Forgets a peer: ends its link now, everything pending on it with `errc::closed`, and drops its messages that nobody
    /// has received. Its id may be given to another. Throws `errc::invalid_argument` when there is no such peer.
    void remove(peer_id peer) { core_->remove(peer); }

    /// Awaitable.
    /// Completes: when the message's memory is the caller's again, as `endpoint::send`.
    /// Buffers: borrowed until then. One span, or several with `gather`.
    /// Concurrency: any number at a time; messages to one peer match in the order in which their sends began.
    /// Errors: `errc::closed`, `errc::peer_lost`, `errc::message_too_long`. The call itself throws
    ///     `errc::invalid_argument` when there is no such peer.
    /// Cancellation: as `endpoint::send`.
    /// Example:
    ///     co_await peers.send(worker, std::as_bytes(std::span(text)), 7);
    template <std::convertible_to<const_buffers> Buffers = const_buffers>
    [[nodiscard]] send_operation<connection_type> send(peer_id peer, Buffers&& from, tag_type tag = 0) {
        return {core_->at(peer), static_cast<Buffers&&>(from), tag, false};
    }

    /// Awaitable.
    /// Completes: when the peer has matched the message with a receive, and its memory is the caller's again.
    /// Buffers: borrowed until then.
    /// Concurrency: as `send`.
    /// Errors: as `send`.
    /// Cancellation: at any time; whether the peer still received it is then unknown.
    /// Example:
    ///     co_await peers.ssend(worker, std::as_bytes(std::span(text)), 7);
    template <std::convertible_to<const_buffers> Buffers = const_buffers>
    [[nodiscard]] send_operation<connection_type> ssend(peer_id peer, Buffers&& from, tag_type tag = 0) {
        return {core_->at(peer), static_cast<Buffers&&>(from), tag, true};
    }

    /// Awaitable.
    /// Ends with the message's length, tag and source.
    /// Completes: when a message that `wanted` accepts, from `source` or from anybody, is in the buffer.
    /// Buffers: borrowed until then. One span, or several with `scatter`, filled in order.
    /// Concurrency: any number at a time; they match in the order in which they began.
    /// Errors: `errc::truncated` as `endpoint::recv`; `errc::peer_canceled`, `errc::protocol_violation` when that happened to
    ///     the message's peer. From one source: `errc::closed`, `errc::peer_lost` when it is gone and its messages are used
    ///     up, `errc::invalid_argument` when there is no such peer. From any: `errc::closed` when the mailbox is closed.
    /// Cancellation: at any time. A message of which a part had arrived is lost.
    /// Example:
    ///     auto got = co_await peers.recv(buffer);
    ///     co_await peers.send(got.source, std::span(buffer).first(got.bytes), got.tag);
    template <std::convertible_to<mutable_buffers> Buffers = mutable_buffers>
    [[nodiscard]] receive_operation<core> recv(Buffers&& into, tag_match wanted = any_tag,
                                               peer_id source = any_source) noexcept {
        return {*core_, static_cast<Buffers&&>(into), wanted, source};
    }

    /// Awaitable.
    /// Ends with a `message` that is read where it lies.
    /// Completes: when a message that `wanted` accepts, from `source` or from anybody, is there.
    /// Buffers: the toolkit's, until the `message` goes; holding many holds the peer up.
    /// Concurrency: as `recv`, and in one order with it.
    /// Errors: as `recv`; `errc::truncated` above `mailbox_options::lent_bytes`.
    /// Cancellation: as `recv`.
    /// Example:
    ///     rdmacoro::message m = co_await peers.recv_lent();
    [[nodiscard]] lent_receive_operation<core> recv_lent(tag_match wanted = any_tag,
                                                         peer_id source = any_source) noexcept {
        return {*core_, wanted, source};
    }

    /// Awaitable.
    /// Ends with the length, tag and source of a message that waits; the message stays.
    /// Completes: when a message that `wanted` accepts has begun to arrive and no receive was posted for it.
    /// Buffers: none.
    /// Concurrency: any number at a time. Another receive may take the message first.
    /// Errors: as `recv`, but for those of the message itself.
    /// Cancellation: at any time.
    /// Example:
    ///     auto what = co_await peers.probe();
    ///     std::vector<std::byte> buffer(what.bytes);
    ///     co_await peers.recv(buffer, what.tag, what.source);
    [[nodiscard]] probe_operation<core> probe(tag_match wanted = any_tag,
                                              peer_id source = any_source) noexcept {
        return {*core_, wanted, source};
    }

    /// Awaitable.
    /// Completes: when `into` holds the peer's bytes. `there.length` equals `into.size()`.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time, in no order.
    /// Errors: as `endpoint::rdma_get`. The call itself throws `errc::invalid_argument` when there is no such peer.
    /// Cancellation: at any time.
    /// Example:
    ///     co_await peers.rdma_get(worker, region_of_worker, buffer);
    [[nodiscard]] auto rdma_get(peer_id peer, const remote_region& there, std::span<std::byte> into)
        requires one_sided_link<typename connection_type::link_type>
    {
        return one_sided_operation<typename connection_type::link_type>(core_->at(peer).link(), there, into,
                                                                        true);
    }

    /// Awaitable.
    /// Completes: when the bytes are in the peer's memory, visible to it. `there.length` equals `from.size()`.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time, in no order.
    /// Errors: as `rdma_get`.
    /// Cancellation: at any time; how much was written is then unknown.
    /// Example:
    ///     co_await peers.rdma_put(worker, buffer, region_of_worker);
    [[nodiscard]] auto rdma_put(peer_id peer, std::span<const std::byte> from, const remote_region& there)
        requires one_sided_link<typename connection_type::link_type>
    {
        const std::span<std::byte> here(const_cast<std::byte*>(from.data()), from.size());
        return one_sided_operation<typename connection_type::link_type>(core_->at(peer).link(), there, here,
                                                                        false);
    }

    /// Awaitable.
    /// Completes: when everything sent to this peer before has reached its mailbox and the link is closed. Its messages
    ///     that wait can still be received; `remove` gives the peer's id back.
    /// Buffers: none.
    /// Concurrency: once for each peer.
    /// Errors: none: a link that is down already is closed. The call itself throws `errc::invalid_argument` when there is no
    ///     such peer.
    /// Cancellation: closes at once; what was sent may be lost. Use it with `timeout`.
    /// Example:
    ///     co_await peers.close(worker);
    [[nodiscard]] close_operation<connection_type> close(peer_id peer) {
        return close_operation<connection_type>(core_->at(peer));
    }

    /// Awaitable.
    /// Completes: when every peer is closed as by `close(peer)`, beside each other. No peer can be attached from its
    ///     beginning on; receives from any source end with `errc::closed` at its end, those that come later once the
    ///     messages that wait are used up.
    /// Buffers: none.
    /// Concurrency: once. The mailbox must stay until it has ended.
    /// Errors: none.
    /// Cancellation: closes all at once; what was sent may be lost. Use it with `timeout`.
    /// Example:
    ///     co_await peers.close();
    [[nodiscard]] task<> close() { return core::close_all(core_.get()); }

    /// Peers that were attached and not removed, closed ones included.
    [[nodiscard]] std::size_t size() const noexcept { return core_->count(); }
    /// Whether messages can be sent to it and received from it. False for a peer that was removed.
    [[nodiscard]] bool is_open(peer_id peer) const noexcept {
        const connection_type* found = core_->find(peer);
        return found != nullptr && found->is_open();
    }
    [[nodiscard]] const metrics& counts(peer_id peer) const { return core_->at(peer).counts(); }
    [[nodiscard]] const capabilities& link_capabilities(peer_id peer) {
        return core_->at(peer).link_capabilities();
    }
    [[nodiscard]] std::string peer_name(peer_id peer) const { return core_->at(peer).link().peer_name(); }
    [[nodiscard]] scheduler& owner() noexcept { return core_->box().owner(); }

    /// For those who build on mailboxes.
    [[nodiscard]] connection_type& connection(peer_id peer) { return core_->at(peer); }
    [[nodiscard]] detail::mailbox_base& box() noexcept { return core_->box(); }

private:
    std::unique_ptr<core> core_;
};

}  // namespace rdmacoro
