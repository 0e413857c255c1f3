// A simulated link: posts into its wire and hands up arrived packets.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/next_actor.hpp>
#include <rdmacoro/transport/sim/wire.hpp>

#include <cstring>
#include <string>
#include <utility>

namespace rdmacoro::detail::sim {

/// The part of a link that does not depend on its sink's type.
class link_base : public pollable {
public:
    link_base(const link_base&) = delete;
    link_base& operator=(const link_base&) = delete;

    [[nodiscard]] post_result post(const message_header& header, const const_buffers& payload,
                                   completion& c) noexcept;
    [[nodiscard]] post_result post_copied(const message_header& header,
                                          const const_buffers& payload) noexcept;
    [[nodiscard]] post_result post_in_place(const message_header& header, const const_buffers& payload,
                                            completion& c) noexcept;
    [[nodiscard]] bool prepare_in_place(std::span<const std::byte> memory) noexcept;
    [[nodiscard]] bool in_place(std::span<const std::byte> memory) noexcept;

    [[nodiscard]] post_result get(const remote_region& there, std::span<std::byte> into,
                                  completion& c) noexcept;
    [[nodiscard]] post_result put(std::span<const std::byte> from, const remote_region& there,
                                  completion& c) noexcept;
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept;

    [[nodiscard]] bool revoke(completion& c) noexcept;

    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept;
    /// The party that makes room for messages that were refused.
    [[nodiscard]] next_actor gives_room() const noexcept { return next_actor::network; }
    /// The party that moves the bytes of gets and puts.
    [[nodiscard]] next_actor moves_bytes() const noexcept { return next_actor::network; }
    [[nodiscard]] scheduler& owner() noexcept { return here().owner(); }
    [[nodiscard]] std::string peer_name() const;
    [[nodiscard]] sim_world& world() noexcept { return wire_->world; }

    /// See `message_link`.
    [[nodiscard]] lent_buffer keep() noexcept;

    RDMACORO_DECL unsigned poll(unsigned budget) noexcept final;
    /// Ends the link and notifies the sink; without effect when it is down.
    void close(std::error_code reason) noexcept;

    /// The transfer's event has happened.
    void over(transfer& t) noexcept;
    /// Room has come.
    void room_came() noexcept;
    [[nodiscard]] intrusive_list<transfer>& transfers() noexcept { return transfers_; }

protected:
    link_base(wire& connected, unsigned side) noexcept;
    ~link_base();

    [[nodiscard]] node& here() noexcept { return *wire_->nodes[side_]; }

    void shut(std::error_code reason) noexcept;

    void recycle(transfer& t) noexcept;

    /// Calls completions; how many.
    unsigned tell_completed() noexcept;

private:
    // The sink's functions.
    virtual delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept = 0;
    virtual delivery begin_payload(const message_header& header, std::size_t bytes) noexcept = 0;
    virtual std::span<std::byte> payload_space() noexcept = 0;
    virtual void payload_arrived(std::size_t bytes) noexcept = 0;
    virtual void writable() noexcept = 0;
    virtual void link_down(std::error_code reason) noexcept = 0;

    [[nodiscard]] bool more() noexcept;
    /// Hands up the next packet, or its next piece. False: there is none, or the sink defers it.
    bool hand_up() noexcept;
    bool hand_up_piece(lane& in, packet& p) noexcept;

    /// `c`: the payload stays where it lies.
    post_result post_message(const message_header& header, const const_buffers& payload,
                             completion* c) noexcept;

    post_result begin(event_kind kind, const remote_region& there, std::span<std::byte> local,
                      completion& c) noexcept;

    [[nodiscard]] static bool misaligned(const transfer& t, std::size_t to) noexcept;

    post_result want_room(lane& out) noexcept;

    [[nodiscard]] transfer& take(event_kind kind, std::uint64_t number, completion& c);

    /// Whether gets and puts need the peer's scheduler, and nothing there polls the link yet.
    [[nodiscard]] bool unserved() const noexcept;

    void happened(transfer& t) noexcept;

    wire* wire_;
    unsigned side_;
    packet* delivered_ = nullptr;  // during `deliver`
    std::size_t given_ = 0;        // of the announced message at the front
    bool begun_ = false;
    bool kept_ = false;
    bool room_ = false;
    bool down_ = false;
    intrusive_list<transfer> transfers_;
    intrusive_list<transfer> completed_;
};

/// A link that hands up to `Sink`.
template <class Sink>
class link : public link_base {
public:
    link(wire& connected, unsigned side, Sink& sink) noexcept : link_base(connected, side), sink_(sink) {}

private:
    delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept final {
        return sink_.deliver(header, payload);
    }
    delivery begin_payload(const message_header& header, std::size_t bytes) noexcept final {
        return sink_.begin_payload(header, bytes);
    }
    std::span<std::byte> payload_space() noexcept final { return sink_.payload_space(); }
    void payload_arrived(std::size_t bytes) noexcept final { sink_.payload_arrived(bytes); }
    void writable() noexcept final { sink_.writable(); }
    void link_down(std::error_code reason) noexcept final { sink_.link_down(reason); }

    Sink& sink_;
};

}  // namespace rdmacoro::detail::sim

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/sim/impl/link.ipp>
#include <rdmacoro/transport/sim/impl/wire.ipp>
#endif
