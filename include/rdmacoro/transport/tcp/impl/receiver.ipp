// The parser of a tcp link.
#pragma once

#include <rdmacoro/transport/tcp/receiver.hpp>

#include <algorithm>
#include <cstring>

namespace rdmacoro::detail {

RDMACORO_DECL unsigned tcp_receiver::space(tcp_upper& up, iovec (&pieces)[2]) noexcept {
    if (!ready_chunk()) return 0;
    if (target_ == target::none) return space_in_chunk(pieces);
    const std::span<std::byte> destination = next_destination(up);
    if (stopped_) [[unlikely]]
        return 0;
    if (!destination.empty() && destination.size() < std::min(least_direct, remaining_))
        return space_in_chunk(pieces);
    if (destination.empty()) {
        static std::byte nowhere[discard_bytes];
        direct_ = std::min(remaining_, discard_bytes);
        pieces[0] = {nowhere, direct_};
    } else {
        direct_ = destination.size();
        pieces[0] = {destination.data(), direct_};
    }
    if (direct_ != remaining_) return 1;
    pieces[1] = {chunk_->bytes() + end_, tail_bytes};
    return 2;
}

RDMACORO_DECL void tcp_receiver::arrived(tcp_upper& up, std::size_t bytes) noexcept {
    if (direct_ != 0) {
        const std::size_t landed = std::min(bytes, direct_);
        direct_ = 0;
        bytes -= landed;
        has_landed(up, landed);
    } else if (bytes == read_size_) {
        read_size_ = std::min(2 * read_size_, tcp_chunk::capacity);
    }
    end_ += static_cast<std::uint32_t>(bytes);
}

RDMACORO_DECL tcp_receiver::state tcp_receiver::parse(tcp_upper& up, unsigned& budget) noexcept {
    for (;;) {
        if (stopped_) [[unlikely]]
            return state::stopped;
        if (violated_) [[unlikely]]
            return state::violation;
        if (target_ != target::none) {
            if (!copy_long_data(up)) return state::hungry;
            continue;
        }
        const std::size_t have = end_ - begin_;
        if (have < tcp_word_bytes) return state::hungry;
        const std::byte* frame = chunk_->bytes() + begin_;
        const tcp_word word = tcp_word::load(frame);
        const std::size_t head = word.head_bytes();
        if (head == 0) [[unlikely]]
            return state::violation;
        if (have < head) return state::hungry;
        if (word.kind != tcp_frame::message) {
            begin_ += static_cast<std::uint32_t>(head);
            if (!one_sided_frame(word, frame + tcp_word_bytes)) return state::violation;
            continue;
        }
        if (have < head + word.bytes && word.bytes <= whole_limit) return state::hungry;
        if (budget == 0) return state::unfinished;
        message_header header;
        std::memcpy(header.data(), frame + tcp_word_bytes, message_header_bytes);
        if (have < head + word.bytes) {
            const delivery answer = up.begin_payload(header, word.bytes);
            if (stopped_) [[unlikely]]
                return state::stopped;
            if (answer == delivery::defer) return state::blocked;
            begin_ += static_cast<std::uint32_t>(head);
            begin_long_data(target::message, word.bytes);
        } else {
            delivering_ = {frame + head, word.bytes};
            delivers_ = true;
            const delivery answer = up.deliver(header, delivering_);
            delivers_ = false;
            if (stopped_) [[unlikely]] {
                release();
                return state::stopped;
            }
            if (answer == delivery::defer) return state::blocked;
            begin_ += static_cast<std::uint32_t>(head + word.bytes);
            if (answer == delivery::pause) {
                --budget;
                return state::unfinished;
            }
        }
        --budget;
    }
}

RDMACORO_DECL void tcp_receiver::stop() noexcept {
    stopped_ = true;
    if (!delivers_) release();
}

RDMACORO_DECL void tcp_receiver::release() noexcept {
    if (chunk_ != nullptr) chunks_.drop(*chunk_);
    chunk_ = nullptr;
    begin_ = end_ = 0;
}

RDMACORO_DECL bool tcp_receiver::ready_chunk() noexcept {
    constexpr std::size_t enough = whole_limit + tcp_longest_head + least_read;
    if (chunk_ == nullptr) [[unlikely]] {
        chunk_ = chunks_.take();
        if (chunk_ == nullptr) return false;
        begin_ = end_ = 0;
        return true;
    }
    if (chunk_->readers == 0) {
        if (begin_ == end_) {
            begin_ = end_ = 0;
        } else if (tcp_chunk::capacity - end_ < enough) {
            std::memmove(chunk_->bytes(), chunk_->bytes() + begin_, end_ - begin_);
            end_ -= begin_;
            begin_ = 0;
        }
    } else if (tcp_chunk::capacity - end_ < enough) {
        tcp_chunk* fresh = chunks_.take();
        if (fresh == nullptr) return false;
        std::memcpy(fresh->bytes(), chunk_->bytes() + begin_, end_ - begin_);
        chunks_.drop(*chunk_);
        chunk_ = fresh;
        end_ -= begin_;
        begin_ = 0;
    }
    return true;
}

RDMACORO_DECL void tcp_receiver::begin_long_data(target to, std::size_t bytes) noexcept {
    target_ = to;
    remaining_ = bytes;
    read_size_ = least_read;  // the next data is often long, too, and should not pass through the chunk
}

RDMACORO_DECL unsigned tcp_receiver::space_in_chunk(iovec (&pieces)[2]) noexcept {
    pieces[0] = {chunk_->bytes() + end_, std::min(tcp_chunk::capacity - end_, read_size_)};
    direct_ = 0;
    return 1;
}

RDMACORO_DECL std::span<std::byte> tcp_receiver::next_destination(tcp_upper& up) noexcept {
    std::span<std::byte> memory;
    switch (target_) {
        case target::none: break;
        case target::message: memory = up.payload_space(); break;
        case target::get:
            if (std::byte* to = operations_.destination(operation_); to != nullptr) memory = {to, remaining_};
            break;
        case target::put:
            if (std::byte* to = server_.destination(remaining_); to != nullptr) memory = {to, remaining_};
            break;
    }
    return memory.first(std::min(memory.size(), remaining_));
}

RDMACORO_DECL void tcp_receiver::has_landed(tcp_upper& up, std::size_t bytes) noexcept {
    remaining_ -= bytes;
    switch (target_) {
        case target::none: break;
        case target::message: up.payload_arrived(bytes); break;
        case target::get: operations_.data_arrived(operation_, bytes); break;
        case target::put: server_.put_arrived(bytes); break;
    }
    if (remaining_ == 0) end_long_data();
}

RDMACORO_DECL void tcp_receiver::end_long_data() noexcept {
    const target ended = target_;
    target_ = target::none;
    if (ended == target::put && !server_.put_frame_ended()) violated_ = true;
}

RDMACORO_DECL bool tcp_receiver::copy_long_data(tcp_upper& up) noexcept {
    if (remaining_ == 0) {
        end_long_data();
        return true;
    }
    const std::size_t have = std::min<std::size_t>(end_ - begin_, remaining_);
    if (have == 0) return false;
    const std::span<std::byte> memory = next_destination(up);
    if (stopped_) [[unlikely]]
        return true;
    const std::size_t now = memory.empty() ? have : std::min(have, memory.size());
    if (!memory.empty()) copy_long(memory.data(), chunk_->bytes() + begin_, now);
    begin_ += static_cast<std::uint32_t>(now);
    has_landed(up, now);
    return true;
}

RDMACORO_DECL bool tcp_receiver::one_sided_frame(const tcp_word& word, const std::byte* head) noexcept {
    switch (word.kind) {
        case tcp_frame::get_request: return server_.get_requested(get_request::load(head));
        case tcp_frame::get_data:
            operation_ = get_data::load(head).operation;
            if (!operations_.data_begins(operation_, word.bytes)) return false;
            begin_long_data(target::get, word.bytes);
            return true;
        case tcp_frame::put_data:
            if (!server_.put_begins(put_data::load(head), word.bytes)) return false;
            begin_long_data(target::put, word.bytes);
            return true;
        case tcp_frame::one_sided_status: return operations_.ended(one_sided_status::load(head));
        case tcp_frame::message: break;
    }
    return false;
}

}  // namespace rdmacoro::detail
