// Packets and transfers between two nodes of a simulated network.
#pragma once

#include <rdmacoro/transport/sim/wire.hpp>

#include <rdmacoro/transport/sim/link.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace rdmacoro::detail::sim {

RDMACORO_DECL wire::wire(node& connecting, node& listening)
    : nodes{&connecting, &listening}, world(connecting.world()) {
    world.wires().push_back(this);
    for (unsigned side : {0u, 1u}) {
        lane& l = lanes[side];
        l.of = this;
        l.writer = side;
        l.number = world.next_lane();
        l.delivery.fire = [](event& e) noexcept { from_delivery(e).of->deliver(from_delivery(e)); };
        l.room.fire = [](event& e) noexcept { from_room(e).of->room_came(from_room(e)); };
        nodes[side]->link_made();
    }
}

RDMACORO_DECL void wire::release() noexcept {
    if (--users == 0) delete this;
}

RDMACORO_DECL void wire::schedule(lane& l) noexcept {
    if (l.delivery.queued() || l.held || silent()) return;
    if (l.arriving == nullptr && l.flying.empty()) return;
    const node& reader = *nodes[1 - l.writer];
    l.delivery.key = event_key::of(event_kind::deliver, l.number, l.deliveries);
    l.delivery.nodes = reader.bit() | (limited(l) || borrowing(l) ? nodes[l.writer]->bit() : 0);
    const packet* const p = l.arriving;
    const time_point at =
        p != nullptr ? p->ready + reader.on_the_wire(p->visible + piece(l)) : l.flying.front()->ready;
    world.schedule(l.delivery, at);
}

RDMACORO_DECL void wire::hold(lane& l, bool held) noexcept {
    l.held = held;
    if (held) world.unschedule(l.delivery);
    schedule(l);
}

RDMACORO_DECL void wire::schedule_room(lane& l, time_point at) noexcept {
    if (l.room.queued()) return;
    l.room.key = event_key::of(event_kind::room, l.number, l.rooms++);
    l.room.nodes = nodes[l.writer]->bit();
    world.schedule(l.room, at);
}

RDMACORO_DECL void wire::consumed(lane& l) noexcept {
    --l.under_way;
    if (l.wants_room && !l.no_room && !l.shut_off)
        schedule_room(l, world.clock_now() + world.options().costs.latency);
}

RDMACORO_DECL void wire::consumed(lane& l, packet& p) noexcept {
    consumed(l);
    recycle(p);
}

RDMACORO_DECL void wire::recycle(packet& p) noexcept {
    if (p.borrows != nullptr) std::exchange(p.borrows, nullptr)->sent = nullptr;
    p.payload = {};
    world.packets().give_back(p);
}

RDMACORO_DECL void wire::copy_payload(packet& p) noexcept {
    if (p.borrows == nullptr) return;
    std::exchange(p.borrows, nullptr)->sent = nullptr;
    p.data.resize(p.bytes);
    const std::size_t copied = p.announced ? p.visible : 0;
    copy_piece(p, copied, p.bytes - copied);
    p.payload = {};
}

RDMACORO_DECL void wire::hang_up(lane& l) noexcept {
    packet& p = world.packets().take();
    p.header = {};
    p.bytes = p.visible = 0;
    p.hang_up = true;
    p.announced = false;
    p.ready = std::max(l.last_ready, world.clock_now() + world.options().costs.latency);
    l.last_ready = p.ready;
    l.flying.push_back(p);
    ++l.under_way;
    schedule(l);
}

RDMACORO_DECL void wire::drop() noexcept {
    if (broken) return;
    broken = true;
    ++world.counts().drops;
    for (lane& l : lanes) {
        world.unschedule(l.delivery);
        while (packet* p = l.flying.pop_front()) {
            --l.under_way;
            recycle(*p);
        }
        l.arriving = nullptr;
        l.held = false;  // it holds messages, not the end
        l.cut = true;
        hang_up(l);
    }
}

RDMACORO_DECL void wire::end(unsigned side) noexcept {
    if (ended[side]) return;
    ended[side] = true;
    ends[side] = nullptr;
    lane& in = into(side);
    world.unschedule(in.delivery);
    in.arriving = nullptr;
    while (packet* p = in.arrived.pop_front()) consumed(in, *p);
    while (packet* p = in.flying.pop_front()) consumed(in, *p);
    world.unschedule(out_of(side).room);
    if (!broken) hang_up(out_of(side));
}

RDMACORO_DECL wire::~wire() {
    for (lane& l : lanes) {
        world.unschedule(l.delivery);
        world.unschedule(l.room);
        while (packet* p = l.arrived.pop_front()) recycle(*p);
        while (packet* p = l.flying.pop_front()) recycle(*p);
    }
    for (node* n : nodes) n->link_gone();
    std::erase(world.wires(), this);
}

RDMACORO_DECL lane& wire::from_delivery(event& e) noexcept {
    return *reinterpret_cast<lane*>(reinterpret_cast<std::byte*>(&e) - offsetof(lane, delivery));
}

RDMACORO_DECL lane& wire::from_room(event& e) noexcept {
    return *reinterpret_cast<lane*>(reinterpret_cast<std::byte*>(&e) - offsetof(lane, room));
}

RDMACORO_DECL bool wire::limited(const lane& l) const noexcept {
    const sim_options& o = nodes[l.writer]->options();
    return o.room != sim_options::unlimited || o.offered.put_before_send ||
           world.options().faults.dropped != 0;
}

RDMACORO_DECL bool wire::borrowing(const lane& l) const noexcept {
    if (l.arriving != nullptr) return l.arriving->borrows != nullptr;
    const packet& next = *l.flying.front();
    return next.borrows != nullptr && !next.announced;  // an announcement arrives without its payload
}

RDMACORO_DECL std::size_t wire::piece(const lane& l) const noexcept {
    return std::min(nodes[l.writer]->options().piece_bytes, l.arriving->bytes - l.arriving->visible);
}

RDMACORO_DECL void wire::copy_piece(packet& p, std::size_t offset, std::size_t bytes) noexcept {
    if (bytes == 0) return;
    for (const_buffer_cursor at(p.payload, offset); !at.at_end(); at.advance(at.here().size()))
        world.touch(at.here(), "sending a message");
    copy_out(p.payload, offset, p.data.data() + offset, bytes);
}

RDMACORO_DECL void node::set_silent(bool silent) noexcept {
    silent_ = silent;
    for (wire* w : world_.wires()) {
        if (w->nodes[0] == this || w->nodes[1] == this) w->silence_changed();
    }
}

RDMACORO_DECL void node::set_exhausted(bool exhausted) noexcept {
    exhausted_ = exhausted;
    if (exhausted) return;
    for (wire* w : world_.wires()) {
        for (const unsigned side : {0u, 1u}) {
            if (w->nodes[side] == this && w->lanes[side].wants_room)
                w->schedule_room(w->lanes[side], world_.clock_now());
        }
    }
}

RDMACORO_DECL void node::drop_links_to(const node& peer) noexcept {
    each_lane_to(peer, [](wire& w, lane&) noexcept { w.drop(); });
}

RDMACORO_DECL void node::set_no_room_to(const node& peer, bool none) noexcept {
    each_lane_to(peer, [&](wire& w, lane& l) noexcept {
        l.shut_off = none;
        if (!none && l.wants_room) w.schedule_room(l, world_.clock_now());
    });
}

RDMACORO_DECL void node::hold_messages_to(const node& peer, bool held) noexcept {
    each_lane_to(peer, [&](wire& w, lane& l) noexcept { w.hold(l, held); });
}

}  // namespace rdmacoro::detail::sim
