// Sending of a tcp domain's socket..
//
// The first message of a turn goes out at once, so that a lone message waits for nothing. Messages posted after it in the
// same turn go out together, at the scheduler's next poll or when the chunk is full. While each flush carries several
// messages and the engine is not idle the first waits, too: then many cost one system call.
//
// A system call costs as much as dozens of messages. So while several come at every poll, and only then, a few polls let
// them gather. Their senders go on meanwhile, all but the last one's: a sender that waits for all of its messages waits for
// the flush, and nothing is left behind when senders turn to other work. Messages sent in place never wait so: their sender
// can't go on before the kernel has them.
#pragma once

#include <rdmacoro/transport/tcp/engine.hpp>

#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace rdmacoro::detail {

RDMACORO_DECL void tcp_session::mark_dirty() noexcept {
    list_node<tcp_dirty_tag>& node = *this;
    if (!full_ && !broken_ && !node.linked()) engine_.dirty_.push_back(*this);
}

RDMACORO_DECL void tcp_session::mark_work() noexcept {
    list_node<tcp_work_tag>& node = *this;
    if (!node.linked()) engine_.work_.push_back(*this);
}

RDMACORO_DECL bool tcp_session::goes_at_once() noexcept {
    const bool first = last_post_turn_ != engine_.turn_ && burst_epoch_ != engine_.epoch_;
    last_post_turn_ = engine_.turn_;
    return first && !full_ && queue_.empty() && engine_.may_send(*this);
}

RDMACORO_DECL post_result tcp_session::post(const message_header& header, const const_buffers& payload,
                                            completion& c) noexcept {
    if (payload.size() > copy_limit) return gather_and_post(header, payload, c);
    const post_result answer = post_copied(header, payload);
    if (answer != post_result::posted) return answer;
    copied_.push_back(c);
    return post_result::posted;
}

/// While messages gather over several polls short ones are copied all the same: a system call for each poll would cost
/// more than their copies do.
RDMACORO_DECL post_result tcp_session::post_in_place(const message_header& header,
                                                     const const_buffers& payload, completion& c) noexcept {
    if (payload.size() < in_place_limit || in_steady_burst()) return post(header, payload, c);
    return gather_and_post(header, payload, c);
}

/// Answers `posted` when the message waits for the turn's end; its memory is not needed any more.
RDMACORO_DECL post_result tcp_session::post_copied(const message_header& header,
                                                   const const_buffers& payload) noexcept {
    if (broken_) [[unlikely]]
        return post_result::failed;
    const std::size_t bytes = payload.size();
    const bool at_once = goes_at_once();
    std::byte* to = reserve(tcp_message_head + bytes);
    if (to == nullptr) [[unlikely]]
        return broken_ ? post_result::failed : no_room();
    tcp_word{tcp_frame::message, static_cast<std::uint32_t>(bytes)}.store(to);
    std::memcpy(to + tcp_word_bytes, header.data(), message_header_bytes);
    copy_out(payload, 0, to + tcp_message_head, bytes);
    queue_.commit(tcp_message_head + bytes);
    ++unflushed_;
    if (at_once) {
        flush();
        return broken_ ? post_result::failed : post_result::done;
    }
    mark_dirty();
    return post_result::posted;
}

/// Room in the queue, made by sending its items if need be.
RDMACORO_DECL std::byte* tcp_session::reserve(std::size_t bytes) noexcept {
    std::byte* to = queue_.reserve(bytes);
    if (to == nullptr && !full_) [[unlikely]] {
        flush();
        if (!broken_) to = queue_.reserve(bytes);
    }
    return to;
}

RDMACORO_DECL post_result tcp_session::gather_and_post(const message_header& header,
                                                       const const_buffers& payload, completion& c) noexcept {
    if (broken_) [[unlikely]]
        return post_result::failed;
    // What waits here is copied if it is canceled, and stays then: behind a peer that reads nothing that is bounded.
    constexpr std::size_t most_waiting = std::size_t{2} << 20;
    if (full_ && queue_.message_bytes() > most_waiting) return no_room();
    const bool at_once = goes_at_once();
    std::byte* to = reserve(tcp_message_head);
    if (to == nullptr) [[unlikely]]
        return broken_ ? post_result::failed : no_room();
    tcp_send_item* item = queue_.new_item();
    if (item == nullptr) return no_room();
    tcp_word{tcp_frame::message, static_cast<std::uint32_t>(payload.size())}.store(to);
    std::memcpy(to + tcp_word_bytes, header.data(), message_header_bytes);
    queue_.commit(tcp_message_head);
    item->from = tcp_send_item::source::message;
    item->owner = &c;
    item->data = payload;
    queue_.append(*item);
    c.transport_state = item;
    ++unflushed_;
    if (at_once) {
        flush();
        if (posted_as(c) == tcp_posted::listed) {
            tcp_completion_list::remove(c);
            return broken_ ? post_result::failed : post_result::done;
        }
        return post_result::posted;
    }
    mark_dirty();
    return post_result::posted;
}

[[gnu::cold]] RDMACORO_DECL post_result tcp_session::no_room() noexcept {
    want_writable_ = true;
    mark_work();
    return post_result::retry;
}

RDMACORO_DECL post_result tcp_session::get(const remote_region& there, std::span<std::byte> into,
                                           completion& c) noexcept {
    if (broken_) [[unlikely]]
        return post_result::failed;
    if (!operations_.get(there, into, c)) return no_room();
    send_operations();
    return post_result::posted;
}

RDMACORO_DECL post_result tcp_session::put(std::span<const std::byte> from, const remote_region& there,
                                           completion& c) noexcept {
    if (broken_) [[unlikely]]
        return post_result::failed;
    if (!operations_.put(from, there, c)) return no_room();
    send_operations();
    return post_result::posted;
}

RDMACORO_DECL void tcp_session::send_operations() noexcept {
    ++unflushed_;
    if (goes_at_once()) {
        flush();
    } else {
        mark_dirty();
    }
}

RDMACORO_DECL bool tcp_session::revoke(completion& c) noexcept {
    switch (posted_as(c)) {
        case tcp_posted::listed: tcp_completion_list::remove(c); return true;
        case tcp_posted::operation: return operations_.revoke(c, queue_);
        case tcp_posted::item: break;
    }
    return queue_.take_over(*static_cast<tcp_send_item*>(c.transport_state));
}

// Answers to the peer and our own requests take turns, and neither runs far ahead: messages go between their parts.
RDMACORO_DECL void tcp_session::fill_queue() noexcept {
    while (queue_.one_sided_bytes() < tcp_operations::most_ahead) {
        const bool answered = server_.send_next(queue_);
        const bool asked = operations_.send_next(queue_);
        if (!answered && !asked) return;
    }
}

RDMACORO_DECL void tcp_session::flush() noexcept {
    list_node<tcp_dirty_tag>& node = *this;
    node.unlink();
    submit_send();
    engine_.submit_and_reap();
}

RDMACORO_DECL bool tcp_session::in_steady_burst() const noexcept {
    return burst_polls_ >= steady_burst && burst_epoch_ == engine_.epoch_;
}

RDMACORO_DECL bool tcp_session::lets_wait() noexcept {
    constexpr unsigned most_waited = 8;       // polls
    constexpr std::size_t enough = 8 * 1024;  // bytes
    const unsigned fresh = unflushed_ - seen_unflushed_;
    seen_unflushed_ = unflushed_;
    burst_polls_ = fresh > 1 && (burst_polls_ == 0 || burst_epoch_ == engine_.epoch_) ? burst_polls_ + 1 : 0;
    if (burst_polls_ < steady_burst || waited_polls_ == most_waited || queue_.copied_bytes() >= enough ||
        queue_.has_items() || operations_.wants_to_send() || server_.wants_to_send()) {
        return false;
    }
    ++waited_polls_;
    completion* last = copied_.pop_back();
    finished_.splice_back(copied_);
    if (last != nullptr) copied_.push_back(*last);
    if (!finished_.empty()) mark_work();
    return true;
}

RDMACORO_DECL void tcp_session::submit_send() noexcept {
    waited_polls_ = 0;
    if (full_ || broken_ || phase_ == phase::closed) return;
    fill_queue();
    if (engine_.headers_used_ == tcp_engine::most_headers ||
        engine_.vectors_used_ + most_pieces > tcp_engine::most_vectors) {
        engine_.submit_and_reap();
    }
    iovec* pieces = engine_.vectors_.data() + engine_.vectors_used_;
    const unsigned count = queue_.gather(pieces, most_pieces, sending_);
    if (count == 0) {
        // Memory was short for the first of them. No event says when there is some, so each poll tries again, without a system call.
        if (server_.wants_to_send() || operations_.wants_to_send()) mark_dirty();
        return;
    }
    for (unsigned n = 0; n < count; ++n) engine_.sent_ += pieces[n].iov_len;
    engine_.last_sender_ = this;
    burst_epoch_ = unflushed_ > 1 ? engine_.epoch_ : 0;
    unflushed_ = 0;
    seen_unflushed_ = 0;
    io_uring_sqe& sqe = engine_.request(*this, tcp_request::send_now);
    if (count == 1) {
        io_uring_prep_send(&sqe, fd_, pieces->iov_base, pieces->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
        engine_.vectors_used_ += count;
        msghdr& message = engine_.headers_[engine_.headers_used_++];
        message = {};
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        io_uring_prep_sendmsg(&sqe, fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (place_ >= 0) tcp_ring::use_file(sqe, place_);
}

RDMACORO_DECL void tcp_session::sent(int outcome) noexcept {
    if (outcome < 0 && outcome != -EAGAIN && outcome != -EINTR && outcome != -ENOBUFS && outcome != -ENOMEM)
        [[unlikely]] {
        send_failed();
        return;
    }
    // A copied message needs its sender's memory no more, whether the socket took it or not.
    finished_.splice_back(copied_);
    if (outcome > 0) {
        list_node<tcp_sent_tag>& watched = *this;
        if (!watched.linked()) engine_.liveness_.watch(*this);
        queue_.consumed(static_cast<std::size_t>(outcome), [this](tcp_send_item& item) noexcept {
            switch (item.from) {
                case tcp_send_item::source::message:
                    if (item.owner != nullptr) finished_.push_back(*item.owner);
                    break;
                case tcp_send_item::source::get_data: server_.part_sent(item); break;
                case tcp_send_item::source::put_data: operations_.part_sent(item); break;
            }
        });
    }
    if (outcome >= 0 && static_cast<std::size_t>(outcome) == sending_) {
        if (!queue_.empty() || server_.wants_to_send() || operations_.wants_to_send()) mark_dirty();
    } else if (outcome >= 0 || outcome == -EAGAIN) {
        full_ = true;
        ++in_kernel_;
        io_uring_prep_poll_add(&engine_.request(*this, tcp_request::writable), fd_, POLLOUT);
    } else {
        mark_dirty();
    }
    if (!finished_.empty() || want_writable_) mark_work();
}

// The peer may have sent more before it closed: received bytes are still handed up, and the end of the stream ends the link.
[[gnu::cold]] RDMACORO_DECL void tcp_session::send_failed() noexcept {
    broken_ = true;
    failed_.splice_back(copied_);
    queue_.clear([this](tcp_send_item& item) noexcept {
        if (item.from == tcp_send_item::source::message && item.owner != nullptr)
            failed_.push_back(*item.owner);
        if (item.from == tcp_send_item::source::put_data) operations_.part_sent(item);
    });
    ::shutdown(fd_, SHUT_RDWR);
    try_soon();
}

}  // namespace rdmacoro::detail
