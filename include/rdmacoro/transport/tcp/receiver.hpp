// Cuts the incoming byte stream of a tcp link into frames and sees to it that long data lands where it belongs.
#pragma once

#include <rdmacoro/transport/tcp/chunk_pool.hpp>
#include <rdmacoro/transport/tcp/frame.hpp>
#include <rdmacoro/transport/tcp/one_sided.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <sys/uio.h>

namespace rdmacoro::detail {

/// What a link does with what arrives: its sink's functions.
class tcp_upper {
public:
    virtual delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept = 0;
    virtual delivery begin_payload(const message_header& header, std::size_t bytes) noexcept = 0;
    virtual std::span<std::byte> payload_space() noexcept = 0;
    virtual void payload_arrived(std::size_t bytes) noexcept = 0;
    virtual void writable() noexcept = 0;
    virtual void link_down(std::error_code reason) noexcept = 0;

protected:
    ~tcp_upper() = default;
};

/// The parser of one link. Bytes come in through `space` and `arrived`, whole frames go out from `parse`.
///
/// Short frames gather in a chunk. Once the head of a frame with long data is known the next bytes go straight to their
/// destination, and a few more, the next frame's head, to the chunk.
class tcp_receiver {
public:
    static constexpr std::size_t whole_limit = 4096;  // message data up to this is handed up whole, always
    static constexpr std::size_t tail_bytes = 512;    // read along behind long data
    static constexpr std::size_t least_read = 8192;
    static constexpr std::size_t least_direct = 1024;  // shorter pieces of long data come by way of the chunk
    static constexpr std::size_t discard_bytes = 64 * 1024;

    enum class state : std::uint8_t {
        hungry,      ///< all was handed up; the next frame is not complete
        blocked,     ///< the sink said later
        unfinished,  ///< the budget is used up
        violation,   ///< the peer broke the protocol
        stopped,     ///< `stop` was called from inside
    };

    tcp_receiver(tcp_chunk_pool& chunks, tcp_operations& operations, tcp_server& server) noexcept
        : chunks_(chunks), operations_(operations), server_(server) {}
    tcp_receiver(const tcp_receiver&) = delete;
    tcp_receiver& operator=(const tcp_receiver&) = delete;
    ~tcp_receiver() { release(); }

    /// Whether the next bytes belong to long data.
    [[nodiscard]] bool in_long_data() const noexcept { return target_ != target::none; }
    [[nodiscard]] bool holds_nothing() const noexcept { return begin_ == end_; }

    /// Describes where the next bytes go: up to two pieces, the answer says how many; 0 when memory is short. Only when
    /// the last `parse` answered `hungry`.
    [[nodiscard]] unsigned space(tcp_upper& up, iovec (&pieces)[2]) noexcept {
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

    /// `bytes` came, filling the pieces in order.
    void arrived(tcp_upper& up, std::size_t bytes) noexcept {
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

    /// Hands up what is complete, at most `budget` messages; counts it down.
    [[nodiscard]] state parse(tcp_upper& up, unsigned& budget) noexcept {
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
                if (answer == delivery::later) return state::blocked;
                begin_ += static_cast<std::uint32_t>(head);
                begin_long_data(target::message, word.bytes);
            } else {
                delivering_ = {frame + head, word.bytes};
                const delivery answer = up.deliver(header, delivering_);
                if (stopped_) [[unlikely]]
                    return state::stopped;
                if (answer == delivery::later) return state::blocked;
                begin_ += static_cast<std::uint32_t>(head + word.bytes);
            }
            --budget;
        }
    }

    /// Lends the payload that is being delivered.
    [[nodiscard]] lent_buffer keep() noexcept { return chunks_.lend(*chunk_, delivering_); }

    /// Gives the chunk back if it holds nothing: a quiet link needs none.
    void release_if_empty() noexcept {
        if (begin_ == end_) release();
    }

    /// No more is handed up; what came is thrown away. May be called from inside `parse`.
    void stop() noexcept {
        stopped_ = true;
        release();
    }

private:
    enum class target : std::uint8_t { none, message, get, put };

    void release() noexcept {
        if (chunk_ != nullptr) chunks_.drop(*chunk_);
        chunk_ = nullptr;
        begin_ = end_ = 0;
    }

    // A chunk with room behind `end_` for the rest of any frame that is handed up whole.
    [[nodiscard]] bool ready_chunk() noexcept {
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

    void begin_long_data(target to, std::size_t bytes) noexcept {
        target_ = to;
        remaining_ = bytes;
        read_size_ = least_read;  // what follows is often long, too, and should not come by way of the chunk
    }

    [[nodiscard]] unsigned space_in_chunk(iovec (&pieces)[2]) noexcept {
        pieces[0] = {chunk_->bytes() + end_, std::min(tcp_chunk::capacity - end_, read_size_)};
        direct_ = 0;
        return 1;
    }

    // Memory for the next bytes of long data, as far as it is contiguous; empty: throw them away.
    [[nodiscard]] std::span<std::byte> next_destination(tcp_upper& up) noexcept {
        std::span<std::byte> memory;
        switch (target_) {
            case target::none: break;
            case target::message: memory = up.payload_space(); break;
            case target::get:
                if (std::byte* to = operations_.destination(operation_); to != nullptr)
                    memory = {to, remaining_};
                break;
            case target::put:
                if (std::byte* to = server_.destination(remaining_); to != nullptr) memory = {to, remaining_};
                break;
        }
        return memory.first(std::min(memory.size(), remaining_));
    }

    void has_landed(tcp_upper& up, std::size_t bytes) noexcept {
        remaining_ -= bytes;
        switch (target_) {
            case target::none: break;
            case target::message: up.payload_arrived(bytes); break;
            case target::get: operations_.data_arrived(operation_, bytes); break;
            case target::put: server_.put_arrived(bytes); break;
        }
        if (remaining_ == 0) end_long_data();
    }

    void end_long_data() noexcept {
        const target ended = target_;
        target_ = target::none;
        if (ended == target::put && !server_.put_frame_ended()) violated_ = true;
    }

    // Moves long data that lies in the chunk already. False when more must come.
    [[nodiscard]] bool copy_long_data(tcp_upper& up) noexcept {
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
        if (!memory.empty()) std::memcpy(memory.data(), chunk_->bytes() + begin_, now);
        begin_ += static_cast<std::uint32_t>(now);
        has_landed(up, now);
        return true;
    }

    [[nodiscard]] bool one_sided_frame(const tcp_word& word, const std::byte* head) noexcept {
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

    tcp_chunk_pool& chunks_;
    tcp_operations& operations_;
    tcp_server& server_;
    tcp_chunk* chunk_ = nullptr;
    std::uint32_t begin_ = 0;  // in the chunk: what has come and was not handed up
    std::uint32_t end_ = 0;
    std::size_t remaining_ = 0;  // bytes of long data to come
    std::size_t direct_ = 0;     // bytes of the pieces described last that are long data
    std::size_t read_size_ = tcp_chunk::capacity;
    std::span<const std::byte> delivering_{};
    std::uint32_t operation_ = 0;  // whose data comes, when it is a get's
    target target_ = target::none;
    bool stopped_ = false;
    bool violated_ = false;
};

}  // namespace rdmacoro::detail
