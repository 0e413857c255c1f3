// Get and put over a byte stream: the operations of this side, and the server of the peer's.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/detail/one_sided_wire.hpp>
#include <rdmacoro/transport/tcp/frame.hpp>
#include <rdmacoro/transport/tcp/send_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmacoro::detail {

/// This side's gets and puts of one link. At most `most_outstanding` are unanswered; further ones wait here.
class tcp_operations {
public:
    static constexpr std::size_t copy_limit = 4 * 1024;  // data up to this is copied behind its head
    /// Records of operations, and of answers, that an idle link keeps: of more the memory is given back.
    static constexpr std::size_t most_kept = 128;
    static constexpr std::size_t part_bytes = 256 * 1024;  // data of one frame: messages go between
    static constexpr std::size_t most_ahead = 2 * part_bytes;

    /// False when memory is short.
    [[nodiscard]] bool get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept;
    [[nodiscard]] bool put(std::span<const std::byte> from, const remote_region& there,
                           completion& c) noexcept;

    [[nodiscard]] bool empty() const noexcept { return outstanding_ == 0 && first_waiting_ == none; }
    /// Something waits that could be sent.
    [[nodiscard]] bool wants_to_send() const noexcept;

    /// Appends the next frame to `queue`. False when nothing waits or there is no room.
    [[nodiscard]] bool send_next(tcp_send_queue& queue) noexcept;

    /// The queue has sent, or will never send, a part of a put.
    void part_sent(const tcp_send_item& item) noexcept { --operations_[item.operation].parts; }

    /// The memory of the operation is the caller's again; `c` is forgotten. True when all of a put had left it.
    bool revoke(completion& c, tcp_send_queue& queue) noexcept;

    /// Data of a get begins to arrive. False: this side did not request it.
    [[nodiscard]] bool data_begins(std::uint32_t index, std::size_t bytes) const noexcept;
    /// Where its next byte goes; nullptr: nowhere.
    [[nodiscard]] std::byte* destination(std::uint32_t index) const noexcept {
        return operations_[index].local;
    }
    void data_arrived(std::uint32_t index, std::size_t bytes) noexcept {
        operation& op = operations_[index];
        op.remaining -= bytes;
        if (op.local != nullptr) op.local += bytes;
    }

    /// The peer's status of an operation has come. False: the peer must not send it.
    [[nodiscard]] bool ended(const one_sided_status& status) noexcept;

    /// Ends everything; the link is down.
    void fail(std::error_code reason) noexcept;

private:
    static constexpr std::uint32_t none = 0xffff'ffff;
    enum class kind : std::uint8_t { none, get, put };

    struct operation {
        completion* owner;  // nullptr once revoked
        std::uint64_t key;
        std::uint64_t address;    // of the next byte there
        std::uint64_t remaining;  // bytes: of a get to arrive, of a put to be put into the queue
        std::byte* local;         // the next byte here
        std::uint32_t next;       // in the list of waiting operations, or of free ones
        std::uint32_t parts;      // of a put, in the queue
        kind what;
        bool started;  // the other side knows of it, or will
        bool revoked = false;
        std::uint32_t previous = none;  // in the list of waiting operations
    };

    [[nodiscard]] bool started(std::uint32_t index) const noexcept;

    [[nodiscard]] bool add(const operation& op) noexcept;

    void free(std::uint32_t index) noexcept;

    void start_first() noexcept;
    void unlink_waiting(std::uint32_t index) noexcept;

    [[nodiscard]] bool send_put_part(tcp_send_queue& queue) noexcept;

    std::vector<operation> operations_;  // given back once all have ended, if it is long
    std::uint32_t first_free_ = none;
    std::uint32_t first_waiting_ = none;
    std::uint32_t last_waiting_ = none;
    std::uint32_t sending_ = none;  // the put that is being sent; its parts follow each other
    std::size_t outstanding_ = 0;
};

/// Serves the peer's operations: gets are answered part by part, in order; puts go to registered memory.
class tcp_server {
public:
    explicit tcp_server(const region_table& regions) noexcept : regions_(regions) {}

    /// False: the other side has more unanswered requests than allowed.
    [[nodiscard]] bool get_requested(const get_request& request) noexcept;

    /// A frame of a put begins, with `bytes` bytes of data. False: the peer must not send it now.
    [[nodiscard]] bool put_begins(const put_data& part, std::size_t bytes) noexcept;

    /// Where the next `bytes` bytes of the put go; nullptr: nowhere. Asked each time before they are written.
    [[nodiscard]] std::byte* destination(std::size_t bytes) noexcept {
        if (put_.outcome == errc::ok)
            put_.outcome = regions_.check(put_.key, put_.address, bytes, access_rights::remote_write);
        return put_.outcome == errc::ok ? reinterpret_cast<std::byte*>(put_.address) : nullptr;
    }
    void put_arrived(std::size_t bytes) noexcept {
        put_.address += bytes;
        put_.remaining -= bytes;
    }
    /// All data of a frame has come. False: more is unanswered than the other side may ask.
    [[nodiscard]] bool put_frame_ended() noexcept;

    [[nodiscard]] bool wants_to_send() const noexcept { return count_ != 0; }

    /// Appends the next frame of an answer to `queue`. False when nothing waits or there is no room.
    [[nodiscard]] bool send_next(tcp_send_queue& queue) noexcept;

    /// The queue has sent a part of the first answer.
    void part_sent(const tcp_send_item& item) noexcept;

private:
    struct answer {
        std::uint64_t key;
        std::uint64_t address;
        std::uint64_t remaining;  // bytes to be put into the queue
        std::uint32_t operation;
        std::uint32_t parts;  // in the queue
        errc outcome;
    };
    struct incoming_put {
        std::uint64_t key;
        std::uint64_t address;
        std::uint64_t remaining;
        std::uint32_t operation;
        bool active;
        errc outcome;
    };

    [[nodiscard]] bool push(const answer& what) noexcept;

    [[nodiscard]] bool send_data(answer& front, tcp_send_queue& queue) noexcept;

    const region_table& regions_;
    std::vector<answer> answers_;  // given back once all is answered, if it is long
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    incoming_put put_{};
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/one_sided.ipp>
#endif
