// Functions of a connection that are not on a short message's path and need its engines' types. Members defined apart
// from their class, so that `extern template` keeps them out of units that do not compile the connection. Included by
// connection.hpp alone.
#pragma once

#include <rdmacoro/protocol/connection.hpp>
#include <rdmacoro/protocol/detail/connection_description.hpp>

namespace rdmacoro::detail {

template <class Transport, class Protocols>
connection<Transport, Protocols>::connection(mailbox_base& box, peer_id source,
                                             typename Transport::connection made, bool answers)
    : connection_base(box, source,
                      {Protocols::fingerprint, &Protocols::text, Protocols::delegates,
                       !Protocols::delegates && !speculates,
                       Protocols::delegates ? nullptr : &Protocols::carries}),
      engines_(*this),
      link_(std::move(made), *this) {
    begin_handshake(link_.capabilities(), answers);
}

template <class Transport, class Protocols>
connection<Transport, Protocols>::~connection() {
    disown();
}

template <class Transport, class Protocols>
bool connection<Transport, Protocols>::has_receives() noexcept {
    if constexpr (delegates) return delegate().has_receives();
    return false;
}

template <class Transport, class Protocols>
bool connection<Transport, Protocols>::forget_receive(receive_request& r) noexcept {
    bool now = true;
    engines_.each([&](auto& engine) noexcept { now = engine.forget_receive(r) && now; });
    ahead_.forget(r);
    if (now && r.block_ != nullptr) message_store::release(*std::exchange(r.block_, nullptr));
    return now;
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::matched(unexpected_message& m, receive_request& r) noexcept {
    engines_.with(m.policy, [&](auto& engine) noexcept { engine.matched(m, r); });
}

template <class Transport, class Protocols>
std::string connection<Transport, Protocols>::peer_name() const {
    return link_.peer_name();
}

template <class Transport, class Protocols>
const capabilities& connection<Transport, Protocols>::capabilities_in_force() const noexcept {
    return link_capabilities();
}

template <class Transport, class Protocols>
post_result connection<Transport, Protocols>::post_kind(std::uint8_t kind, std::uint8_t flags, tag_type tag,
                                                        const const_buffers& payload, send_request& r,
                                                        bool begins) noexcept {
    return post_on_wire(kind, flags, tag, payload, r, begins);
}

template <class Transport, class Protocols>
delivery connection<Transport, Protocols>::begin_payload(const message_header& raw,
                                                         std::size_t bytes) noexcept {
    const wire_header h = wire_header::load(raw);
    delivery answer = delivery::taken;
    if (h.kind == static_cast<std::uint8_t>(control_kind::ahead) && phase_ != phase::opening && !delegates &&
        !speculates) {
        incoming_ = h.kind;
        answer = ahead_.begin_payload(h, bytes);
        header_taken(h);
        return answer;
    }
    const bool known =
        phase_ != phase::opening && engines_.dispatch(h.kind, [&](auto& engine, unsigned kind) noexcept {
            incoming_ = h.kind;
            answer = engine.begin_payload(kind, h, bytes);
        });
    if (!known) return violation();
    let_go();
    if (answer != delivery::defer) header_taken(h);
    return answer;
}

template <class Transport, class Protocols>
std::span<std::byte> connection<Transport, Protocols>::payload_space() noexcept {
    if (incoming_ == static_cast<std::uint8_t>(control_kind::ahead)) return ahead_.payload_space();
    std::span<std::byte> where;
    engines_.dispatch(incoming_, [&](auto& engine, unsigned) noexcept { where = engine.payload_space(); });
    return where;
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::payload_arrived(std::size_t n) noexcept {
    if (incoming_ == static_cast<std::uint8_t>(control_kind::ahead)) {
        ahead_.payload_arrived(n);
        return;
    }
    engines_.dispatch(incoming_, [&](auto& engine, unsigned) noexcept { engine.payload_arrived(n); });
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::on_transmitted(completion& c, std::error_code outcome) noexcept {
    send_request& r = *static_cast<send_request::posted_completion&>(c).self;
    auto& self = *static_cast<connection*>(r.via_);
    if (r.policy_ == ahead_engine::policy) {
        self.ahead_.transmitted(r, outcome);
        return;
    }
    self.engines_.with(r.policy_, [&](auto& engine) noexcept { engine.transmitted(r, outcome); });
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::let_go_of(receive_request& r) noexcept {
    if (!r.done() && r.filling_ != nullptr && forget_receive(r)) r.finish(make_error_code(errc::canceled));
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::look_for_announcement(send_request& r) noexcept {
    if (phase_ != phase::open || !queue_.empty() || !speculates_on(r.from_.size())) return;
    bool known = false;
    speculation([&](auto& engine) noexcept { known = engine.may_use(r.tag_); });
    if (!known) static_cast<void>(link_.poll(most_looked_at));
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::begin_other(send_request& r, start_result& begun) noexcept {
    if (r.policy_ == Protocols::none) {
        const bool carried_if_sent =
            r.synchronous_ &&
            Protocols::choose({r.from_.size(), false}, link_capabilities()) != Protocols::none;
        r.finish(carried_if_sent ? errc::unsupported : errc::message_too_long);
    } else {
        engines_.with(r.policy_, [&](auto& engine) noexcept { begun = engine.start(r); });
    }
}

template <class Transport, class Protocols>
delivery connection<Transport, Protocols>::deliver_other(const wire_header& h,
                                                         std::span<const std::byte> payload) noexcept {
    delivery answer = delivery::taken;
    const bool known = engines_.dispatch_others(
        h.kind, [&](auto& engine, unsigned kind) noexcept { answer = engine.arrived(kind, h, payload); });
    return known ? answer : control_arrived(h, payload);
}

// ---- the base's virtual functions: calls of the link and the engines

template <class Transport, class Protocols>
post_result connection<Transport, Protocols>::post_raw(const message_header& header,
                                                       const const_buffers& payload) noexcept {
    return link_.post_copied(header, payload);
}

template <class Transport, class Protocols>
bool connection<Transport, Protocols>::revoke_posted(completion& c) noexcept {
    return link_.revoke(c);
}

template <class Transport, class Protocols>
lent_buffer connection<Transport, Protocols>::lend_payload() noexcept {
    return link_.keep();
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::close_link(std::error_code why) noexcept {
    link_.close(why);
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::notify_engines(engine_event what, std::error_code reason) noexcept {
    switch (what) {
        case engine_event::writable: engines_.each([](auto& engine) noexcept { engine.writable(); }); break;
        case engine_event::closing:
            engines_.each([](auto& engine) noexcept {
                if constexpr (requires { engine.leaving(); }) engine.leaving();
            });
            break;
        case engine_event::failed: engines_.each([&](auto& engine) noexcept { engine.fail(reason); }); break;
        case engine_event::peer_left:
            speculation([](auto& engine) noexcept { engine.peer_leaves(); });
            if constexpr (delegates) delegate().peer_leaves();
            break;
        case engine_event::moved:
            if constexpr (delegates) delegate().look();
            break;
    }
}

template <class Transport, class Protocols>
start_result connection<Transport, Protocols>::begin_queued(send_request& r) noexcept {
    return begin(r);
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::cancel_in_engine(send_request& r) noexcept {
    if (r.policy_ == ahead_engine::policy) {
        ahead_.cancel(r);
        return;
    }
    engines_.with(r.policy_, [&](auto& engine) noexcept { engine.cancel_send(r); });
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::note_begun(tag_type tag) noexcept {
    message_begun(tag);
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::note_superseded([[maybe_unused]] receive_request& r) noexcept {
    speculation([&](auto& engine) noexcept { engine.superseded(r); });
}

template <class Transport, class Protocols>
std::uint64_t connection<Transport, Protocols>::posted_with_link() noexcept {
    if constexpr (delegates) return delegate().posted();
    return 0;
}

template <class Transport, class Protocols>
bool connection<Transport, Protocols>::last_word([[maybe_unused]] const wire_header& h) noexcept {
    if constexpr (delegates) return delegate().last_word(h);
    return false;
}

template <class Transport, class Protocols>
void connection<Transport, Protocols>::describe_engines(connection_description& into) noexcept {
    into.room = room_of(link_);
    into.transfers = transfers_of(link_);
    if constexpr (requires { link_.unread(); }) into.unread = link_.unread();
    engines_.each([&](auto& engine) noexcept {
        if constexpr (requires { engine.describe(into); }) engine.describe(into);
    });
}

}  // namespace rdmacoro::detail
