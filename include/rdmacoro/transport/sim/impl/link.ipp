// A simulated link, apart from its sink.
#pragma once

#include <rdmacoro/transport/sim/link.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace rdmacoro::detail::sim {

RDMACORO_DECL post_result link_base::post(const message_header& header, const const_buffers& payload,
                                          completion& c) noexcept {
    return post_message(header, payload, payload.size() > here().options().staged_bytes ? &c : nullptr);
}

RDMACORO_DECL post_result link_base::post_copied(const message_header& header,
                                                 const const_buffers& payload) noexcept {
    return post_message(header, payload, nullptr);
}

RDMACORO_DECL post_result link_base::post_in_place(const message_header& header, const const_buffers& payload,
                                                   completion& c) noexcept {
    for (const_buffer_cursor at(payload, 0); !at.at_end(); at.advance(at.here().size())) {
        if (!here().in_place(at.here()))
            world().violation("post_in_place of memory that was not prepared for it");
    }
    const post_result answer = post_message(header, payload, &c);
    if (answer == post_result::posted) here().count(&sim_counts::in_place);
    return answer;
}

RDMACORO_DECL bool link_base::prepare_in_place(std::span<const std::byte> memory) noexcept {
    return here().prepare_in_place(memory);
}

RDMACORO_DECL bool link_base::in_place(std::span<const std::byte> memory) noexcept {
    return here().in_place(memory);
}

RDMACORO_DECL post_result link_base::get(const remote_region& there, std::span<std::byte> into,
                                         completion& c) noexcept {
    return begin(event_kind::get, there, into, c);
}

RDMACORO_DECL post_result link_base::put(std::span<const std::byte> from, const remote_region& there,
                                         completion& c) noexcept {
    return begin(event_kind::put, there, {const_cast<std::byte*>(from.data()), from.size()}, c);
}

RDMACORO_DECL region link_base::expose(std::span<std::byte> memory, access_rights rights) noexcept {
    return here().expose(memory, rights);
}

RDMACORO_DECL bool link_base::revoke(completion& c) noexcept {
    auto& t = *static_cast<transfer*>(c.transport_state);
    const bool is_message = event_key::kind(t.key) == event_kind::transmitted;
    if (is_message) {
        if (t.sent != nullptr) wire_->copy_payload(*t.sent);
    } else if (!t.moved && t.queued() && !world().chosen() && world().random().below(4) == 0) {
        t.here = t.here.first(world().random().below(t.here.size() + 1));  // an unknown part
        t.there.length = t.here.size();
        wire_->move(t);
    }
    recycle(t);
    return is_message;
}

RDMACORO_DECL const rdmacoro::capabilities& link_base::capabilities() const noexcept {
    return wire_->nodes[side_]->options().offered;
}

RDMACORO_DECL std::string link_base::peer_name() const {
    return "sim node " + std::to_string(wire_->nodes[1 - side_]->number());
}

RDMACORO_DECL lent_buffer link_base::keep() noexcept {
    if (delivered_ == nullptr || kept_ || !here().options().lends) return {};
    kept_ = true;
    return lent_buffer(
        delivered_->data, [](void* owner, std::uint64_t) noexcept { delete static_cast<packet*>(owner); },
        delivered_, 0);
}

RDMACORO_DECL void link_base::over(transfer& t) noexcept {
    t.unlink();
    completed_.push_back(t);
    world().ready(*this);
}

RDMACORO_DECL void link_base::room_came() noexcept {
    room_ = true;
    world().ready(*this);
}

RDMACORO_DECL link_base::link_base(wire& connected, unsigned side) noexcept : wire_(&connected), side_(side) {
    wire_->ends[side_] = this;
    if (!wire_->into(side_).arrived.empty()) world().ready(*this);
    wire_->resume_transfers();
}

RDMACORO_DECL link_base::~link_base() {
    shut(make_error_code(errc::closed));
    wire_->release();
}

RDMACORO_DECL void link_base::shut(std::error_code reason) noexcept {
    if (down_) return;
    down_ = true;
    unlink();
    for (transfer* t = transfers_.front(); t != nullptr; t = transfers_.next(*t)) {
        if (t->sent != nullptr) wire_->copy_payload(*t->sent);
        world().unschedule(*t);
    }
    wire_->end(side_);
    completed_.splice_back(transfers_);
    while (transfer* t = completed_.front()) {
        completion* c = t->waiting;
        recycle(*t);
        c->done(*c, reason);
    }
}

RDMACORO_DECL unsigned link_base::poll(unsigned budget) noexcept {
    if (down_) return 0;
    unsigned moved = tell_completed();
    for (unsigned handed = 0; handed < budget && !down_; ++handed, ++moved) {
        if (!hand_up()) break;
    }
    if (down_) return moved;
    if (room_) {
        room_ = false;
        if (std::exchange(wire_->out_of(side_).wants_room, false)) {
            writable();
            ++moved;
        }
    }
    if (!down_ && more()) world().ready(*this);
    return moved;
}

RDMACORO_DECL void link_base::close(std::error_code reason) noexcept {
    if (down_) return;
    shut(reason);
    link_down(reason);
}

RDMACORO_DECL bool link_base::more() noexcept {
    const lane& in = wire_->into(side_);
    const packet* p = in.arrived.front();
    return p != nullptr && (!begun_ || given_ < p->visible || in.cut);
}

RDMACORO_DECL bool link_base::hand_up() noexcept {
    lane& in = wire_->into(side_);
    packet* p = in.arrived.front();
    if (p == nullptr) return false;
    if (p->hang_up) {
        close(make_error_code(errc::peer_lost));
        return true;
    }
    if (p->announced) return hand_up_piece(in, *p);
    in.arrived.pop_front();
    delivered_ = p;
    kept_ = false;
    const delivery answer = deliver(p->header, p->data);
    delivered_ = nullptr;
    if (answer == delivery::defer && !down_) {
        in.arrived.push_front(*p);
        return false;
    }
    wire_->consumed(in);
    if (!kept_) wire_->recycle(*p);
    return true;
}

RDMACORO_DECL bool link_base::hand_up_piece(lane& in, packet& p) noexcept {
    if (!begun_) {
        if (begin_payload(p.header, p.bytes) == delivery::defer) return false;
        begun_ = true;
        given_ = 0;
        return true;
    }
    if (given_ == p.visible) {
        if (!in.cut) return false;
        close(make_error_code(errc::peer_lost));
        return true;
    }
    const std::span<std::byte> space = payload_space();
    std::size_t now = p.visible - given_;
    if (!space.empty()) {
        now = std::min(now, space.size());
        world().touch(space.first(now), "a payload that arrives");
        std::memcpy(space.data(), p.data.data() + given_, now);
    }
    given_ += now;
    if (given_ == p.bytes) {
        begun_ = false;
        in.arrived.pop_front();
        wire_->consumed(in, p);
    }
    payload_arrived(now);
    return true;
}

RDMACORO_DECL void link_base::recycle(transfer& t) noexcept {
    world().unschedule(t);
    t.unlink();
    t.registration.reset();
    if (t.sent != nullptr) std::exchange(t.sent, nullptr)->borrows = nullptr;
    world().transfers().give_back(t);
}

RDMACORO_DECL unsigned link_base::tell_completed() noexcept {
    unsigned told = 0;
    while (transfer* t = completed_.front()) {
        completion* c = t->waiting;
        const std::error_code outcome = t->outcome;
        recycle(*t);
        ++told;
        c->done(*c, outcome);
    }
    return told;
}

RDMACORO_DECL post_result link_base::post_message(const message_header& header, const const_buffers& payload,
                                                  completion* c) noexcept {
    if (down_) return post_result::failed;
    lane& out = wire_->out_of(side_);
    node& from = here();
    const std::size_t bytes = payload.size();
    if (bytes > from.options().offered.max_message)
        world().violation("a message of " + std::to_string(bytes) +
                          " bytes was posted; the link's longest has " +
                          std::to_string(from.options().offered.max_message));
    if (!out.no_room && world().chance(world().options().faults.no_room)) {
        out.no_room = true;
        wire_->schedule_room(out, world().clock_now() + world().options().faults.no_room_for);
    }
    if (out.no_room || out.shut_off || out.under_way >= from.options().room) return want_room(out);
    if (world().chance(world().options().faults.dropped)) wire_->drop();

    from.count(&sim_counts::messages);
    from.count(&sim_counts::message_bytes, bytes);
    const time_point last = from.depart(bytes);
    ++out.posted;
    packet* p = nullptr;
    if (!wire_->broken && !wire_->ended[1 - side_]) {
        const sim_costs& cost = world().options().costs;
        p = &world().packets().take();
        p->header = header;
        p->bytes = bytes;
        p->hang_up = false;
        p->announced = bytes > from.options().announces_above;
        p->visible = p->announced ? 0 : bytes;
        p->number = out.posted;
        out.last_ready = std::max(out.last_ready, last + cost.latency + cost.overhead + world().extra());
        p->ready = p->announced ? out.last_ready - from.on_the_wire(bytes) : out.last_ready;
        if (c == nullptr) {
            p->data.resize(bytes);
            copy_out(payload, 0, p->data.data(), bytes);
        } else {
            p->payload = payload;
        }
        out.flying.push_back(*p);
        ++out.under_way;
    }
    post_result answer = post_result::done;
    if (c == nullptr) {
        from.count(&sim_counts::staged);
        from.count(&sim_counts::staged_bytes, bytes);
    } else {
        transfer& t = take(event_kind::transmitted, out.posted, *c);
        t.nodes = from.bit();
        t.sent = p;
        if (p != nullptr) p->borrows = &t;
        world().schedule(t, last + world().extra());
        answer = post_result::posted;
    }
    if (p != nullptr) wire_->schedule(out);
    return answer;
}

RDMACORO_DECL post_result link_base::begin(event_kind kind, const remote_region& there,
                                           std::span<std::byte> local, completion& c) noexcept {
    if (down_) return post_result::failed;
    lane& out = wire_->out_of(side_);
    node& from = here();
    const rdmacoro::capabilities& can = from.options().offered;
    if (from.resources_fail()) {
        if (!from.exhausted())
            wire_->schedule_room(out, world().clock_now() + world().options().faults.no_room_for);
        return want_room(out);
    }
    local_cache::lease registration = from.register_local(local);
    from.count(kind == event_kind::get ? &sim_counts::gets : &sim_counts::puts);
    from.count(&sim_counts::one_sided_bytes, local.size());
    const sim_costs& cost = world().options().costs;
    transfer& t = take(kind, out.operations++, c);
    t.nodes = from.bit() | wire_->nodes[1 - side_]->bit();
    t.there = there;
    t.there.length = local.size();
    t.here = local;
    t.registration = std::move(registration);
    t.after = out.posted;
    const duration served = can.one_sided_offloaded ? duration{} : 2 * cost.overhead;
    const bool reads = kind == event_kind::get;
    const time_point last = from.depart(reads ? 0 : local.size());
    const duration answer = reads ? from.on_the_wire(local.size()) : duration{};
    if (!can.one_sided) {
        t.outcome = make_error_code(errc::unsupported);
        t.moved = true;
    } else if (reads && misaligned(t, can.get_alignment)) {
        world().violation("a get of " + std::to_string(local.size()) + " bytes breaks the alignment of " +
                          std::to_string(can.get_alignment));
        t.outcome = make_error_code(errc::invalid_argument);
        t.moved = true;
    }
    world().schedule(t,
                     last + cost.latency + served + answer + cost.latency + cost.overhead + world().extra());
    return post_result::posted;
}

RDMACORO_DECL bool link_base::misaligned(const transfer& t, std::size_t to) noexcept {
    return ((t.there.address | reinterpret_cast<std::uintptr_t>(t.here.data()) | t.here.size()) % to) != 0;
}

RDMACORO_DECL post_result link_base::want_room(lane& out) noexcept {
    here().count(&sim_counts::retries);
    out.wants_room = true;
    return post_result::retry;
}

RDMACORO_DECL transfer& link_base::take(event_kind kind, std::uint64_t number, completion& c) {
    transfer& t = world().transfers().take();
    t.key = event_key::of(kind, wire_->out_of(side_).number, number);
    t.by = this;
    t.waiting = &c;
    t.sent = nullptr;
    t.moved = false;
    t.outcome = {};
    t.fire = [](event& e) noexcept {
        auto& self = static_cast<transfer&>(e);
        self.by->happened(self);
    };
    c.transport_state = &t;
    transfers_.push_back(t);
    return t;
}

RDMACORO_DECL bool link_base::unserved() const noexcept {
    return !capabilities().one_sided_offloaded && wire_->ends[1 - side_] == nullptr &&
           !wire_->ended[1 - side_];
}

RDMACORO_DECL void link_base::happened(transfer& t) noexcept {
    if (event_key::kind(t.key) == event_kind::transmitted) {
        if (t.sent != nullptr) wire_->copy_payload(*t.sent);
    } else if (wire_->silent() || unserved()) {
        return;  // until it can be served
    } else {
        wire_->move(t);
    }
    over(t);
}

RDMACORO_DECL void wire::wake(unsigned side) noexcept {
    if (ends[side] != nullptr) world.ready(*ends[side]);
}

RDMACORO_DECL void wire::silence_changed() noexcept {
    for (lane& l : lanes) {
        if (silent()) world.unschedule(l.delivery);
        schedule(l);
    }
    if (!silent()) resume_transfers();
}

RDMACORO_DECL void wire::resume_transfers() noexcept {
    for (link_base* end : ends) {
        if (end == nullptr) continue;
        for (transfer* t = end->transfers().front(); t != nullptr; t = end->transfers().next(*t)) {
            if (!t->queued()) world.schedule(*t, world.clock_now());
        }
    }
}

RDMACORO_DECL void wire::deliver(lane& l) noexcept {
    ++l.deliveries;
    const unsigned reader = 1 - l.writer;
    if (l.arriving == nullptr) {
        packet& p = *l.flying.pop_front();
        move_puts_before(l, p);
        if (p.announced) {
            l.arriving = &p;
            p.data.resize(p.bytes);
        } else {
            copy_payload(p);
        }
        l.arrived.push_back(p);
    } else {
        packet& p = *l.arriving;
        const std::size_t now = piece(l);
        if (p.borrows != nullptr) copy_piece(p, p.visible, now);
        p.visible += now;
        if (p.complete()) {
            if (p.borrows != nullptr) {
                std::exchange(p.borrows, nullptr)->sent = nullptr;
                p.payload = {};
            }
            l.arriving = nullptr;
        }
    }
    wake(reader);
    schedule(l);
}

RDMACORO_DECL void wire::room_came(lane& l) noexcept {
    l.no_room = false;
    if (l.shut_off || l.under_way >= nodes[l.writer]->options().room) return;  // later
    if (l.wants_room && ends[l.writer] != nullptr) ends[l.writer]->room_came();
}

RDMACORO_DECL void wire::move_puts_before(lane& l, const packet& p) noexcept {
    link_base* writer = ends[l.writer];
    if (writer == nullptr || !nodes[l.writer]->options().offered.put_before_send) return;
    for (transfer* t = writer->transfers().front(); t != nullptr; t = writer->transfers().next(*t)) {
        if (event_key::kind(t->key) == event_kind::put && t->after < p.number) move(*t);
    }
}

RDMACORO_DECL void wire::move(transfer& t) noexcept {
    if (std::exchange(t.moved, true)) return;
    const bool reads = event_key::kind(t.key) == event_kind::get;
    const unsigned other = t.by == ends[0] ? 1 : 0;
    node& target = *nodes[other];
    if (broken || ended[other]) {
        t.outcome = make_error_code(errc::peer_lost);
        return;
    }
    const errc verdict =
        target.check(t.there, reads ? access_rights::remote_read : access_rights::remote_write);
    t.outcome = make_error_code(verdict);
    if (verdict != errc::ok || t.here.empty()) return;
    const std::span<std::byte> there{reinterpret_cast<std::byte*>(t.there.address), t.here.size()};
    world.touch(t.here, reads ? "a get, where it writes," : "a put, where it reads,");
    world.touch(there, reads ? "a get, where it reads," : "a put, where it writes,");
    std::memmove(reads ? t.here.data() : there.data(), reads ? there.data() : t.here.data(), there.size());
}

}  // namespace rdmacoro::detail::sim
