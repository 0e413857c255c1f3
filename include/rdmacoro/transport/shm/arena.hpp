// The domain's own shared allocator: memory that every peer of the domain maps, so that get and put are plain copies.
#pragma once

#include <rdmacoro/transport/shm/segment.hpp>

#include <cstddef>
#include <map>
#include <span>
#include <utility>

namespace rdmacoro {

namespace detail::shm {
class arena;
}

/// Memory from a domain's shared arena. Zeroed, page-aligned; goes back when this goes. Must not outlive its domain. To let
/// peers reach it, register it.
class shared_memory {
public:
    shared_memory() noexcept = default;
    shared_memory(shared_memory&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), bytes_(std::exchange(other.bytes_, {})) {}
    shared_memory& operator=(shared_memory&& other) noexcept {
        if (this != &other) {
            reset();
            owner_ = std::exchange(other.owner_, nullptr);
            bytes_ = std::exchange(other.bytes_, {});
        }
        return *this;
    }
    ~shared_memory() { reset(); }

    inline void reset() noexcept;
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

private:
    friend class detail::shm::arena;
    shared_memory(detail::shm::arena& owner, std::span<std::byte> bytes) noexcept
        : owner_(&owner), bytes_(bytes) {}

    detail::shm::arena* owner_ = nullptr;
    std::span<std::byte> bytes_{};
};

namespace detail::shm {

/// A range of address space backed by a file that peers map. First fit over whole pages: it serves few, large pieces. The
/// file is made when the first piece is, or when a peer connects.
class arena {
public:
    explicit arena(std::size_t bytes) : bytes_((bytes + page_bytes - 1) / page_bytes * page_bytes) {}
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;
    ~arena() {
        if (base_ != nullptr) ::munmap(base_, bytes_);
    }

    [[nodiscard]] shared_memory allocate(std::size_t bytes) {
        open();
        const std::size_t wanted =
            bytes == 0 ? page_bytes : (bytes + page_bytes - 1) / page_bytes * page_bytes;
        for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
            if (piece->second < wanted) continue;
            const std::size_t offset = piece->first;
            const std::size_t rest = piece->second - wanted;
            if (rest != 0) free_.emplace(offset + wanted, rest);
            free_.erase(piece);
            return shared_memory(*this, {base_ + offset, wanted});
        }
        throw error(errc::no_resources, "the shared arena is full; raise shm_options::arena_bytes");
    }

    void give_back(std::span<std::byte> piece) noexcept {
        // Frees the pages; the next user finds zeros.
        ::madvise(piece.data(), piece.size(), MADV_REMOVE);
        std::size_t offset = static_cast<std::size_t>(piece.data() - base_);
        std::size_t bytes = piece.size();
        auto after = free_.lower_bound(offset);
        if (after != free_.end() && offset + bytes == after->first) {
            bytes += after->second;
            after = free_.erase(after);
        }
        if (after != free_.begin()) {
            auto before = std::prev(after);
            if (before->first + before->second == offset) {
                before->second += bytes;
                return;
            }
        }
        free_.emplace(offset, bytes);
    }

    /// Makes the file and maps it, once. Throws.
    void open() {
        if (base_ != nullptr) return;
        unique_fd fd(::memfd_create("rdmacoro-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes_)) != 0)
            throw_errno("memfd of the shared arena");
        if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
            throw_errno("sealing the shared arena");
        void* mapped =
            ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
        if (mapped == MAP_FAILED) throw_errno("mmap of the shared arena");
        base_ = static_cast<std::byte*>(mapped);
        fd_ = std::move(fd);
        free_.emplace(0, bytes_);
    }

    [[nodiscard]] int file() const noexcept { return fd_.get(); }
    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

private:
    std::size_t bytes_;
    std::byte* base_ = nullptr;
    unique_fd fd_;
    std::map<std::size_t, std::size_t> free_;  // offset → length
};

}  // namespace detail::shm

inline void shared_memory::reset() noexcept {
    if (owner_ != nullptr) std::exchange(owner_, nullptr)->give_back(bytes_);
    bytes_ = {};
}

}  // namespace rdmacoro
