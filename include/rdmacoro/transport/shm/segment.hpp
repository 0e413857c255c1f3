// The shared-memory segment of one connection: its layout, its creation, and its mapping.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace rdmacoro::detail::shm {

/// A file descriptor that closes itself.
class unique_fd {
public:
    unique_fd() noexcept = default;
    explicit unique_fd(int fd) noexcept : fd_(fd) {}
    unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    unique_fd& operator=(unique_fd&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~unique_fd() { reset(); }

    void reset() noexcept;
    /// The caller closes it.
    int release() noexcept { return std::exchange(fd_, -1); }
    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }

private:
    int fd_ = -1;
};

/// `poll` of one descriptor that does not wait, which no signal ends: 1 if one of `events` is there, 0 if none is, negative if it failed.
[[nodiscard]] RDMACORO_DECL int poll_now(int fd, short events) noexcept;

/// Throws the system's error for `errno`; its text is `what` and `which`.
[[noreturn, gnu::cold]] void throw_errno(const char* what, std::string_view which = {});
/// Throws `code`; the error's text is `name` and `text`.
[[noreturn, gnu::cold]] void throw_named(errc code, std::string_view name, const char* text = "");

/// A file in memory of that size, zeroed. The texts of its errors call it `what`, and name the option of `shm_options` that sets its size.
/// Throws `errc::no_resources` where it is longer than the process's files may be (`RLIMIT_FSIZE`).
[[nodiscard]] RDMACORO_DECL unique_fd make_memfd(const char* name, std::size_t bytes, const char* what,
                                                 const char* option);

inline constexpr std::size_t cell_bytes = 64;
inline constexpr std::size_t page_bytes = 4096;

/// Sizes that both ends of a connection agree on.
struct geometry {
    std::uint32_t cells = 2048;         ///< of each ring; a power of two, at least 64
    std::uint32_t blocks = 64;          ///< of each direction; at most `most_blocks`
    std::uint32_t block_bytes = 32768;  ///< a multiple of a page

    static constexpr std::uint32_t most_blocks = 256;

    /// Whether a peer may propose it.
    [[nodiscard]] bool acceptable() const noexcept;
    [[nodiscard]] std::size_t ring_bytes() const noexcept { return std::size_t{cells} * cell_bytes; }
    [[nodiscard]] std::size_t block_area_bytes() const noexcept { return std::size_t{blocks} * block_bytes; }
};

/// The words of one direction that are not message cells, each on a line of the side that writes it.
struct direction_words {
    /// Written by the consumer, rarely: cells it has given back, blocks it has given back.
    alignas(64) std::atomic<std::uint32_t> cells_freed;
    std::atomic<std::uint32_t> blocks_freed;
    /// Written by the consumer: 0 while it polls this link, otherwise the number, plus one, by which the producer marks the
    /// link on the consumer's notice board after it has published something. Above `notice_board::most_links`: the producer
    /// rings the doorbell.
    alignas(64) std::atomic<std::uint32_t> notice;
    /// Written by the consumer, once: it closed the link, and its memory must not be touched over it any more.
    std::atomic<std::uint32_t> closed;
    /// Written by the consumer: 0 while it looks at `region_in_use` each time it closes memory; otherwise the link's number, plus one, by
    /// which the producer marks the link on the consumer's board of touches.
    std::atomic<std::uint32_t> touch_notice;
    /// Written by the producer: the key of the consumer's region it is reading or writing right now, or 0.
    alignas(64) std::atomic<std::uint64_t> region_in_use;
    /// Written by the producer before it marks the link or rings: the cells that it has written so far. A consumer that polls the link no
    /// more sees here whether a mark was lost: the memory of the ring may have gone back to the system.
    std::atomic<std::uint32_t> announced;
    /// Written by the consumer: the blocks given back, in order; entry n at n mod `most_blocks`. The upper byte is what reading it has
    /// cost, by `store_cost`.
    alignas(64) std::atomic<std::uint16_t> freed_blocks[geometry::most_blocks];
};

/// The words of one block that both ends copy; see shared_copy.hpp.
struct shared_copy_words {
    /// Written by both, with compare-and-swap: pieces claimed from the front, and from the back.
    alignas(64) std::atomic<std::uint64_t> claimed;
    /// Written by the producer: how many pieces from the back are in place.
    alignas(64) std::atomic<std::uint64_t> finished;
};
inline constexpr unsigned shared_copies_open = 64;  ///< of each direction

/// The head of a segment.
struct segment_header {
    direction_words words[2];  ///< [0]: from the connecting side to the accepting side
    shared_copy_words copies[2][shared_copies_open];
};
inline constexpr std::size_t segment_header_bytes =
    (sizeof(segment_header) + page_bytes - 1) / page_bytes * page_bytes;
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint16_t>::is_always_lock_free);

/// A mapped segment. Rings are mapped twice in a row, so that a record that wraps around is contiguous.
class segment {
public:
    segment() noexcept = default;
    segment(const segment&) = delete;
    segment& operator=(const segment&) = delete;
    ~segment();

    [[nodiscard]] static std::size_t file_bytes(const geometry& g) noexcept;

    /// A new segment's file: zeroed, of its final size, sealed so that no process can remove pages from under a mapping.
    [[nodiscard]] static unique_fd create(const geometry& g);

    /// Maps it; a file that a peer sent is checked first. Throws.
    void map(int fd, const geometry& g);

    [[nodiscard]] const geometry& shape() const noexcept { return shape_; }
    [[nodiscard]] direction_words& words(unsigned direction) noexcept {
        return reinterpret_cast<segment_header*>(base_)->words[direction];
    }
    /// An array of `shared_copies_open`: the blocks that the producer of that direction has opened.
    [[nodiscard]] shared_copy_words* copies(unsigned direction) noexcept {
        return reinterpret_cast<segment_header*>(base_)->copies[direction];
    }
    [[nodiscard]] std::byte* ring(unsigned direction) noexcept {
        return base_ + segment_header_bytes + direction * 2 * shape_.ring_bytes();
    }
    [[nodiscard]] std::byte* blocks(unsigned direction) noexcept {
        return base_ + segment_header_bytes + 4 * shape_.ring_bytes() + direction * shape_.block_area_bytes();
    }

    /// Throws unless the file has at least this size and can't be made shorter.
    static void check_file(int fd, std::size_t bytes, const char* what);

private:
    [[nodiscard]] static std::size_t mapped_bytes(const geometry& g) noexcept;
    static void place(std::byte* at, int fd, std::size_t offset, std::size_t bytes);

    std::byte* base_ = nullptr;
    geometry shape_{};
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/segment.ipp>
#endif
