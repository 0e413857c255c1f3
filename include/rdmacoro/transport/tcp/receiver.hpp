// Cuts the incoming byte stream of a tcp link into frames; long data is received straight into its destination.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/tcp/chunk_pool.hpp>
#include <rdmacoro/transport/tcp/frame.hpp>
#include <rdmacoro/transport/tcp/one_sided.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <sys/uio.h>

namespace rdmacoro::detail {

/// The functions of a link's sink.
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
        hungry,      ///< every complete frame was handed up
        blocked,     ///< the sink deferred a frame
        unfinished,  ///< the budget is used up, or the sink paused
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

    /// Describes where the next bytes go: returns the number of pieces, at most two; 0 when memory is short. Only when
    /// the last `parse` answered `hungry`.
    [[nodiscard]] unsigned space(tcp_upper& up, iovec (&pieces)[2]) noexcept;

    /// `bytes` came, filling the pieces in order.
    void arrived(tcp_upper& up, std::size_t bytes) noexcept;

    /// Hands up complete frames, at most `budget` messages; counts `budget` down.
    [[nodiscard]] state parse(tcp_upper& up, unsigned& budget) noexcept;

    /// Lends the payload that is being delivered.
    [[nodiscard]] lent_buffer keep() noexcept { return chunks_.lend(*chunk_, delivering_); }

    /// Gives the chunk back if it holds nothing: a quiet link needs none.
    void release_if_empty() noexcept {
        if (begin_ == end_) release();
    }

    /// Nothing more is handed up; received bytes are discarded. May be called from inside `parse`: a payload that is being
    /// delivered stays readable until `deliver` returns.
    void stop() noexcept;

private:
    enum class target : std::uint8_t { none, message, get, put };

    void release() noexcept;

    // A chunk with room behind `end_` for the rest of any frame that is handed up whole.
    [[nodiscard]] bool ready_chunk() noexcept;

    void begin_long_data(target to, std::size_t bytes) noexcept;

    [[nodiscard]] unsigned space_in_chunk(iovec (&pieces)[2]) noexcept;

    // Memory for the next bytes of long data, as far as it is contiguous; empty: throw them away.
    [[nodiscard]] std::span<std::byte> next_destination(tcp_upper& up) noexcept;

    void has_landed(tcp_upper& up, std::size_t bytes) noexcept;

    void end_long_data() noexcept;

    // Moves long data that lies in the chunk already. False when more must come.
    [[nodiscard]] bool copy_long_data(tcp_upper& up) noexcept;

    [[nodiscard]] bool one_sided_frame(const tcp_word& word, const std::byte* head) noexcept;

    tcp_chunk_pool& chunks_;
    tcp_operations& operations_;
    tcp_server& server_;
    tcp_chunk* chunk_ = nullptr;
    std::uint32_t begin_ = 0;  // in the chunk: received bytes not yet handed up
    std::uint32_t end_ = 0;
    std::size_t remaining_ = 0;  // bytes of long data to come
    std::size_t direct_ = 0;     // bytes of the pieces described last that are long data
    std::size_t read_size_ = tcp_chunk::capacity;
    std::span<const std::byte> delivering_{};
    std::uint32_t operation_ = 0;  // the get that the arriving data belongs to, while `target_` is get
    target target_ = target::none;
    bool stopped_ = false;
    bool delivers_ = false;  // the sink may be reading the chunk
    bool violated_ = false;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/receiver.ipp>
#endif
