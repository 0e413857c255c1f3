// The outgoing byte stream of a tcp link.
#pragma once

#include <rdmacoro/transport/tcp/send_queue.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

namespace rdmacoro::detail {

[[gnu::noinline]] RDMACORO_DECL bool tcp_item_pool::grow() noexcept try {
    items_.reserve(items_.size() + 1);  // the items are in use from then on
    items_.push_back(std::make_unique<tcp_send_item[]>(step));
    for (std::size_t i = 0; i < step; ++i) give(items_.back()[i]);
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

RDMACORO_DECL std::byte* tcp_send_queue::reserve(std::size_t bytes) noexcept {
    if (chunk_ == nullptr) [[unlikely]] {
        chunk_ = chunks_.take();
        if (chunk_ == nullptr) return nullptr;
        begin_ = end_ = 0;
    }
    if (tcp_chunk::capacity - end_ < bytes && !compact(bytes)) [[unlikely]]
        return nullptr;
    return chunk_->bytes() + end_;
}

RDMACORO_DECL void tcp_send_queue::append(tcp_send_item& item) noexcept {
    item.next = nullptr;
    item.sent = 0;
    item.at = end_;
    item.filler = false;
    (last_ != nullptr ? last_->next : first_) = &item;
    last_ = &item;
    (item.from == tcp_send_item::source::message ? message_bytes_ : one_sided_bytes_) += item.data.size();
}

RDMACORO_DECL unsigned tcp_send_queue::gather(iovec* pieces, unsigned limit, std::size_t& bytes) noexcept {
    unsigned count = 0;
    std::uint32_t position = begin_;
    bytes = 0;
    for (tcp_send_item* item = first_; item != nullptr && count < limit; item = item->next) {
        if (item->at != position) {
            pieces[count++] = {chunk_->bytes() + position, item->at - position};
            bytes += item->at - position;
            position = item->at;
        }
        count += gather_item(*item, pieces + count, limit - count, bytes);
    }
    if (count < limit && position != end_) {
        pieces[count++] = {chunk_->bytes() + position, end_ - position};
        bytes += end_ - position;
    }
    return count;
}

RDMACORO_DECL bool tcp_send_queue::take_over(tcp_send_item& item) noexcept {
    item.owner = nullptr;
    const std::size_t left = item.data.size() - item.sent;
    item.copy = new (std::nothrow) std::byte[left];
    if (item.copy == nullptr) {
        item.filler = true;
        return false;
    }
    copy_out(item.data, item.sent, item.copy, left);
    item.data = const_buffers(std::span<const std::byte>(item.copy, left));
    item.sent = 0;
    return true;
}

RDMACORO_DECL void tcp_send_queue::release() noexcept {
    if (chunk_ != nullptr) chunks_.drop(*chunk_);
    chunk_ = nullptr;
    begin_ = end_ = 0;
}

[[gnu::noinline]] RDMACORO_DECL bool tcp_send_queue::compact(std::size_t bytes) noexcept {
    if (begin_ < tcp_chunk::capacity / 2) return false;
    std::memmove(chunk_->bytes(), chunk_->bytes() + begin_, end_ - begin_);
    for (tcp_send_item* item = first_; item != nullptr; item = item->next) item->at -= begin_;
    end_ -= begin_;
    begin_ = 0;
    return tcp_chunk::capacity - end_ >= bytes;
}

RDMACORO_DECL unsigned tcp_send_queue::gather_item(tcp_send_item& item, iovec* pieces, unsigned limit,
                                                   std::size_t& bytes) noexcept {
    if (item.from == tcp_send_item::source::get_data && !item.filler) {
        const std::span<const std::byte> memory = item.data[0];
        item.filler = regions_.check(item.key, reinterpret_cast<std::uint64_t>(memory.data()), memory.size(),
                                     access_rights::remote_read) != errc::ok;
    }
    unsigned count = 0;
    const auto add = [&](std::span<const std::byte> piece) {
        pieces[count++] = {const_cast<std::byte*>(piece.data()), piece.size()};
        bytes += piece.size();
    };
    if (item.filler) {
        for (std::size_t left = item.data.size() - item.sent; left > 0 && count < limit;) {
            const std::size_t now = std::min(zeros_bytes, left);
            add({zeros_, now});
            left -= now;
        }
        return count;
    }
    for (const_buffer_cursor at(item.data, item.sent); !at.at_end() && count < limit;) {
        add(at.here());
        at.advance(at.here().size());
    }
    return count;
}

}  // namespace rdmacoro::detail
