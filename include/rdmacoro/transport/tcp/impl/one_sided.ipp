// Get and put over a byte stream: requests of this side and service for the peer.
#pragma once

#include <rdmacoro/transport/tcp/one_sided.hpp>

#include <algorithm>
#include <cstring>
#include <new>

namespace rdmacoro::detail {

RDMACORO_DECL bool tcp_operations::get(const remote_region& there, std::span<std::byte> into,
                                       completion& c) noexcept {
    return add({&c, there.key, there.address, into.size(), into.data(), none, 0, kind::get, false});
}

RDMACORO_DECL bool tcp_operations::put(std::span<const std::byte> from, const remote_region& there,
                                       completion& c) noexcept {
    // The bytes are only read; one field serves both directions.
    return add({&c, there.key, there.address, from.size(), const_cast<std::byte*>(from.data()), none, 0,
                kind::put, false});
}

RDMACORO_DECL bool tcp_operations::wants_to_send() const noexcept {
    return sending_ != none || (first_waiting_ != none && outstanding_ < most_outstanding);
}

RDMACORO_DECL bool tcp_operations::send_next(tcp_send_queue& queue) noexcept {
    if (sending_ != none) return send_put_part(queue);
    if (first_waiting_ == none || outstanding_ == most_outstanding) return false;
    const std::uint32_t index = first_waiting_;
    operation& op = operations_[index];
    if (op.what == kind::get) {
        std::byte* to = queue.reserve(tcp_word_bytes + get_request::wire_bytes);
        if (to == nullptr) return false;
        tcp_word{tcp_frame::get_request, 0}.store(to);
        get_request{op.key, op.address, op.remaining, index}.store(to + tcp_word_bytes);
        queue.commit(tcp_word_bytes + get_request::wire_bytes);
        start_first();
        return true;
    }
    start_first();
    sending_ = index;
    return send_put_part(queue);
}

RDMACORO_DECL bool tcp_operations::revoke(completion& c, tcp_send_queue& queue) noexcept {
    const auto index = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(c.transport_state) >> 2);
    operation& op = operations_[index];
    if (!op.started) {  // the peer never hears of it
        unlink_waiting(index);
        free(index);
        return false;
    }
    op.owner = nullptr;
    op.local = nullptr;
    op.revoked = true;
    if (op.parts != 0) {
        queue.for_each([index, &queue](tcp_send_item& item) noexcept {
            // Announced already, so it goes out. Without memory for the copy zeros do.
            if (item.from == tcp_send_item::source::put_data && item.operation == index)
                queue.take_over(item);
        });
    }
    return op.what == kind::put && op.parts == 0 && sending_ != index;
}

RDMACORO_DECL bool tcp_operations::data_begins(std::uint32_t index, std::size_t bytes) const noexcept {
    return started(index) && operations_[index].what == kind::get && bytes <= operations_[index].remaining;
}

RDMACORO_DECL bool tcp_operations::ended(const one_sided_status& status) noexcept {
    const std::uint32_t index = status.operation;
    if (!started(index) || sending_ == index || status.outcome == errc::protocol_violation) return false;
    operation& op = operations_[index];
    if (op.parts != 0) return false;
    if (status.outcome == errc::canceled && !op.revoked) return false;  // only this side cancels it
    if (op.what == kind::get && status.outcome == errc::ok && op.remaining != 0) return false;
    --outstanding_;
    completion* owner = op.owner;
    free(index);
    if (owner != nullptr)
        owner->done(*owner, status.outcome == errc::ok ? std::error_code() : make_error_code(status.outcome));
    if (outstanding_ == 0 && first_waiting_ == none && operations_.size() > most_kept) {
        operations_ = {};
        first_free_ = none;
    }
    return true;
}

RDMACORO_DECL void tcp_operations::fail(std::error_code reason) noexcept {
    for (std::uint32_t index = 0; index < operations_.size(); ++index) {
        if (operations_[index].what == kind::none) continue;
        completion* owner = operations_[index].owner;
        free(index);
        if (owner != nullptr) owner->done(*owner, reason);
    }
    first_waiting_ = last_waiting_ = sending_ = none;
    outstanding_ = 0;
}

RDMACORO_DECL bool tcp_operations::started(std::uint32_t index) const noexcept {
    return index < operations_.size() && operations_[index].what != kind::none && operations_[index].started;
}

RDMACORO_DECL bool tcp_operations::add(const operation& op) noexcept try {
    std::uint32_t index = first_free_;
    if (index != none) {
        first_free_ = operations_[index].next;
        operations_[index] = op;
    } else {
        index = static_cast<std::uint32_t>(operations_.size());
        operations_.push_back(op);
    }
    op.owner->transport_state = reinterpret_cast<void*>((std::uintptr_t{index} << 2) |
                                                        static_cast<std::uintptr_t>(tcp_posted::operation));
    operations_[index].previous = last_waiting_;
    (last_waiting_ != none ? operations_[last_waiting_].next : first_waiting_) = index;
    last_waiting_ = index;
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

RDMACORO_DECL void tcp_operations::free(std::uint32_t index) noexcept {
    operations_[index].what = kind::none;
    operations_[index].next = first_free_;
    first_free_ = index;
}

RDMACORO_DECL void tcp_operations::start_first() noexcept {
    operations_[first_waiting_].started = true;
    unlink_waiting(first_waiting_);
    ++outstanding_;
}

RDMACORO_DECL void tcp_operations::unlink_waiting(std::uint32_t index) noexcept {
    const operation& op = operations_[index];
    (op.previous != none ? operations_[op.previous].next : first_waiting_) = op.next;
    (op.next != none ? operations_[op.next].previous : last_waiting_) = op.previous;
}

RDMACORO_DECL bool tcp_operations::send_put_part(tcp_send_queue& queue) noexcept {
    const std::uint32_t index = sending_;
    operation& op = operations_[index];
    if (op.revoked) op.remaining = 0;  // unsent data stays unsent: a frame of no data ends the put
    const std::size_t bytes = static_cast<std::size_t>(std::min<std::uint64_t>(op.remaining, part_bytes));
    const bool copied = bytes <= copy_limit;
    constexpr std::size_t head = tcp_word_bytes + put_data::wire_bytes;
    std::byte* to = queue.reserve(head + (copied ? bytes : 0));
    if (to == nullptr) return false;
    tcp_send_item* item = copied ? nullptr : queue.new_item();
    if (!copied && item == nullptr) return false;
    tcp_word{tcp_frame::put_data, static_cast<std::uint32_t>(bytes)}.store(to);
    put_data{op.key, op.address, op.remaining, index}.store(to + tcp_word_bytes);
    if (copied && bytes != 0) std::memcpy(to + head, op.local, bytes);
    queue.commit(head + (copied ? bytes : 0));
    if (!copied) {
        item->from = tcp_send_item::source::put_data;
        item->operation = index;
        item->data = const_buffers(std::span<const std::byte>(op.local, bytes));
        queue.append(*item);
        ++op.parts;
    }
    op.address += bytes;
    op.remaining -= bytes;
    if (op.local != nullptr) op.local += bytes;
    if (op.remaining == 0) sending_ = none;
    return true;
}

RDMACORO_DECL bool tcp_server::get_requested(const get_request& request) noexcept {
    const errc allowed =
        regions_.check(request.key, request.address, request.length, access_rights::remote_read);
    return push({request.key, request.address, allowed == errc::ok ? request.length : 0, request.operation, 0,
                 allowed});
}

RDMACORO_DECL bool tcp_server::put_begins(const put_data& part, std::size_t bytes) noexcept {
    if (bytes > part.remaining) return false;
    if (put_.active) {
        if (part.operation != put_.operation || part.key != put_.key) return false;
        if (bytes == 0 && part.remaining == 0) {  // given up
            put_.remaining = 0;
            if (put_.outcome == errc::ok) put_.outcome = errc::canceled;
            return true;
        }
        if (bytes == 0 || part.address != put_.address || part.remaining != put_.remaining) return false;
        return true;
    }
    if (bytes == 0 && part.remaining != 0) return false;
    put_ = {
        part.key,       part.address,
        part.remaining, part.operation,
        true,           regions_.check(part.key, part.address, part.remaining, access_rights::remote_write)};
    return true;
}

RDMACORO_DECL bool tcp_server::put_frame_ended() noexcept {
    if (put_.remaining != 0) return true;
    put_.active = false;
    return push({0, 0, 0, put_.operation, 0, put_.outcome});
}

RDMACORO_DECL bool tcp_server::send_next(tcp_send_queue& queue) noexcept {
    if (count_ == 0) return false;
    answer& front = answers_[first_];
    if (front.remaining != 0) {
        const errc allowed =
            regions_.check(front.key, front.address, front.remaining, access_rights::remote_read);
        if (allowed == errc::ok) return send_data(front, queue);
        front.outcome = allowed;
        front.remaining = 0;
    }
    if (front.parts != 0) return false;  // the status depends on how they end
    constexpr std::size_t bytes = tcp_word_bytes + one_sided_status::wire_bytes;
    std::byte* to = queue.reserve(bytes);
    if (to == nullptr) return false;
    tcp_word{tcp_frame::one_sided_status, 0}.store(to);
    one_sided_status{front.operation, front.outcome}.store(to + tcp_word_bytes);
    queue.commit(bytes);
    first_ = (first_ + 1) % answers_.size();
    if (--count_ == 0 && answers_.size() > tcp_operations::most_kept) {
        answers_ = {};
        first_ = 0;
    }
    return true;
}

RDMACORO_DECL void tcp_server::part_sent(const tcp_send_item& item) noexcept {
    answer& front = answers_[first_];
    --front.parts;
    if (item.filler && front.outcome == errc::ok) {
        front.outcome = errc::bad_key;
        front.remaining = 0;
    }
}

RDMACORO_DECL bool tcp_server::push(const answer& what) noexcept try {
    if (count_ == most_outstanding) return false;
    if (count_ == answers_.size()) {
        // Grows to the number of requests that the other side has outstanding, up to the limit.
        std::vector<answer> more;
        more.reserve(answers_.empty() ? 16 : 2 * answers_.size());
        for (std::size_t i = 0; i < count_; ++i) more.push_back(answers_[(first_ + i) % answers_.size()]);
        more.resize(more.capacity());
        answers_ = std::move(more);
        first_ = 0;
    }
    answers_[(first_ + count_++) % answers_.size()] = what;
    return true;
} catch (const std::bad_alloc&) {
    return false;  // ends the link
}

RDMACORO_DECL bool tcp_server::send_data(answer& front, tcp_send_queue& queue) noexcept {
    const std::size_t bytes =
        static_cast<std::size_t>(std::min<std::uint64_t>(front.remaining, tcp_operations::part_bytes));
    const bool copied = bytes <= tcp_operations::copy_limit;
    constexpr std::size_t head = tcp_word_bytes + get_data::wire_bytes;
    std::byte* to = queue.reserve(head + (copied ? bytes : 0));
    if (to == nullptr) return false;
    const auto* from = reinterpret_cast<const std::byte*>(front.address);
    tcp_send_item* item = copied ? nullptr : queue.new_item();
    if (!copied && item == nullptr) return false;
    tcp_word{tcp_frame::get_data, static_cast<std::uint32_t>(bytes)}.store(to);
    get_data{front.operation}.store(to + tcp_word_bytes);
    if (copied) std::memcpy(to + head, from, bytes);
    queue.commit(head + (copied ? bytes : 0));
    if (!copied) {
        item->from = tcp_send_item::source::get_data;
        item->key = front.key;
        item->data = const_buffers(std::span<const std::byte>(from, bytes));
        queue.append(*item);
        ++front.parts;
    }
    front.address += bytes;
    front.remaining -= bytes;
    return true;
}

}  // namespace rdmacoro::detail
