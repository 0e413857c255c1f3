// How a connection of a libfabric domain opens: by an exchange of cards over TCP. Included by engine.hpp alone.
//
// Both sides send a card and, when they have read the other's, one byte more: welcome, or why not. Then each sends a first
// frame by the provider, the side that connects before the other; who has got one may send messages. The socket stays open: its end is the end of the link, so that the death of an idle peer is noticed.
#pragma once

#include <rdmacoro/transport/detail/card_exchange.hpp>
#include <rdmacoro/transport/ofi/engine.hpp>

namespace rdmacoro::detail::fabric {

/// The socket's side of opening.
struct exchange_state : card_exchange<card::wire_bytes> {};

inline void core::become_ready() noexcept {
    phase_ = phase::ready;
    engine_.owner().remove_timer(*this);
    no_longer_awaited();
    mark_work();
    if (opener* who = std::exchange(opener_, nullptr)) who->opened(*this, {});
}

inline void core::fail_opening(const opening_outcome& how) noexcept {
    opener* who = std::exchange(opener_, nullptr);
    phase_ = phase::draining;
    let_go(false);
    owned_ = false;
    if (who != nullptr) who->opened(*this, how);
}

inline card core::own_card() const noexcept {
    device& d = engine_.device();
    card own;
    own.slot_bytes = static_cast<std::uint32_t>(engine_.slots().slot_bytes());
    own.credits = engine_.options().credits;
    own.flags = engine_.serves() ? card::served : 0;
    own.address_format = d.address_format();
    own.link = number_;
    own.host = engine_.host();
    own.address_bytes = static_cast<std::uint32_t>(d.own_address().size());
    own.name_provider(d.profile().provider);
    std::memcpy(own.address.data(), d.own_address().data(), d.own_address().size());
    return own;
}

/// Makes the peer known, or says why not. Precondition: the card is `good()`.
inline verdict core::judge_card(const card& said) noexcept {
    if (!engine_.has_endpoint()) return verdict::no_room;
    device& d = engine_.device();
    card_measure own = d.measure();
    own.served = engine_.serves();
    own.host = engine_.host();
    if (const verdict how = fabric::judge(said, own); how != verdict::welcome) return how;
    if (!d.insert(said.address.data(), said.address_bytes, to_)) return verdict::bad_address;
    if (engine_.hold_resources(*this) != 0) {
        d.release(to_);
        return verdict::no_room;
    }
    holds_resources_ = true;
    peer_number_ = said.link;
    credits_ = most_credits_ = said.credits;
    granted_ = engine_.options().credits;
    const std::size_t longest =
        std::min<std::size_t>(said.slot_bytes, engine_.slots().slot_bytes()) - frame_bytes;
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
    return verdict::welcome;
}

inline void core::connect(const inet_endpoint& to, opener& who) noexcept {
    int refused = 0;
    const int fd = connect_for_cards(to, refused);
    peer_ = to;
    if (refused != 0) {
        opener_ = &who;
        return fail_opening({errc::connection_refused, refused, "connect"});
    }
    open_by(fd, who);
    if (exchange_ != nullptr) exchange_->connects();
}
inline void core::accept(int fd, opener& who) noexcept {
    accepts_ = true;
    open_by(fd, who);
}

/// Takes the socket over; the two sides do the same.
inline void core::open_by(int fd, opener& who) noexcept {
    opener_ = &who;
    awaited_ = true;
    engine_.awaits();
    set_timer(engine_.options().handshake_timeout);
    socket_ = fd;
    if (fd < 0) return fail_opening({errc::no_resources, errno, "open a socket"});
    set_card_options(fd);
    if (peer_.bytes == 0) peer_ = inet_endpoint::peer(fd);
    exchange_.reset(new (std::nothrow) exchange_state);
    if (exchange_ == nullptr) return fail_opening({errc::no_resources, ENOMEM, "make room"});
    own_card().store(exchange_->own_card());
    if (!engine_.watch(*this, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP))
        fail_opening({errc::no_resources, errno, "watch a socket"});
}

inline void core::on_socket(std::uint32_t) noexcept {
    if (phase_ == phase::opening && !introduced_) return exchange_step();
    if (phase_ == phase::opening) return fail_opening({errc::peer_lost, 0, "greet"});
    // Nothing is said there any more: whatever it tells, the peer has gone, or has heard our last frame.
    engine_.unwatch(*this);
    peer_hung_up_ = true;
    if (phase_ != phase::ready || failure_) return;
    set_timer(engine::grace);  // its last frames may still be on their way
    mark_work();
}

inline void core::exchange_step() noexcept {
    for (;;) {
        switch (exchange_->go_on(socket_)) {
            case exchange_state::step::wait:
                static_cast<void>(engine_.watch(*this, socket_, exchange_->wanted()));
                return;
            case exchange_state::step::card:
                if (!take_card()) return;
                break;
            case exchange_state::step::done: return exchanged();
            case exchange_state::step::failed: {
                const auto how = exchange_->failure();
                return fail_opening({how.code, how.system, how.step});
            }
        }
    }
}

/// How opening ends with a verdict of this side's or the other's that is no welcome.
[[nodiscard]] inline opening_outcome outcome_of(verdict said) noexcept {
    return {said == verdict::other_version ? errc::version_mismatch
            : said == verdict::no_room     ? errc::no_resources
                                           : errc::connection_refused,
            0, "greet", said};
}

/// False: `fail_opening` was called.
inline bool core::take_card() noexcept {
    const auto refuse = [this](const opening_outcome& how) noexcept {
        fail_opening(how);
        return false;
    };
    card said;
    said.load(exchange_->card());
    if (said.magic != card::right_magic || (said.version == card::own_version && !said.good()))
        return refuse({errc::protocol_violation, 0, "greet"});
    const verdict own = judge_card(said);
    if (!exchange_->answer(socket_, static_cast<std::byte>(own))) {
        const auto how = exchange_->failure();
        return refuse({how.code, how.system, how.step});
    }
    return own == verdict::welcome || refuse(outcome_of(own));
}

inline void core::exchanged() noexcept {
    const auto heard = static_cast<verdict>(exchange_->answered());
    if (heard != verdict::welcome) return fail_opening(outcome_of(heard));
    static_cast<void>(engine_.watch(*this, socket_, EPOLLIN | EPOLLRDHUP));
    exchange_.reset();
    introduced_ = true;
    greet();
}

/// The first frames: the side that connects sends its own, the other answers. Who has got one knows that the way is open; and
/// what a provider does for a first message is done.
inline void core::greet() noexcept {
    if (!introduced_ || phase_ != phase::opening) return;
    if (!failure_ && !said_hello_ && (!accepts_ || got_hello_))
        said_hello_ = send_control(frame_kind::hello, 0, [](std::byte*) noexcept {});
    if (failure_) return fail_opening({errc::connection_refused, 0, "greet", verdict::bad_address});
    if (said_hello_ && got_hello_) become_ready();
}

}  // namespace rdmacoro::detail::fabric
