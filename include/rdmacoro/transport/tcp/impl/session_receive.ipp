// Receiving, opening and closing of a tcp domain's socket..
#pragma once

#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>

#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_DECL tcp_session::tcp_session(tcp_engine& engine, int fd) noexcept
    : engine_(engine),
      fd_(fd),
      queue_(engine.chunks(), engine.items_, engine.regions()),
      server_(engine.regions()),
      receiver_(engine.chunks(), operations_, server_) {}

RDMACORO_DECL std::string tcp_session::peer_name() const {
    return fd_ >= 0 ? inet_endpoint::peer(fd_).url("tcp") : std::string("a closed connection");
}

RDMACORO_COLD std::uint8_t tcp_session::peer_host() const noexcept {
    return fd_ >= 0 ? host_hash(inet_endpoint::peer(fd_)) : 0;
}

RDMACORO_DECL scheduler& tcp_session::owner() const noexcept { return engine_.owner(); }

RDMACORO_DECL region tcp_session::expose(std::span<std::byte> memory, access_rights rights) noexcept {
    return try_register(engine_, engine_.regions(), memory, rights);
}

RDMACORO_DECL void tcp_session::attach(tcp_upper& up) noexcept {
    up_ = &up;
    if (phase_ != phase::ready) return;
    try_soon();
}

// One try in any state of receiving; but only one system call a turn: a caller that posts a window of receives polls as
// often.
RDMACORO_DECL unsigned tcp_session::poll(unsigned budget) noexcept {
    list_node<tcp_work_tag>& work = *this;
    if (!work.linked() && !stalled_) {
        if (can_receive()) {
            if (std::exchange(polled_in_, engine_.turn_) == engine_.turn_) return 0;
            if (!prepare_receive()) return 0;
            submit_receive();
            engine_.submit_and_reap();
        } else if (engine_.ring_.wants_enter() || engine_.ring_.has_completions()) {
            engine_.submit_and_reap();
        }
        if (!work.linked()) return 0;
    }
    work.unlink();
    return serve(budget);
}

/// Sets the memory for the next bytes. False: not now.
RDMACORO_DECL bool tcp_session::prepare_receive() noexcept {
    if (phase_ == phase::greeting) {
        in_pieces_[0] = {greeting_.data() + greeted_, greeting_.size() - greeted_};
        in_count_ = 1;
        return true;
    }
    in_count_ = receiver_.space(*up_, in_pieces_);
    return in_count_ != 0;
}

RDMACORO_DECL void tcp_session::submit_receive() noexcept {
    if (!can_receive()) {
        if (waited_polls_ != 0) try_soon();  // sends have begun to gather since it was prepared
        return;
    }
    io_uring_sqe& sqe = engine_.request(*this, tcp_request::receive_now);
    if (in_count_ == 1) {
        io_uring_prep_recv(&sqe, fd_, in_pieces_[0].iov_base, in_pieces_[0].iov_len, MSG_DONTWAIT);
    } else {
        in_message_ = {};
        in_message_.msg_iov = in_pieces_;
        in_message_.msg_iovlen = in_count_;
        io_uring_prep_recvmsg(&sqe, fd_, &in_message_, MSG_DONTWAIT);
    }
    if (place_ >= 0) tcp_ring::use_file(sqe, place_);
}

/// Hands up recorded completions and frames. Returns how many messages and completions moved.
RDMACORO_DECL unsigned tcp_session::serve(unsigned budget) noexcept {
    unsigned moved = 0;
    while (completion* c = finished_.pop_front()) {
        c->done(*c, {});
        ++moved;
    }
    if (phase_ == phase::ready && up_ != nullptr) {
        const unsigned granted = budget;
        hand_up(budget);
        moved += granted - budget;
        if (want_writable_ && phase_ == phase::ready) {
            if (!full_ && queue_.copied_bytes() <= tcp_chunk::capacity / 2) {
                want_writable_ = false;
                up_->writable();
                ++moved;
            } else if (!full_) {
                mark_work();
            }
        }
        return moved;
    }
    if (phase_ == phase::greeting) greet();
    if (watcher_ != nullptr && phase_ != phase::closed) watcher_->progress(*this);
    return moved;
}

RDMACORO_DECL void tcp_session::hand_up(unsigned& budget) noexcept {
    const bool came_in_kernel = held_first_ != no_buffer;
    if (received_ && look_at_outcome()) {
        active();
        receiver_.arrived(*up_, static_cast<std::size_t>(receive_outcome_));
    }
    list_node<tcp_readable_tag>& node = *this;
    if (std::exchange(stalled_, false)) node.unlink();
    tcp_receiver::state state = tcp_receiver::state::hungry;
    while (phase_ == phase::ready) {
        state = receiver_.parse(*up_, budget);
        if (state != tcp_receiver::state::hungry || !feed_held()) break;
    }
    if (phase_ != phase::ready) return;
    if (came_in_kernel) active();
    if (server_.wants_to_send() || operations_.wants_to_send()) mark_dirty();
    // Bytes that end up in the kernel's hands while we could take them ourselves come later and are copied once more.
    if (armed_ == armed::multishot && came_in_kernel && (hot_ || receiver_.in_long_data())) cancel_receive();
    switch (state) {
        case tcp_receiver::state::hungry:
            if (ended_ && held_first_ == no_buffer) {
                close(make_error_code(errc::peer_lost));
            } else if (!hot_ && armed_ == armed::no) {
                try_soon();
            } else if (!hot_) {
                receiver_.release_if_empty();
            }
            break;
        case tcp_receiver::state::blocked:
            stalled_ = true;
            node.unlink();
            engine_.stalled_.push_back(*this);
            if (armed_ == armed::multishot) cancel_receive();
            break;
        case tcp_receiver::state::unfinished:
            stalled_ = true;
            mark_work();
            break;
        case tcp_receiver::state::violation: close(make_error_code(errc::protocol_violation)); break;
        case tcp_receiver::state::stopped: break;
    }
}

/// True when bytes came.
RDMACORO_DECL bool tcp_session::look_at_outcome() noexcept {
    received_ = false;
    if (receive_outcome_ > 0) return true;
    switch (receive_outcome_) {
        case -EAGAIN:
            if (!hot_) arm_receive();
            break;
        case -EINTR:
        case -ENOBUFS:
        case -ENOMEM: try_soon(); break;
        default: ended_ = true;
    }
    return false;
}

/// Moves bytes that the kernel put into the domain's buffers to where they belong. False when there are none, or no room.
RDMACORO_DECL bool tcp_session::feed_held() noexcept {
    if (held_first_ == no_buffer) return false;
    iovec pieces[2];
    const unsigned count = receiver_.space(*up_, pieces);
    if (count == 0) {
        if (phase_ == phase::ready) mark_work();
        return false;
    }
    const tcp_engine::held_buffer buffer = engine_.held_[held_first_];
    const std::byte* from = engine_.ring_.buffer(held_first_) + held_taken_;
    const std::size_t now = std::min<std::size_t>(pieces[0].iov_len, buffer.bytes - held_taken_);
    std::memcpy(pieces[0].iov_base, from, now);
    held_taken_ += static_cast<std::uint32_t>(now);
    if (held_taken_ == buffer.bytes) {
        engine_.ring_.return_buffer(held_first_);
        held_first_ = buffer.next;
        held_taken_ = 0;
    }
    receiver_.arrived(*up_, now);
    return true;
}

RDMACORO_DECL void tcp_session::hold(std::uint16_t buffer, std::uint32_t bytes) noexcept {
    engine_.held_[buffer] = {bytes, no_buffer};
    (held_first_ != no_buffer ? engine_.held_[held_last_].next : held_first_) = buffer;
    held_last_ = buffer;
}

RDMACORO_DECL void tcp_session::drop_held() noexcept {
    while (held_first_ != no_buffer) {
        engine_.ring_.return_buffer(held_first_);
        held_first_ = engine_.held_[held_first_].next;
    }
    held_taken_ = 0;
}

/// Receiving is tried at the next poll.
RDMACORO_DECL void tcp_session::try_soon() noexcept {
    list_node<tcp_readable_tag>& node = *this;
    if (!hot_ && !stalled_ && phase_ != phase::closed && !node.linked()) engine_.readable_.push_back(*this);
}

/// Puts a request in the kernel that notices arriving data from now on.
RDMACORO_DECL void tcp_session::arm_receive() noexcept {
    if (armed_ != armed::no || phase_ == phase::closed) return;
    list_node<tcp_readable_tag>& node = *this;
    node.unlink();
    receiver_.release_if_empty();
    ++in_kernel_;
    // Long data goes straight to its destination, and a greeting ends before the link's first frame: the kernel must
    // not read ahead in either. While stalled links hold all of the domain's buffers a multishot receive ends as it begins.
    if (engine_.ring_.may_multishot() && phase_ == phase::ready && !receiver_.in_long_data() &&
        !std::exchange(found_no_buffer_, false)) {
        armed_ = armed::multishot;
        io_uring_sqe& sqe = engine_.request(*this, tcp_request::receive_many);
        io_uring_prep_recv_multishot(&sqe, fd_, nullptr, 0, 0);
        sqe.flags |= IOSQE_BUFFER_SELECT;
        sqe.buf_group = 0;
    } else {
        armed_ = armed::poll;
        io_uring_prep_poll_add(&engine_.request(*this, tcp_request::readable), fd_, POLLIN);
    }
}

RDMACORO_DECL void tcp_session::cancel_receive() noexcept {
    armed_ = armed::canceling;
    cancel(tcp_request::receive_many);
}

// By its user data: a search for the requests of a descriptor looks at all that the domain has in the kernel.
RDMACORO_DECL void tcp_session::cancel(tcp_request what) noexcept {
    io_uring_sqe& sqe = engine_.ring_.request();
    io_uring_prep_cancel64(&sqe, reinterpret_cast<std::uint64_t>(this) | static_cast<unsigned>(what), 0);
    sqe.user_data = static_cast<unsigned>(tcp_request::cancel);
}

/// Called when bytes came. A link that receives often gets a place among the hot ones, as long as there is one.
RDMACORO_DECL void tcp_session::active() noexcept {
    const std::uint64_t turns = engine_.turn_ - std::exchange(last_active_turn_, engine_.turn_);
    if (hot_) return;
    // Turns are short while links are armed, and long where coroutines compute: both measures of time count.
    const time_point now = engine_.owner().now();
    const bool again =
        now - std::exchange(last_active_, now) < tcp_engine::soon || turns < tcp_engine::soon_turns;
    arrivals_in_a_row_ = again ? arrivals_in_a_row_ + 1 : 0;
    if (arrivals_in_a_row_ < tcp_engine::hot_after || engine_.hot_.size() >= engine_.options_.most_polled)
        return;
    engine_.heat(*this);
    list_node<tcp_readable_tag>& node = *this;
    node.unlink();
}

// Received bytes of a socket that is not a link yet.
RDMACORO_DECL void tcp_session::greet() noexcept {
    if (!received_) return;
    if (look_at_outcome()) {
        greeted_ += static_cast<std::size_t>(receive_outcome_);
        if (greeted_ < greeting_.size()) try_soon();
    }
}

RDMACORO_DECL void tcp_session::start_connect(const sockaddr* address, socklen_t bytes) {
    address_ = std::make_unique<sockaddr_storage>();
    std::memcpy(address_.get(), address, bytes);
    ++in_kernel_;
    io_uring_prep_connect(&engine_.request(*this, tcp_request::connect), fd_,
                          reinterpret_cast<const sockaddr*>(address_.get()), bytes);
}

RDMACORO_DECL void tcp_session::start_accept() noexcept {
    phase_ = phase::listening;
    ++in_kernel_;
    io_uring_prep_accept(&engine_.request(*this, tcp_request::accept), fd_, nullptr, nullptr, SOCK_CLOEXEC);
}

RDMACORO_DECL void tcp_session::start_greeting(const tcp_greeting& own) noexcept {
    phase_ = phase::greeting;
    const tcp_greeting::bytes bytes = own.store();
    // Not by the queue, which may find no chunk. A new socket has room for so few bytes; one that does not take them is ended, as the next
    // receive finds.
    if (::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size()))
        ::shutdown(fd_, SHUT_RDWR);
    try_soon();
}

RDMACORO_DECL void tcp_session::complete_all(std::error_code reason) noexcept {
    while (completion* c = finished_.pop_front()) c->done(*c, {});
    failed_.splice_back(copied_);
    queue_.clear([this](tcp_send_item& item) noexcept {
        if (item.from == tcp_send_item::source::message && item.owner != nullptr)
            failed_.push_back(*item.owner);
    });
    while (completion* c = failed_.pop_front()) c->done(*c, reason);
    operations_.fail(reason);
}

RDMACORO_DECL void tcp_session::close(std::error_code reason) noexcept {
    if (phase_ == phase::closed) return;
    if (phase_ == phase::ready && !full_ && !broken_) flush();
    tcp_upper* up = std::exchange(up_, nullptr);
    let_go();
    complete_all(reason);
    if (up != nullptr) up->link_down(reason);
}

RDMACORO_DECL void tcp_session::abandon() noexcept {
    watcher_ = nullptr;
    up_ = nullptr;
    close(make_error_code(errc::closed));
    owned_ = false;
    if (in_kernel_ == 0) engine_.reap(*this);
}

// The descriptor is closed when the kernel has given up the last request of it.
RDMACORO_DECL void tcp_session::let_go() noexcept {
    if (phase_ == phase::listening) {
        // Accepted, and not yet taken by the watcher.
        if (const int accepted = take_outcome(); accepted != no_outcome && accepted >= 0) ::close(accepted);
    }
    const phase was = std::exchange(phase_, phase::closed);
    broken_ = true;
    receiver_.stop();
    drop_held();
    static_cast<list_node<tcp_dirty_tag>&>(*this).unlink();
    static_cast<list_node<tcp_work_tag>&>(*this).unlink();
    static_cast<list_node<tcp_readable_tag>&>(*this).unlink();
    static_cast<list_node<tcp_sent_tag>&>(*this).unlink();
    engine_.cool(*this);
    if (in_kernel_ != 0) {
        ::shutdown(fd_, SHUT_RDWR);
        if (armed_ == armed::poll) cancel(tcp_request::readable);
        if (armed_ == armed::multishot || armed_ == armed::canceling) cancel_receive();
        if (full_) cancel(tcp_request::writable);
        if (was == phase::opening) cancel(tcp_request::connect);
        if (was == phase::listening) cancel(tcp_request::accept);
        // Twice: the first call cancels, the second lets the kernel report it.
        engine_.submit_and_reap();
        engine_.submit_and_reap();
    }
    if (in_kernel_ == 0 && fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace rdmacoro::detail
