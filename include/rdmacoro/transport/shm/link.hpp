// A shared-memory link: hands records up to a sink, posts messages, and notices when the peer is gone.
#pragma once

#include <rdmacoro/transport/shm/channel.hpp>
#include <rdmacoro/transport/shm/domain.hpp>
#include <rdmacoro/transport/shm/one_sided.hpp>
#include <rdmacoro/transport/shm/shared_copy.hpp>

#include <chrono>
#include <cstdint>

#include <sys/socket.h>

namespace rdmacoro::detail::shm {

/// What a link is without its sink's type.
class link_base : public pollable {
public:
    link_base(const link_base&) = delete;
    link_base& operator=(const link_base&) = delete;

    [[nodiscard, gnu::always_inline]] post_result post(const message_header& header,
                                                       const const_buffers& payload, completion&) noexcept {
        return post_now(
            header, payload);  // nothing is ever under way here: the payload is in the segment, or it is not
    }
    [[nodiscard]] post_result post_copied(const message_header& header,
                                          const const_buffers& payload) noexcept {
        return post_now(header, payload);
    }
    [[nodiscard]] post_result get(const remote_region& there, std::span<std::byte> into,
                                  completion& c) noexcept {
        return down_ ? post_result::failed : one_sided_.begin(true, there, into.data(), c);
    }
    [[nodiscard]] post_result put(std::span<const std::byte> from, const remote_region& there,
                                  completion& c) noexcept {
        return down_ ? post_result::failed
                     : one_sided_.begin(false, there, const_cast<std::byte*>(from.data()), c);
    }
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        return channel_->domain->try_register(memory, rights);
    }
    [[nodiscard]] shared_copy_id open_shared_copy(std::size_t bytes) noexcept {
        return down_ ? no_shared_copy : copies_.open(bytes);
    }
    void close_shared_copy(shared_copy_id id) noexcept { copies_.close(id); }
    [[nodiscard]] post_result copy_from_front(shared_copy_id id, const remote_region& there,
                                              std::span<std::byte> into, completion& c) noexcept {
        return down_ ? post_result::failed : copies_.begin_front(id, there, into.data(), c);
    }
    [[nodiscard]] post_result copy_from_back(shared_copy_id id, std::span<const std::byte> from,
                                             const remote_region& there, completion& c) noexcept {
        return down_ ? post_result::failed : copies_.begin_back(id, from.data(), there, c);
    }
    /// Messages are never `posted` here; only what touches the peer's memory can be.
    bool revoke(completion& c) noexcept {
        if (!copies_.revoke(c)) one_sided_.revoke(c);
        return false;
    }

    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return capabilities_; }
    [[nodiscard]] scheduler& owner() noexcept { return channel_->domain->owner(); }
    [[nodiscard]] const std::string& peer_name() const noexcept { return channel_->name; }

    /// See `message_link`: takes the payload that is being delivered over. Only payloads that lie in a block can be.
    [[nodiscard]] lent_buffer keep() noexcept {
        if (current_ == nullptr || current_->block < 0 || !channel_->in.may_keep()) return {};
        kept_ = true;
        ++channel_->users;
        return lent_buffer(
            current_->payload,
            [](void* owner, std::uint64_t block) noexcept {
                auto* ch = static_cast<channel*>(owner);
                ch->in.free_block(static_cast<std::uint32_t>(block));
                ch->ring_doorbell();
                ch->release();
            },
            channel_.get(), static_cast<std::uint64_t>(current_->block));
    }

    void set_parked(bool parked) noexcept final { channel_->in.set_parked(parked); }

    /// A peer marks a region for one piece of a copy, far less than a millisecond. One that leaves its mark for `longest_mark`
    /// was stopped in the middle, and looks at the table again before the next piece, or it lies: its link ends.
    void wait_until_untouched(std::uint64_t key) noexcept final {
        std::chrono::steady_clock::time_point since{};
        for (unsigned spins = 1; !hung_up_; ++spins) {
            const std::uint64_t marked = channel_->in.region_in_use();
            if (marked == 0 || (key != 0 && marked != key)) return;
            if (spins % 64 == 0) ::sched_yield();
            if (spins % 4096 != 0) continue;
            if (!peer_alive()) return;
            const auto now = std::chrono::steady_clock::now();
            if (since == std::chrono::steady_clock::time_point{}) since = now;
            if (now - since < longest_mark) continue;
            lies_ = true;
            on_socket();
        }
    }

protected:
    static constexpr std::chrono::seconds longest_mark{1};

    [[nodiscard]] bool peer_alive() noexcept {
        if (down_) return false;
        char nothing = 0;
        const ssize_t got = ::recv(channel_->socket.get(), &nothing, 1, MSG_PEEK | MSG_DONTWAIT);
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    }

    link_base(channel_ref connected, const rdmacoro::capabilities& fixed)
        : channel_(std::move(connected)),
          one_sided_(*channel_),
          copies_(*channel_, one_sided_),
          capabilities_(fixed) {
        capabilities_.max_message = channel_->out.max_message();
        capabilities_.segment_bytes = channel_->out.max_message();
        capabilities_.one_sided_offloaded = channel_->peer.vm_allowed();
        socket_.self = this;
        socket_.ready = [](fd_handler& handler, std::uint32_t) noexcept {
            static_cast<socket_handler&>(handler).self->on_socket();
        };
        channel_->domain->watch(socket_, channel_->socket.get(), EPOLLIN | EPOLLRDHUP);
        channel_->domain->add_link(*this);
    }
    ~link_base() {
        if (!down_) shut(make_error_code(errc::closed));
    }

    /// Ends the link for this side; the sink is the derived class's to tell.
    void shut(std::error_code reason) noexcept {
        channel_->in.set_closed();
        wait_until_untouched(0);
        down_ = true;
        unlink();
        channel_->domain->unwatch(socket_);
        channel_->socket.reset();  // tells the peer
        copies_.fail_all(reason);
        one_sided_.fail_all(reason);
    }
    [[nodiscard]] bool touches_nothing() const noexcept { return one_sided_.idle() && copies_.idle(); }

    struct socket_handler : fd_handler {
        link_base* self = nullptr;
    };

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
    [[gnu::noinline]] post_result want_room() noexcept {
        wants_room_ = true;
        return post_result::retry;
    }

    /// Nothing is said on the socket after the handshake: whatever it tells, the peer is gone or broken. What it had
    /// published before is handed up first; see poll.
    void on_socket() noexcept {
        hung_up_ = true;
        channel_->domain->unwatch(socket_);
    }

    channel_ref channel_;
    one_sided_engine one_sided_;
    shared_copy_engine copies_;
    const record* current_ = nullptr;
    bool kept_ = false;
    bool down_ = false;
    bool hung_up_ = false;  // the peer is gone, or we want no more of it
    bool lies_ = false;
    bool wants_room_ = false;
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
            if (sink_.deliver(*m.header, m.payload) == delivery::later) return moved + other_work();
            in.advance_small();
            if (down_) [[unlikely]]
                return moved + 1;
        }
        if (moved != 0) return moved + other_work();
        // Nothing: the way that is taken most often. Nonsense in the word is looked for now and then.
        if (in.nothing_new() && !hung_up_ && !wants_room_ && touches_nothing() && ++quiet_polls_ % 256 != 0)
            return 0;
        return poll_rest(0, budget);
    }

    void close(std::error_code reason) noexcept {
        if (down_) return;
        shut(reason);
        sink_.link_down(reason);
    }

private:
    /// Goes on behind `moved` short messages with a record of another kind, or with finding none.
    [[gnu::noinline]] unsigned poll_rest(unsigned moved, unsigned budget) noexcept {
        while (moved < budget && !down_) {
            record r;
            const auto found = channel_->in.peek(r);
            if (found != ring_consumer::found::record) [[likely]] {
                if (found == ring_consumer::found::violation) [[unlikely]] {
                    close(make_error_code(errc::protocol_violation));
                    return moved + 1;
                }
                return moved + when_empty();
            }
            if (!hand_up(r)) break;
            ++moved;
        }
        if (!down_) moved += other_work();
        return moved;
    }

    /// False: not now.
    bool hand_up(const record& r) noexcept {
        if (r.type == record_type::message) [[likely]] {
            current_ = &r;
            kept_ = false;
            const delivery answer = sink_.deliver(*r.header, r.payload);
            current_ = nullptr;
            if (answer == delivery::later) return false;
            channel_->in.advance(r, kept_);
            return true;
        }
        if (!one_sided_.serve(r)) {
            close(make_error_code(errc::protocol_violation));
            return true;
        }
        channel_->in.advance(r, false);
        return true;
    }

    unsigned when_empty() noexcept {
        if (hung_up_) [[unlikely]] {
            close(make_error_code(lies_ ? errc::protocol_violation : errc::peer_lost));
            return 1;
        }
        return other_work();
    }

    [[gnu::always_inline]] unsigned other_work() noexcept {
        if (channel_->in.take_gave_back()) [[unlikely]]
            channel_->ring_doorbell();
        return touches_nothing() && !wants_room_ ? 0 : do_other_work();
    }

    [[gnu::noinline]] unsigned do_other_work() noexcept {
        unsigned moved = 0;
        if (!touches_nothing()) [[unlikely]] {
            if (hung_up_) {
                copies_.fail_all(make_error_code(errc::peer_lost));
                one_sided_.fail_all(make_error_code(errc::peer_lost));
                ++moved;
            } else {
                moved += one_sided_.advance() ? 1u : 0u;
                moved += copies_.advance() ? 1u : 0u;
                if (copies_.violated()) close(make_error_code(errc::protocol_violation));
            }
            if (down_) return moved;
        }
        if (wants_room_) [[unlikely]] {
            if (channel_->out.has_room()) {
                wants_room_ = false;
                sink_.writable();
                ++moved;
            }
            if (channel_->out.violated()) {
                close(make_error_code(errc::protocol_violation));
                ++moved;
            }
        }
        return moved;
    }

    Sink& sink_;
    std::uint32_t quiet_polls_ = 0;
};

}  // namespace rdmacoro::detail::shm
