// The shared-memory segment of one connection: its layout, its creation, and its mapping.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <cerrno>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

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

    void reset() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }

private:
    int fd_ = -1;
};

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_errno(const std::string& what) {
    throw error(std::error_code(errno, std::system_category()), what);
}

inline constexpr std::size_t cell_bytes = 64;
inline constexpr std::size_t page_bytes = 4096;

/// Sizes that both ends of a connection agree on.
struct geometry {
    std::uint32_t cells = 2048;         ///< of each ring; a power of two, at least 64
    std::uint32_t blocks = 64;          ///< of each direction; at most `most_blocks`
    std::uint32_t block_bytes = 32768;  ///< a multiple of a page

    static constexpr std::uint32_t most_blocks = 256;

    /// What a peer may ask of us.
    [[nodiscard]] bool acceptable() const noexcept {
        return cells >= 64 && cells <= (1u << 20) && (cells & (cells - 1)) == 0 && blocks >= 4 &&
               blocks <= most_blocks && block_bytes >= page_bytes && block_bytes <= (1u << 19) &&
               block_bytes % page_bytes == 0;
    }
    [[nodiscard]] std::size_t ring_bytes() const noexcept { return std::size_t{cells} * cell_bytes; }
    [[nodiscard]] std::size_t block_area_bytes() const noexcept { return std::size_t{blocks} * block_bytes; }
};

/// The words of one direction that are not message cells, each on a line of the side that writes it.
struct direction_words {
    /// Written by the consumer, rarely: cells it has given back, blocks it has given back.
    alignas(64) std::atomic<std::uint32_t> cells_freed;
    std::atomic<std::uint32_t> blocks_freed;
    /// Written by the consumer: 1 while it sleeps and wants its doorbell rung.
    alignas(64) std::atomic<std::uint32_t> parked;
    /// Written by the consumer, once: it closed the link, and its memory must not be touched over it any more.
    std::atomic<std::uint32_t> closed;
    /// Written by the producer: the key of the consumer's region it is reading or writing right now, or 0.
    alignas(64) std::atomic<std::uint64_t> region_in_use;
    /// Written by the consumer: the blocks given back, in order; entry n at n mod `most_blocks`.
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

/// What a segment begins with.
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
    ~segment() {
        if (base_ != nullptr) ::munmap(base_, mapped_bytes(shape_));
    }

    [[nodiscard]] static std::size_t file_bytes(const geometry& g) noexcept {
        return segment_header_bytes + 2 * g.ring_bytes() + 2 * g.block_area_bytes();
    }

    /// A new segment's file: zeroed, of its final size, sealed so that nobody can take pages from under a mapping.
    [[nodiscard]] static unique_fd create(const geometry& g) {
        unique_fd fd(::memfd_create("rdmacoro-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!fd) throw_errno("memfd_create for a shared-memory link");
        if (::ftruncate(fd.get(), static_cast<off_t>(file_bytes(g))) != 0)
            throw_errno("ftruncate of a shared-memory link");
        if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
            throw_errno("sealing a shared-memory link");
        }
        return fd;
    }

    /// Maps it; a file that a peer sent is checked first. Throws.
    void map(int fd, const geometry& g) {
        check_file(fd, file_bytes(g), "the peer's shared-memory segment");
        const std::size_t ring = g.ring_bytes();
        void* reserved =
            ::mmap(nullptr, mapped_bytes(g), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED) throw_errno("mmap of a shared-memory link");
        base_ = static_cast<std::byte*>(reserved);
        shape_ = g;
        std::byte* at = base_;
        place(at, fd, 0, segment_header_bytes);
        at += segment_header_bytes;
        for (std::size_t i = 0; i < 2; ++i) {
            place(at, fd, segment_header_bytes + i * ring, ring);
            place(at + ring, fd, segment_header_bytes + i * ring, ring);
            at += 2 * ring;
        }
        place(at, fd, segment_header_bytes + 2 * ring, 2 * g.block_area_bytes());
    }

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
    static void check_file(int fd, std::size_t bytes, const char* what) {
        struct stat facts{};
        if (::fstat(fd, &facts) != 0) throw_errno(what);
        const int seals = ::fcntl(fd, F_GET_SEALS);
        // One of huge pages can be mapped without memory behind it, and ends who touches it.
        struct statfs holder{};
        if (::fstatfs(fd, &holder) != 0) throw_errno(what);
        if (holder.f_type != TMPFS_MAGIC)
            throw error(errc::protocol_violation, std::string(what) + " is no file in memory");
        if (facts.st_size < static_cast<off_t>(bytes) || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
            throw error(errc::protocol_violation, std::string(what) + " is too short or not sealed");
        }
    }

private:
    [[nodiscard]] static std::size_t mapped_bytes(const geometry& g) noexcept {
        return segment_header_bytes + 4 * g.ring_bytes() + 2 * g.block_area_bytes();
    }
    static void place(std::byte* at, int fd, std::size_t offset, std::size_t bytes) {
        if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                   static_cast<off_t>(offset)) == MAP_FAILED) {
            throw_errno("mmap of a shared-memory link");
        }
    }

    std::byte* base_ = nullptr;
    geometry shape_{};
};

}  // namespace rdmacoro::detail::shm
