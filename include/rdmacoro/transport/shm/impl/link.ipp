// A shared-memory link without its short path.
#pragma once

#include <rdmacoro/transport/shm/link.hpp>

#include <rdmacoro/coro/detail/ticks.hpp>

#include <cerrno>

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace rdmacoro::detail::shm {

RDMACORO_DECL post_result link_base::get(const remote_region& there, std::span<std::byte> into,
                                         completion& c) noexcept {
    return down_ ? post_result::failed : under_way(one_sided_.begin(true, there, into.data(), c));
}

RDMACORO_DECL post_result link_base::put(std::span<const std::byte> from, const remote_region& there,
                                         completion& c) noexcept {
    return down_ ? post_result::failed
                 : under_way(one_sided_.begin(false, there, const_cast<std::byte*>(from.data()), c));
}

RDMACORO_DECL region link_base::expose(std::span<std::byte> memory, access_rights rights) noexcept {
    return channel_->domain->register_for(*this, memory, rights);
}

RDMACORO_DECL shared_copy_id link_base::open_shared_copy(std::size_t bytes) noexcept {
    return down_ ? no_shared_copy : copies_.open(bytes);
}

RDMACORO_DECL post_result link_base::copy_from_front(shared_copy_id id, const remote_region& there,
                                                     std::span<std::byte> into, completion& c) noexcept {
    return down_ ? post_result::failed : under_way(copies_.begin_front(id, there, into.data(), c));
}

RDMACORO_DECL post_result link_base::copy_from_back(shared_copy_id id, std::span<const std::byte> from,
                                                    const remote_region& there, completion& c) noexcept {
    return down_ ? post_result::failed : under_way(copies_.begin_back(id, from.data(), there, c));
}

RDMACORO_DECL post_result link_base::under_way(post_result begun) noexcept {
    if (begun == post_result::posted) channel_->domain->heat(*this);
    if (begun != post_result::retry) return begun;
    tell_sink_ = true;  // no memory: it tries again
    return want_room();
}

RDMACORO_DECL bool link_base::quiet() noexcept {
    const std::uint32_t position = channel_->in.position();
    return std::exchange(seen_position_, position) == position && channel_->in.nothing_new() && !hung_up_ &&
           !wants_room_ && touches_nothing();
}

RDMACORO_DECL bool link_base::wants_poll() noexcept {
    return channel_->in.announced() || hung_up_ || wants_room_ || !touches_nothing();
}

RDMACORO_COLD bool link_base::revoke(completion& c) noexcept {
    if (!copies_.revoke(c)) one_sided_.revoke(c);
    return false;
}

RDMACORO_DECL lent_buffer link_base::keep() noexcept {
    if (current_ == nullptr || current_->block < 0 || !channel_->in.may_keep()) return {};
    kept_ = true;
    ++channel_->users;
    return lent_buffer(
        current_->payload,
        [](void* owner, std::uint64_t read) noexcept {
            const auto block = static_cast<std::uint32_t>(read);
            auto* ch = static_cast<channel*>(owner);
            ch->in.unshare_block(block, read >> 32);
            ch->in.free_block(block);
            ch->ring_doorbell();
            ch->release();
        },
        channel_.get(),
        static_cast<std::uint64_t>(current_->block) | std::uint64_t{current_->bytes_to_unshare()} << 32);
}

RDMACORO_DECL bool link_base::touched(std::uint64_t key) noexcept {
    const std::uint64_t marked = channel_->in.region_in_use();
    return marked != 0 && (key == 0 || marked == key);
}

RDMACORO_COLD void link_base::wait_until_untouched(std::uint64_t key, std::span<std::byte> range,
                                                   mark_wait& wait) noexcept {
    for (unsigned spins = 1; touched(key) && !hung_up_; ++spins) {
        if (spins % 64 == 0) ::sched_yield();
        if (spins % 4096 != 0) continue;
        if (!peer_alive()) return;
        if (wait.over()) break;
    }
    if (touched(key)) give_up_mark(key, range);
}

RDMACORO_COLD void link_base::await_untouched(std::uint64_t key, std::span<std::byte> range,
                                              time_point until) noexcept {
    // Another piece of closed memory: the peer has left the first. A peer that lies gains no time by that.
    if (!touches_closed_memory()) awaited_until_ = until;
    awaited_key_ = key;
    awaited_range_ = range;
}

RDMACORO_COLD bool link_base::awaits_untouched(time_point now) noexcept {
    if (awaited_key_ == 0 || down_) return false;
    if (touches_closed_memory() && peer_alive()) {
        if (now < awaited_until_) return true;
        give_up_mark(awaited_key_, awaited_range_);
    }
    awaited_key_ = 0;
    tell_sink_ = wants_room_ = true;
    channel_->domain->heat(*this);
    return false;
}

RDMACORO_COLD void link_base::give_up_mark(std::uint64_t key, std::span<std::byte> range) noexcept {
    const std::uint64_t marked = channel_->in.region_in_use();
    domain_base& domain = *channel_->domain;
    if (marked == awaited_key_) {
        range = awaited_range_;
    } else if (key == 0) {
        range = domain.regions().memory_of(marked);
    }
    // One that has ended touches nothing: its channel need not be kept to see that.
    if (peer_alive()) channel_->standing.stand(domain.shared_arena(), range, marked);
    if (hung_up_) return;
    protocol_violated_ = true;
    lose_peer();
}

RDMACORO_DECL bool link_base::holds_memory() noexcept {
    return !down_ && (channel_->out.may_return() || channel_->peer.uses_pages() ||
                      one_sided_.keeps_memory() || copies_.keeps_memory());
}

RDMACORO_COLD bool link_base::return_memory() noexcept {
    const std::uint32_t sent = channel_->out.position();
    const bool sent_some = std::exchange(sent_before_, sent) != sent;
    if (channel_->peer.used_lately() || sent_some) return true;
    channel_->peer.release_pages();
    channel_->out.return_memory();
    constexpr std::size_t at_a_time = 1024;  // some 50 us
    one_sided_.free_memory(at_a_time);
    copies_.free_memory();
    return one_sided_.keeps_memory();
}

RDMACORO_COLD void link_base::hang_up() noexcept {
    if (channel_->standing.held()) {
        ::shutdown(channel_->socket.get(), SHUT_WR);
    } else {
        channel_->socket.reset();
    }
}

RDMACORO_COLD bool link_base::peer_alive() noexcept {
    if (down_) return false;
    return poll_now(channel_->socket.get(), POLLRDHUP) <= 0;
}

RDMACORO_COLD link_base::link_base(channel_ref connected, const rdmacoro::capabilities& fixed)
    : channel_(std::move(connected)),
      one_sided_(*channel_),
      copies_(*channel_, one_sided_),
      capabilities_(fixed) {
    capabilities_.max_message = channel_->out.max_message();
    capabilities_.segment_bytes = channel_->out.max_message();
    capabilities_.one_sided_offloaded = channel_->peer.vm_allowed();
    socket_.self = this;
    socket_.ready = [](fd_handler& handler, std::uint32_t events) noexcept {
        static_cast<socket_handler&>(handler).self->on_socket(events);
    };
    channel_->domain->watch(socket_, channel_->socket.get(), EPOLLIN | EPOLLRDHUP);
    channel_->domain->add_link(*this);
    channel_->serial = serial();
}

RDMACORO_COLD link_base::~link_base() {
    if (!down_) shut(make_error_code(errc::closed));
}

RDMACORO_COLD void link_base::shut(std::error_code reason) noexcept {
    channel_->in.set_closed();
    {
        // No honest peer that broke the protocol has memory to go on with.
        hung_up_ |= reason == errc::protocol_violation;
        mark_wait wait = channel_->domain->wait_for_marks();
        wait_until_untouched(0, {}, wait);
    }
    awaited_key_ = 0;
    down_ = true;
    channel_->domain->remove_link(*this);
    channel_->in.want_notice(0);  // the number may soon be another link's
    channel_->domain->unwatch(socket_);
    hang_up();
    copies_.fail_all(reason);
    one_sided_.fail_all(reason);
}

[[gnu::noinline]] RDMACORO_DECL post_result link_base::want_room() noexcept {
    wants_room_ = true;
    channel_->domain->heat(*this);
    return post_result::retry;
}

RDMACORO_DECL bool link_base::take_rings() noexcept {
    constexpr int at_a_time = 64;
    char nothing[1];
    for (int n = 0; n < at_a_time; ++n) {
        const ssize_t got = ::recv(channel_->socket.get(), nothing, sizeof nothing, MSG_DONTWAIT);
        if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    return true;
}

RDMACORO_DECL void link_base::on_socket(std::uint32_t events) noexcept {
    constexpr std::uint32_t ended = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    if ((events & ended) != 0 || !take_rings()) {
        lose_peer();
    } else {
        channel_->domain->rung(*this);
        channel_->domain->heat(*this);
    }
}

RDMACORO_COLD void link_base::lose_peer() noexcept {
    hung_up_ = true;
    channel_->domain->unwatch(socket_);
    channel_->domain->heat(*this);
}

RDMACORO_COLD void link_base::close(std::error_code reason) noexcept {
    if (down_) return;
    shut(reason);
    link_down(reason);
}

[[gnu::noinline]] RDMACORO_DECL unsigned link_base::poll_rest(unsigned budget) noexcept {
    unsigned moved = 0;
    bool copied = false;
    while (moved < budget && !down_) {
        record r;
        const auto found = channel_->in.peek(r);
        if (found != ring_consumer::found::record) [[likely]] {
            if (found == ring_consumer::found::violation) [[unlikely]] {
                close(make_error_code(errc::protocol_violation));
                return moved + 1;
            }
            return moved + when_empty(moved != 0);
        }
        // The length of a get's answer is not looked at: the peer could change it before the get is served.
        const bool is_long = r.payload.size() > copy_allowance::always || r.type == record_type::get_request;
        if (is_long) {
            // When it is the turn of gets and puts they find something left.
            if (channel_->domain->copies().used_up() || (copied && transfers_waited_ && !touches_nothing())) {
                channel_->domain->copies_wait(*this, copied);
                return moved + 1 + other_work(moved != 0);
            }
        }
        const delivery answer = hand_up(r);
        if (answer == delivery::defer) break;
        ++moved;
        if (is_long) {
            if (r.type == record_type::message) channel_->domain->message_copied(r.payload.size());
            copied = true;
        }
        if (answer == delivery::pause) break;
    }
    if (!down_) moved += other_work(moved != 0);
    return moved;
}

RDMACORO_DECL delivery link_base::hand_up(const record& r) noexcept {
    delivery answer = delivery::taken;
    if (r.type == record_type::message) [[likely]] {
        const bool timed = r.payload.size() >= write_choice::least_bytes;
        const std::uint64_t began = timed ? ticks() : 0;
        current_ = &r;
        kept_ = false;
        answer = deliver(*r.header, r.payload);
        current_ = nullptr;
        if (answer == delivery::defer) return answer;
        advance(r, kept_, timed && !kept_ ? began : 0);  // one that is lent is read later, if at all
        return answer;
    }
    if (const errc served = one_sided_.serve(r); served == errc::ok) [[likely]] {
        advance(r, false, 0);
    } else {
        close(make_error_code(served));
    }
    return answer;
}

RDMACORO_DECL void link_base::advance(const record& r, bool keep_block, std::uint64_t began) noexcept {
    if (r.block >= 0 && !keep_block)
        channel_->in.unshare_block(static_cast<std::uint32_t>(r.block), r.bytes_to_unshare());
    const std::uint8_t cost =
        began != 0 ? store_cost(block_cost(ticks() - began, r.payload.size())) : std::uint8_t{0};
    channel_->in.advance(r, keep_block, cost);
}

RDMACORO_DECL unsigned link_base::when_empty(bool delivered) noexcept {
    if (hung_up_) [[unlikely]] {
        close(make_error_code(protocol_violated_ ? errc::protocol_violation : errc::peer_lost));
        return 1;
    }
    return other_work(delivered);
}

[[gnu::noinline]] RDMACORO_DECL unsigned link_base::do_other_work(bool delivered) noexcept {
    unsigned moved = 0;
    if (!touches_nothing()) [[unlikely]] {
        if (hung_up_) {
            copies_.fail_all(make_error_code(errc::peer_lost));
            one_sided_.fail_all(make_error_code(errc::peer_lost));
            ++moved;
        } else if (delivered && !transfers_waited_) {
            transfers_waited_ = true;  // the coroutines of these messages do not wait for a long copy
        } else {
            // Where the records of other links have left nothing it stays their turn.
            if (!channel_->domain->copies().used_up()) transfers_waited_ = false;
            moved += do_transfers();
        }
        if (down_) return moved;
    }
    if (wants_room_) [[unlikely]] {
        if (tell_sink_ || channel_->out.has_room()) {
            tell_sink_ = wants_room_ = false;
            writable();
            ++moved;
        }
        if (channel_->out.violated()) {
            close(make_error_code(errc::protocol_violation));
            ++moved;
        }
    }
    return moved;
}

RDMACORO_DECL unsigned link_base::do_transfers() noexcept {
    // In turn: neither takes all that may be copied each time.
    const bool copies_some = !channel_->domain->copies().used_up();
    if (copies_some) copies_first_ = !copies_first_;
    bool moved = copies_first_ && copies_.advance();
    if (!down_) moved |= one_sided_.advance();
    if (!down_ && !copies_first_) moved |= copies_.advance();
    if (copies_.violated()) close(make_error_code(errc::protocol_violation));
    if (!down_ && (one_sided_.waits() || copies_.waits())) {
        channel_->domain->copies_wait(*this, copies_some);
        moved = true;
    }
    return moved ? 1 : 0;
}

}  // namespace rdmacoro::detail::shm
