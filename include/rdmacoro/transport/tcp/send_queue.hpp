// The unsent bytes of a link: copied ones in a chunk, and pieces of other memory that go between them.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/tcp/chunk_pool.hpp>
#include <rdmacoro/transport/tcp/completion_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <sys/uio.h>

namespace rdmacoro::detail {

/// Memory that is sent without being copied first, as a part of the byte stream.
struct tcp_send_item {
    enum class source : std::uint8_t {
        message,   ///< memory of the caller of `post`
        get_data,  ///< registered memory: looked up again each time before it is read
        put_data,  ///< memory of the caller of `put`
    };

    tcp_send_item* next;
    completion* owner;  ///< of a message; nullptr once revoked
    const_buffers data;
    std::size_t sent;         ///< bytes of `data`
    std::uint64_t key;        ///< of get_data
    std::uint32_t operation;  ///< of put_data
    std::uint32_t at;         ///< the data goes before this offset of the chunk
    source from;
    bool filler;                ///< send zeros in place of the rest
    std::byte* copy = nullptr;  ///< of the rest, when the memory was taken back by its owner
};

/// A domain's items: recycled, grown as they are needed.
class tcp_item_pool {
public:
    [[nodiscard]] tcp_send_item* take() noexcept {
        if (free_ == nullptr && !grow()) return nullptr;
        return std::exchange(free_, free_->next);
    }
    void give(tcp_send_item& item) noexcept {
        delete[] std::exchange(item.copy, nullptr);
        item.next = free_;
        free_ = &item;
    }

private:
    static constexpr std::size_t step = 64;

    bool grow() noexcept;

    std::vector<std::unique_ptr<tcp_send_item[]>> items_;
    tcp_send_item* free_ = nullptr;
};

/// The outgoing byte stream of one link, as far as the kernel has not taken it. Holds a chunk only while there is
/// something to send.
class tcp_send_queue {
public:
    tcp_send_queue(tcp_chunk_pool& chunks, tcp_item_pool& items, const region_table& regions) noexcept
        : chunks_(chunks), items_(items), regions_(regions) {}
    tcp_send_queue(const tcp_send_queue&) = delete;
    tcp_send_queue& operator=(const tcp_send_queue&) = delete;
    ~tcp_send_queue() {
        clear([](tcp_send_item&) noexcept {});
    }

    [[nodiscard]] bool empty() const noexcept { return begin_ == end_ && first_ == nullptr; }
    /// Bytes of gets and puts that lie in other memory than the chunk.
    [[nodiscard]] std::size_t one_sided_bytes() const noexcept { return one_sided_bytes_; }
    /// The same of messages.
    [[nodiscard]] std::size_t message_bytes() const noexcept { return message_bytes_; }
    [[nodiscard]] bool has_items() const noexcept { return first_ != nullptr; }
    [[nodiscard]] std::size_t copied_bytes() const noexcept { return end_ - begin_; }

    /// Room for `bytes` more copied bytes, to be filled and then committed; nullptr when there is none. `bytes` is at most
    /// a chunk's capacity.
    [[nodiscard]] std::byte* reserve(std::size_t bytes) noexcept;
    void commit(std::size_t bytes) noexcept { end_ += static_cast<std::uint32_t>(bytes); }

    /// An item without its data, or nullptr. To be given to `append` when it is filled in.
    [[nodiscard]] tcp_send_item* new_item() noexcept { return items_.take(); }
    void discard(tcp_send_item& item) noexcept { items_.give(item); }

    /// Its data follows all that was committed before.
    void append(tcp_send_item& item) noexcept;

    /// Describes the next bytes in up to `limit` pieces. Answers how many pieces; `bytes` is their sum.
    [[nodiscard]] unsigned gather(iovec* pieces, unsigned limit, std::size_t& bytes) noexcept;

    /// The kernel took the next `bytes`. Calls `sent(item)` for each item of which that was the rest; the item must not
    /// be used afterwards.
    template <class Sent>
    void consumed(std::size_t bytes, Sent sent) noexcept {
        while (first_ != nullptr) {
            tcp_send_item& item = *first_;
            const std::size_t copied = std::min<std::size_t>(bytes, item.at - begin_);
            begin_ += static_cast<std::uint32_t>(copied);
            bytes -= copied;
            const std::size_t direct = std::min(bytes, item.data.size() - item.sent);
            item.sent += direct;
            (item.from == tcp_send_item::source::message ? message_bytes_ : one_sided_bytes_) -= direct;
            bytes -= direct;
            if (begin_ != item.at || item.sent != item.data.size()) return;
            first_ = item.next;
            if (first_ == nullptr) last_ = nullptr;
            sent(item);
            items_.give(item);
        }
        begin_ += static_cast<std::uint32_t>(bytes);
        if (begin_ == end_) release();
    }

    /// The memory of a message or a put is its owner's again: the rest of it is copied. False when memory is short;
    /// zeros go out in its place.
    bool take_over(tcp_send_item& item) noexcept;

    /// Throws everything away; calls `dropped(item)` for each item.
    template <class Dropped>
    void clear(Dropped dropped) noexcept {
        while (first_ != nullptr) {
            tcp_send_item& item = *first_;
            first_ = item.next;
            dropped(item);
            items_.give(item);
        }
        last_ = nullptr;
        one_sided_bytes_ = message_bytes_ = 0;
        release();
    }

    /// Calls `each(item)` for every item that waits.
    template <class Each>
    void for_each(Each each) noexcept {
        for (tcp_send_item* item = first_; item != nullptr; item = item->next) each(*item);
    }

private:
    static constexpr std::size_t zeros_bytes = 64 * 1024;
    static inline constinit const std::byte zeros_[zeros_bytes]{};

    void release() noexcept;

    // Moves the rest to the chunk's beginning, when that is worth a copy.
    bool compact(std::size_t bytes) noexcept;

    [[nodiscard]] unsigned gather_item(tcp_send_item& item, iovec* pieces, unsigned limit,
                                       std::size_t& bytes) noexcept;

    tcp_chunk_pool& chunks_;
    tcp_item_pool& items_;
    const region_table& regions_;
    tcp_chunk* chunk_ = nullptr;
    std::uint32_t begin_ = 0;
    std::uint32_t end_ = 0;
    tcp_send_item* first_ = nullptr;
    tcp_send_item* last_ = nullptr;
    std::size_t one_sided_bytes_ = 0;
    std::size_t message_bytes_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/send_queue.ipp>
#endif
