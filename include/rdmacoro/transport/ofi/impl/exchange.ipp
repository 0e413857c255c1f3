// How a connection of a libfabric domain opens: by an exchange of connect_info over TCP.
//
// Both sides send a connect_info and, when they have read the other's, one more byte: welcome, or the reason of a refusal. Then
// each sends a first frame by the provider, the connecting side before the other; a side that has received one may send messages.
// The socket stays open: its end is the end of the link, so that the death of an idle peer is noticed.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <unistd.h>

namespace rdmacoro::detail::fabric {

RDMACORO_COLD void session::become_ready() noexcept {
    phase_ = phase::ready;
    no_longer_pending();
    engine_.begin_heartbeat();
    timer_.cancel();
    awaited_.end();
    mark_work();
    if (opener* waiter = std::exchange(opener_, nullptr)) waiter->opened(*this, {});
}

RDMACORO_COLD void session::fail_opening(const opening_outcome& how) noexcept {
    opener* const waiter = std::exchange(opener_, nullptr);
    phase_ = phase::draining;
    let_go(false);
    owned_ = false;
    if (waiter != nullptr) waiter->opened(*this, how);
}

RDMACORO_COLD connect_info session::own_connect_info() const noexcept {
    device& d = engine_.device();
    connect_info own;
    own.slot_bytes = static_cast<std::uint32_t>(engine_.slots().slot_bytes());
    own.credits = std::max(given_, connect_info::least_credits);
    own.flags = engine_.serves() ? connect_info::served : 0;
    own.address_format = d.address_format();
    own.link = number_;
    own.host = engine_.host();
    own.nonce = d.nonce();
    own.address_bytes = static_cast<std::uint32_t>(d.own_address().size());
    own.name_provider(d.profile().provider);
    std::memcpy(own.address.data(), d.own_address().data(), d.own_address().size());
    return own;
}

/// Whether the peer fits this side. Precondition: the connect_info is `good()`, or of another version.
RDMACORO_COLD verdict session::judge_peer(const connect_info& theirs) noexcept {
    if (!engine_.has_endpoint()) return verdict::no_room;
    connect_limits own = engine_.device().measure();
    own.served = engine_.serves();
    own.host = engine_.host();
    return fabric::judge(theirs, own);
}

/// Inserts a peer that fits into the address vector, or returns the reason of a refusal.
RDMACORO_COLD verdict session::take_peer(const connect_info& theirs) noexcept {
    device& d = engine_.device();
    if (const verdict how = d.insert(theirs.address.data(), theirs.address_bytes, theirs.nonce, to_);
        how != verdict::welcome)
        return how;
    if (accepts_) {
        if (const verdict how = hold_resources(); how != verdict::welcome) {
            d.release(std::exchange(to_, FI_ADDR_UNSPEC));
            return how;
        }
    }
    peer_number_ = theirs.link;
    window_.open_sending(theirs.credits);
    window_.open_receiving(given_);
    set_capabilities(theirs.slot_bytes);
    return verdict::welcome;
}

/// The side that accepts does it when it knows that a peer is there.
RDMACORO_COLD verdict session::hold_resources() noexcept {
    given_ = engine_.credits_for_one();
    if (given_ == 0) return verdict::no_receives;
    if (engine_.hold_resources(given_) != 0) return verdict::no_room;
    holds_resources_ = true;
    if (pending_) engine_.pending_holds(given_);
    return verdict::welcome;
}

RDMACORO_COLD void session::set_capabilities(std::size_t peer_slot_bytes) noexcept {
    const device& d = engine_.device();
    const std::size_t longest = std::min(peer_slot_bytes, engine_.slots().slot_bytes()) - frame_bytes;
    const ofi_profile& p = d.profile();
    capabilities_.inline_bytes =
        d.inject_limit() > frame_bytes ? std::min(d.inject_limit() - frame_bytes, longest) : 0;
    capabilities_.max_message = longest;
    capabilities_.eager_bytes = p.eager_bytes != 0 ? std::min(p.eager_bytes, longest) : longest;
    capabilities_.segment_bytes = longest;
    capabilities_.get_alignment = p.get_alignment;
    capabilities_.one_sided = true;
    capabilities_.one_sided_offloaded = p.offloaded;
    capabilities_.needs_registration = engine_.memory().needs_local();
    capabilities_.atomics = d.atomics();
    capabilities_.put_before_send = d.orders_send_after_write() && !engine_.serves();
    capabilities_.revokes_at_once = false;
    capabilities_.ends_on_refusal = !engine_.serves();
    capabilities_.rendezvous_bytes = p.rendezvous_bytes;
    capabilities_.get_bytes = engine_.options().get_bytes != 0 ? engine_.options().get_bytes : p.get_bytes;
}

RDMACORO_COLD void session::connect(const inet_endpoint& to, opener& waiter) noexcept {
    int refused = 0;
    const int fd = connect_for_exchange(to, refused);
    peer_ = to;
    if (refused != 0) {
        opener_ = &waiter;
        return fail_opening({errc::connection_refused, refused, "connect"});
    }
    if (fd >= 0) {
        if (const verdict how = hold_resources(); how != verdict::welcome) {
            ::close(fd);
            opener_ = &waiter;
            return fail_opening({errc::no_resources, 0, "make room", how});
        }
    }
    open_by(fd, waiter);
    if (socket_.exchanges()) socket_.exchange().connects();
}
RDMACORO_COLD void session::accept(int fd, opener& waiter) noexcept {
    accepts_ = true;
    open_by(fd, waiter);
}

/// Takes the socket over. The two sides do the same from here on.
RDMACORO_COLD void session::open_by(int fd, opener& waiter) noexcept {
    opener_ = &waiter;
    awaited_.begin();
    timer_.set(engine_.options().handshake_timeout);
    const char* step = socket_.open(fd, peer_, engine_.options().peer_timeout);
    if (step == nullptr) {
        // This side decides what it gives a peer when the connect_info shows that it is one.
        if (accepts_) {
            socket_.exchange().waits();
        } else {
            own_connect_info().store(socket_.exchange().own_connect_info());
        }
        step = socket_.watch();
    }
    if (step != nullptr) fail_opening({errc::no_resources, errno, step});
}

RDMACORO_COLD void session::on_socket() noexcept {
    if (phase_ == phase::opening && !introduced_) return socket_.go_on(*this);
    if (phase_ == phase::opening) return fail_opening({errc::peer_lost, 0, "greet"});
    // Nothing is sent over the socket any more: any event means that the peer is dead, or has received the last frame.
    socket_.unwatch();
    peer_hung_up_ = true;
    if (phase_ != phase::ready || failure_) return;
    timer_.set(engine::grace);  // its last frames may still be under way
    mark_work();
}

/// How opening ends when this side or the other refuses.
[[nodiscard]] RDMACORO_DECL opening_outcome outcome_of(verdict answer) noexcept {
    return {answer == verdict::other_version                               ? errc::version_mismatch
            : answer == verdict::no_room || answer == verdict::no_receives ? errc::no_resources
                                                                           : errc::connection_refused,
            0, "greet", answer};
}

RDMACORO_COLD void session::exchange_failed(const exchange_failure& how) noexcept {
    fail_opening({how.code, how.system, how.step});
}

/// False: `fail_opening` was called, or an accepted client waits for its turn.
RDMACORO_COLD bool session::take_connect_info() noexcept {
    connect_info theirs;
    theirs.load(socket_.exchange().connect_info());
    if (theirs.magic != connect_info::right_magic ||
        (theirs.version == connect_info::own_version && !theirs.good())) {
        fail_opening({errc::protocol_violation, 0, "greet"});
        return false;
    }
    verdict own = judge_peer(theirs);
    if (own == verdict::welcome && accepts_ && !engine_.admit_pending(*this)) {
        socket_.unwatch();
        return false;
    }
    if (own == verdict::welcome) own = take_peer(theirs);
    if (accepts_) own_connect_info().store(socket_.exchange().own_connect_info());
    if (!socket_.answer(static_cast<std::byte>(own))) {
        const exchange_failure how = socket_.exchange().failure();
        exchange_failed(how);
        return false;
    }
    if (own != verdict::welcome) fail_opening(outcome_of(own));
    return own == verdict::welcome;
}

RDMACORO_COLD void session::pending_admitted() noexcept {
    if (take_connect_info()) socket_.go_on(*this);
}

RDMACORO_COLD void session::no_longer_pending() noexcept {
    static_cast<list_node<pending_tag>&>(*this).unlink();
    if (std::exchange(pending_, false)) engine_.pending_over(*this, holds_resources_ ? given_ : 0);
}

RDMACORO_COLD void session::exchanged(std::byte answer) noexcept {
    const auto theirs = static_cast<verdict>(answer);
    if (theirs != verdict::welcome) return fail_opening(outcome_of(theirs));
    introduced_ = true;
    greet();
}

/// The first frames: the connecting side sends its own, the other answers. The side that receives one knows that frames arrive,
/// and that the provider has done its work for a first message.
RDMACORO_COLD void session::greet() noexcept {
    if (!introduced_ || phase_ != phase::opening) return;
    if (!failure_ && !sent_hello_ && (!accepts_ || got_hello_)) sent_hello_ = send_control(frame_kind::hello);
    if (failure_) return fail_opening({errc::connection_refused, 0, "greet", verdict::bad_address});
    if (sent_hello_ && got_hello_) become_ready();
}

}  // namespace rdmacoro::detail::fabric
