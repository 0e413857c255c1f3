// A shared-memory link: hands records up to a sink, posts messages, and notices when the peer has closed its link or
// died.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/next_actor.hpp>
#include <rdmacoro/transport/shm/channel.hpp>
#include <rdmacoro/transport/shm/domain.hpp>
#include <rdmacoro/transport/shm/one_sided.hpp>
#include <rdmacoro/transport/shm/shared_copy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace rdmacoro::detail::shm {

/// The part of a link that does not depend on its sink's type.
class link_base : public pollable {
public:
    link_base(const link_base&) = delete;
    link_base& operator=(const link_base&) = delete;

    [[nodiscard, gnu::always_inline]] post_result post(const message_header& header,
                                                       const const_buffers& payload, completion&) noexcept {
        return post_now(header, payload);  // `done` or `retry`: the payload is in the segment, or it is not
    }
    [[nodiscard]] post_result post_copied(const message_header& header,
                                          const const_buffers& payload) noexcept {
        return post_now(header, payload);
    }
    [[nodiscard]] post_result get(const remote_region& there, std::span<std::byte> into,
                                  completion& c) noexcept;
    [[nodiscard]] post_result put(std::span<const std::byte> from, const remote_region& there,
                                  completion& c) noexcept;
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept;
    [[nodiscard]] shared_copy_id open_shared_copy(std::size_t bytes) noexcept;
    void close_shared_copy(shared_copy_id id) noexcept { copies_.close(id); }
    [[nodiscard]] post_result copy_from_front(shared_copy_id id, const remote_region& there,
                                              std::span<std::byte> into, completion& c) noexcept;
    [[nodiscard]] post_result copy_from_back(shared_copy_id id, std::span<const std::byte> from,
                                             const remote_region& there, completion& c) noexcept;
    /// Messages are never `posted` here; only accesses to the peer's memory can be.
    bool revoke(completion& c) noexcept;

    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return capabilities_; }
    /// The party that makes room for messages that were refused.
    [[nodiscard]] next_actor gives_room() const noexcept { return next_actor::peer_poll; }
    /// Whether the peer has surely not taken all messages that were sent to it.
    [[nodiscard]] bool unread() const noexcept { return channel_->out.unread(); }
    /// The party that moves the bytes of gets and puts that are posted.
    [[nodiscard]] next_actor moves_bytes() const noexcept {
        return capabilities_.one_sided_offloaded ? next_actor::this_scheduler : next_actor::peer_poll;
    }
    [[nodiscard]] scheduler& owner() noexcept { return channel_->domain->owner(); }
    [[nodiscard]] const std::string& peer_name() const noexcept { return channel_->name; }

    /// See `message_link`: takes over the payload that is being delivered, if it lies in a block.
    [[nodiscard]] lent_buffer keep() noexcept;

    /// Whether the peer is touching memory still that was exposed to it and is closed. When it has ended that, or the link has ended, the
    /// sink is notified by `writable` or `link_down`.
    [[nodiscard]] bool touches_closed_memory() noexcept {
        return awaited_key_ != 0 && channel_->in.region_in_use() == awaited_key_;
    }

    void want_notice(std::uint32_t word) noexcept final { channel_->in.want_notice(word); }
    [[nodiscard]] RDMACORO_DECL bool quiet() noexcept final;
    void give_back() noexcept final { channel_->in.give_back(); }
    void want_touch_notice(std::uint32_t word) noexcept final { channel_->in.want_touch_notice(word); }
    [[nodiscard]] RDMACORO_DECL bool touched(std::uint64_t key) noexcept final;

    /// See `mark_patience`. A peer that was stopped in the middle of a piece checks the table again before the next one.
    RDMACORO_DECL void wait_until_untouched(std::uint64_t key, std::span<std::byte> range,
                                            mark_wait& wait) noexcept final;
    RDMACORO_DECL void await_untouched(std::uint64_t key, std::span<std::byte> range,
                                       time_point until) noexcept final;
    [[nodiscard]] RDMACORO_DECL bool awaits_untouched(time_point now) noexcept final;
    [[nodiscard]] RDMACORO_DECL bool wants_poll() noexcept final;
    [[nodiscard]] RDMACORO_DECL bool holds_memory() noexcept final;
    RDMACORO_DECL bool return_memory() noexcept final;

    /// Ends the link and notifies the sink; without effect when it is down.
    void close(std::error_code reason) noexcept;

protected:
    link_base(channel_ref connected, const rdmacoro::capabilities& fixed);
    ~link_base();

    /// Continues with a record of another kind than a short message, or with an empty ring.
    unsigned poll_rest(unsigned budget) noexcept;

    /// `delivered`: this poll has handed up messages.
    [[gnu::always_inline]] unsigned other_work(bool delivered) noexcept {
        if (channel_->in.take_gave_back()) [[unlikely]]
            channel_->ring_doorbell();
        return touches_nothing() && !wants_room_ ? 0 : do_other_work(delivered);
    }

    [[nodiscard]] bool touches_nothing() const noexcept { return one_sided_.idle() && copies_.idle(); }

    [[nodiscard, gnu::always_inline]] post_result post_now(const message_header& header,
                                                           const const_buffers& payload) noexcept {
        if (down_) [[unlikely]]
            return post_result::failed;
        channel& to = *channel_;
        if (!to.out.put(record_type::message, header, payload)) [[unlikely]]
            return want_room();
        to.ring_doorbell();
        return post_result::done;
    }
    post_result want_room() noexcept;

    channel_ref channel_;
    one_sided_engine one_sided_;
    shared_copy_engine copies_;
    std::uint32_t quiet_polls_ = 0;
    std::uint32_t seen_position_ = 0;  // by `quiet`
    bool down_ = false;
    bool hung_up_ = false;  // the peer has closed or died, or its link is to end
    bool wants_room_ = false;
    bool tell_sink_ = false;  // beside `wants_room_`: whether there is room or not

private:
    struct socket_handler : fd_handler {
        link_base* self = nullptr;
    };

    // The sink's functions.
    virtual delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept = 0;
    virtual void writable() noexcept = 0;
    virtual void link_down(std::error_code reason) noexcept = 0;

    /// Ends the link for this side without notifying the sink.
    void shut(std::error_code reason) noexcept;
    /// The sink's answer. A record that it defers stays at the head of the ring.
    delivery hand_up(const record& r) noexcept;
    /// `began`: when reading began, by `ticks`; 0: it is not timed.
    void advance(const record& r, bool keep_block, std::uint64_t began) noexcept;
    unsigned when_empty(bool delivered) noexcept;
    post_result under_way(post_result begun) noexcept;
    unsigned do_other_work(bool delivered) noexcept;
    /// Goes on with gets, puts and shared copies.
    unsigned do_transfers() noexcept;
    /// The peer's mark has stood for too long: the link ends, and its memory is held back.
    void give_up_mark(std::uint64_t key, std::span<std::byte> range) noexcept;
    [[nodiscard]] bool peer_alive() noexcept;
    /// The peer sees the end of the stream. The socket is kept while a mark stands: its end shows that the peer has ended.
    void hang_up() noexcept;
    /// After the handshake the socket carries only rings, messages that wake this side.
    void on_socket(std::uint32_t events) noexcept;
    /// Takes the rings that have come; false when the socket has ended.
    [[nodiscard]] bool take_rings() noexcept;
    /// The peer has closed, died or broken the protocol. Records it published before are handed up first; see `poll_rest`.
    void lose_peer() noexcept;

    const record* current_ = nullptr;  // during `deliver`, of a payload that may be lent
    bool kept_ = false;
    bool protocol_violated_ = false;
    bool copies_first_ = false;           // at the next poll
    bool transfers_waited_ = false;       // in the last poll, for the coroutines of its messages
    std::uint32_t sent_before_ = 0;       // as `return_memory` saw it last
    std::uint64_t awaited_key_ = 0;       // of closed memory that the peer was touching; 0: none
    std::span<std::byte> awaited_range_;  // of that memory
    time_point awaited_until_{};
    rdmacoro::capabilities capabilities_;
    socket_handler socket_;
};

/// A link that hands up to `Sink`.
template <class Sink>
class link : public link_base {
public:
    link(channel_ref connected, const rdmacoro::capabilities& fixed, Sink& sink)
        : link_base(std::move(connected), fixed), sink_(sink) {}

    unsigned poll(unsigned budget) noexcept final {
        if (down_) [[unlikely]]
            return 0;
        unsigned moved = 0;
        ring_consumer& in = channel_->in;
        for (ring_consumer::small m; moved < budget && in.small_message(m); ++moved) {
            const delivery answer = sink_.deliver(*m.header, m.payload);
            if (answer != delivery::taken) [[unlikely]] {
                if (answer == delivery::defer) return moved + other_work(moved != 0);
                budget = 0;  // this one was consumed, the next one waits for the next poll
            }
            in.advance_small();
            if (down_) [[unlikely]]
                return moved + 1;
        }
        if (moved != 0) return moved + other_work(true);
        // The most frequent outcome: nothing has come. The word is checked for nonsense only now and then.
        if (in.nothing_new() && !hung_up_ && !wants_room_ && touches_nothing() && ++quiet_polls_ % 256 != 0)
            return 0;
        return poll_rest(budget);
    }

private:
    delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept final {
        return sink_.deliver(header, payload);
    }
    void writable() noexcept final { sink_.writable(); }
    void link_down(std::error_code reason) noexcept final { sink_.link_down(reason); }

    Sink& sink_;
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/link.ipp>
#endif
