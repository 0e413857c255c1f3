// Both directions of a simulated connection, with their packets.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
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
    bool shut_off = false;    ///< no room until a test permits it
    bool held = false;        ///< nothing arrives until a test permits it
    bool cut = false;         ///< flying packets never arrive
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

    wire(node& connecting, node& listening);
    wire(const wire&) = delete;
    wire& operator=(const wire&) = delete;

    [[nodiscard]] lane& out_of(unsigned side) noexcept { return lanes[side]; }
    [[nodiscard]] lane& into(unsigned side) noexcept { return lanes[1 - side]; }

    /// The connection or link at one side is destroyed.
    void release() noexcept;

    /// Puts the next arrival of a lane into the queue of events.
    void schedule(lane& l) noexcept;
    void hold(lane& l, bool held) noexcept;
    /// One of the nodes fell silent, or speaks again.
    void silence_changed() noexcept;
    /// Resumes transfers that could not be served before.
    void resume_transfers() noexcept;
    [[nodiscard]] bool silent() const noexcept { return nodes[0]->silent() || nodes[1]->silent(); }

    /// The writer may try again at `at`.
    void schedule_room(lane& l, time_point at) noexcept;

    /// A packet was handed up or thrown away.
    void consumed(lane& l) noexcept;
    void consumed(lane& l, packet& p) noexcept;
    void recycle(packet& p) noexcept;

    /// The rest of a borrowed payload is copied; nothing refers to the sender's memory any more.
    void copy_payload(packet& p) noexcept;

    /// The writer of `l` has closed; its reader is notified behind all sent packets, or at once when the wire was cut.
    void hang_up(lane& l) noexcept;

    /// The network breaks between the two. Packets that have not arrived are lost.
    void drop() noexcept;

    /// Side `side` hands nothing up any more.
    void end(unsigned side) noexcept;

    /// Data of a get or put moves now, once.
    void move(transfer& t) noexcept;

private:
    ~wire();

    // An event lies in its lane.
    [[nodiscard]] static lane& from_delivery(event& e) noexcept;
    [[nodiscard]] static lane& from_room(event& e) noexcept;
    /// Whether an arrival has to do with the writer's state: it makes room, moves the writer's puts, or is lost when a post breaks the wire.
    [[nodiscard]] bool limited(const lane& l) const noexcept;
    /// Whether the next arrival reads the memory that the writer sends from. After it the writer may change that memory unseen, so the
    /// two do not commute.
    [[nodiscard]] bool borrowing(const lane& l) const noexcept;
    [[nodiscard]] std::size_t piece(const lane& l) const noexcept;

    void deliver(lane& l) noexcept;
    void room_came(lane& l) noexcept;
    void move_puts_before(lane& l, const packet& p) noexcept;
    void wake(unsigned side) noexcept;

    void copy_piece(packet& p, std::size_t offset, std::size_t bytes) noexcept;
};

template <class Function>
void node::each_lane_to(const node& peer, Function function) noexcept {
    for (wire* w : world_.wires()) {
        for (const unsigned side : {0u, 1u}) {
            if (w->nodes[side] == this && w->nodes[1 - side] == &peer) function(*w, w->lanes[side]);
        }
    }
}
}  // namespace rdmacoro::detail::sim

#include <rdmacoro/transport/sim/link.hpp>
