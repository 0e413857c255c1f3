// Both directions of a simulated connection and what is under way in them.
#pragma once

#include <rdmacoro/transport/sim/node.hpp>

#include <algorithm>
#include <cstdint>

namespace rdmacoro::detail::sim {

/// One direction. Packets are flying until their event happens, in order; then they have arrived, and wait for the reader.
struct lane {
    wire* of = nullptr;
    unsigned writer = 0;  ///< side of the wire
    std::uint32_t number = 0;
    packet_queue flying;
    packet_queue arrived;
    packet* arriving = nullptr;    ///< announced; at the end of `arrived` or with its reader
    std::size_t under_way = 0;     ///< packets not handed up
    std::uint64_t posted = 0;      ///< messages, ever
    std::uint64_t operations = 0;  ///< gets and puts, ever
    std::uint64_t deliveries = 0;  ///< events, ever
    std::uint64_t rooms = 0;       ///< events, ever
    time_point last_ready{};
    bool wants_room = false;  ///< the writer was answered `retry`
    bool no_room = false;     ///< until the event `room`
    bool shut_off = false;    ///< no room until a test says so
    bool held = false;        ///< nothing arrives until a test says so
    bool cut = false;         ///< what is flying never comes
    event delivery;
    event room;
};

struct wire {
    lane lanes[2];  ///< by the side that writes; side 0 connected
    node* nodes[2];
    link_base* ends[2] = {nullptr, nullptr};
    bool ended[2] = {false, false};
    bool broken = false;
    unsigned users = 2;
    sim_world& world;

    wire(node& connecting, node& listening) : nodes{&connecting, &listening}, world(connecting.world()) {
        for (unsigned side : {0u, 1u}) {
            lane& l = lanes[side];
            l.of = this;
            l.writer = side;
            l.number = world.next_lane();
            l.delivery.fire = [](event& e) noexcept { from_delivery(e).of->deliver(from_delivery(e)); };
            l.room.fire = [](event& e) noexcept { from_room(e).of->room_came(from_room(e)); };
            nodes[side]->link_made();
        }
        world.wires().push_back(this);
    }
    wire(const wire&) = delete;
    wire& operator=(const wire&) = delete;

    [[nodiscard]] lane& out_of(unsigned side) noexcept { return lanes[side]; }
    [[nodiscard]] lane& into(unsigned side) noexcept { return lanes[1 - side]; }

    /// The connection or link at one side goes.
    void release() noexcept {
        if (--users == 0) delete this;
    }

    /// Puts the next arrival of a lane into the queue of events.
    void schedule(lane& l) noexcept {
        if (l.delivery.queued() || l.held || silent()) return;
        if (l.arriving == nullptr && l.flying.empty()) return;
        node& reader = *nodes[1 - l.writer];
        l.delivery.key = event_key::of(event_kind::deliver, l.number, l.deliveries);
        l.delivery.nodes = reader.bit() | (limited(l) ? nodes[l.writer]->bit() : 0);
        time_point at = l.arriving != nullptr ? world.clock_now() + reader.on_the_wire(piece(l) + 1)
                                              : l.flying.front()->ready;
        world.schedule(l.delivery, at);
    }
    void hold(lane& l, bool held) noexcept {
        l.held = held;
        if (held) world.unschedule(l.delivery);
        schedule(l);
    }
    /// One of the nodes fell silent, or speaks again.
    void silence_changed() noexcept;
    /// What could not be served can be now.
    void resume_transfers() noexcept;
    [[nodiscard]] bool silent() const noexcept { return nodes[0]->silent() || nodes[1]->silent(); }

    /// The writer may try again at `at`.
    void schedule_room(lane& l, time_point at) noexcept {
        if (l.room.queued()) return;
        l.room.key = event_key::of(event_kind::room, l.number, l.rooms++);
        l.room.nodes = nodes[l.writer]->bit();
        world.schedule(l.room, at);
    }

    /// A packet was handed up or thrown away.
    void consumed(lane& l) noexcept {
        --l.under_way;
        if (l.wants_room && !l.no_room && !l.shut_off)
            schedule_room(l, world.clock_now() + world.options().costs.latency);
    }
    void consumed(lane& l, packet& p) noexcept {
        consumed(l);
        recycle(p);
    }
    void recycle(packet& p) noexcept {
        if (p.borrows != nullptr) std::exchange(p.borrows, nullptr)->sent = nullptr;
        p.payload = {};
        world.packets().give_back(p);
    }

    /// The rest of a borrowed payload is copied; nothing refers to the sender's memory any more.
    void copy_payload(packet& p) noexcept {
        if (p.borrows == nullptr) return;
        std::exchange(p.borrows, nullptr)->sent = nullptr;
        p.data.resize(p.bytes);
        const std::size_t copied = p.announced ? p.visible : 0;
        copy_piece(p, copied, p.bytes - copied);
        p.payload = {};
    }

    /// The writer of `l` is gone; the reader hears of it behind all that was sent, or now when the wire was cut.
    void hang_up(lane& l) noexcept {
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

    /// The network breaks between the two. What has not arrived is lost.
    void drop() noexcept {
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
            l.cut = true;
            hang_up(l);
        }
    }

    /// Side `side` hands nothing up any more.
    void end(unsigned side) noexcept {
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

    /// Data of a get or put moves now, once.
    inline void move(transfer& t) noexcept;

private:
    ~wire() {
        for (lane& l : lanes) {
            world.unschedule(l.delivery);
            world.unschedule(l.room);
            while (packet* p = l.arrived.pop_front()) recycle(*p);
            while (packet* p = l.flying.pop_front()) recycle(*p);
        }
        for (node* n : nodes) n->link_gone();
        std::erase(world.wires(), this);
    }

    // An event lies in its lane.
    [[nodiscard]] static lane& from_delivery(event& e) noexcept {
        return *reinterpret_cast<lane*>(reinterpret_cast<std::byte*>(&e) - offsetof(lane, delivery));
    }
    [[nodiscard]] static lane& from_room(event& e) noexcept {
        return *reinterpret_cast<lane*>(reinterpret_cast<std::byte*>(&e) - offsetof(lane, room));
    }
    /// Whether an arrival has to do with the writer's state.
    [[nodiscard]] bool limited(const lane& l) const noexcept {
        const sim_options& o = nodes[l.writer]->options();
        return o.room != sim_options::unlimited || o.offered.put_before_send;
    }
    [[nodiscard]] std::size_t piece(const lane& l) const noexcept {
        return std::min(nodes[l.writer]->options().piece_bytes, l.arriving->bytes - l.arriving->visible);
    }

    inline void deliver(lane& l) noexcept;
    inline void room_came(lane& l) noexcept;
    inline void move_puts_before(lane& l, const packet& p) noexcept;
    inline void wake(unsigned side) noexcept;

    void copy_piece(packet& p, std::size_t offset, std::size_t bytes) noexcept {
        if (bytes == 0) return;
        for (const_buffer_cursor at(p.payload, offset); !at.at_end(); at.advance(at.here().size()))
            world.touch(at.here(), "sending a message");
        copy_out(p.payload, offset, p.data.data() + offset, bytes);
    }
};

template <class Function>
void node::each_lane_to(const node& peer, Function function) noexcept {
    for (wire* w : world_.wires()) {
        for (const unsigned side : {0u, 1u}) {
            if (w->nodes[side] == this && w->nodes[1 - side] == &peer) function(*w, w->lanes[side]);
        }
    }
}
inline void node::set_silent(bool silent) noexcept {
    silent_ = silent;
    for (wire* w : world_.wires()) {
        if (w->nodes[0] == this || w->nodes[1] == this) w->silence_changed();
    }
}
inline void node::set_exhausted(bool exhausted) noexcept {
    exhausted_ = exhausted;
    if (exhausted) return;
    for (wire* w : world_.wires()) {
        for (const unsigned side : {0u, 1u}) {
            if (w->nodes[side] == this && w->lanes[side].wants_room)
                w->schedule_room(w->lanes[side], world_.clock_now());
        }
    }
}
inline void node::drop_links_to(const node& peer) noexcept {
    each_lane_to(peer, [](wire& w, lane&) noexcept { w.drop(); });
}
inline void node::set_no_room_to(const node& peer, bool none) noexcept {
    each_lane_to(peer, [&](wire& w, lane& l) noexcept {
        l.shut_off = none;
        if (!none && l.wants_room) w.schedule_room(l, world_.clock_now());
    });
}
inline void node::hold_messages_to(const node& peer, bool held) noexcept {
    each_lane_to(peer, [&](wire& w, lane& l) noexcept { w.hold(l, held); });
}

}  // namespace rdmacoro::detail::sim

#include <rdmacoro/transport/sim/link.hpp>
