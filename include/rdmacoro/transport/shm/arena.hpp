// The domain's own shared allocator: memory that every peer of the domain maps, so that get and put are plain copies.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/transport/shm/notice_board.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace rdmacoro {

class scheduler;
namespace detail::shm {
class arena;
}

/// Memory from a domain's shared arena. Zeroed, page-aligned; freed when this object is destroyed. Must not outlive its
/// domain. To let peers reach it, register it. Pages that a peer was stopped over in mid-copy are given to nothing else until
/// the peer has gone on, or has ended.
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

    /// Gives the memory back to the arena.
    void reset() noexcept;
    /// The memory.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

private:
    friend class detail::shm::arena;
    shared_memory(detail::shm::arena& owner, std::span<std::byte> bytes) noexcept
        : owner_(&owner), bytes_(bytes) {}

    detail::shm::arena* owner_ = nullptr;
    std::span<std::byte> bytes_{};
};

namespace detail::shm {

/// Memory of an arena that a peer may be touching although its owner has ended the access.
class arena_hold : public list_node<arena_hold> {
public:
    arena_hold() noexcept = default;
    arena_hold(const arena_hold&) = delete;
    arena_hold& operator=(const arena_hold&) = delete;

    /// Whether an arena holds memory back for it.
    [[nodiscard]] bool held() const noexcept { return linked(); }

private:
    friend arena;
    /// Whether the peer cannot be touching the memory any more.
    [[nodiscard]] virtual bool over() noexcept = 0;
    /// The arena knows it no more.
    virtual void released() noexcept = 0;

    std::span<std::byte> range_{};

protected:
    ~arena_hold() = default;
};

/// A range of address space backed by a file that peers map. First fit over whole pages: it serves few, large pieces. The
/// file is made when the first piece is, or when a peer connects.
class arena {
public:
    static constexpr std::size_t most_bytes = std::size_t{1} << 46;  ///< peers refuse more

    /// `owner`: pieces are taken and given back on its thread.
    explicit arena(std::size_t bytes, const scheduler* owner = nullptr)
        : owner_(owner), bytes_((bytes + page_bytes - 1) / page_bytes * page_bytes) {}
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;
    ~arena();

    [[nodiscard]] shared_memory allocate(std::size_t bytes);

    void give_back(std::span<std::byte> piece) noexcept;

    /// Gives no piece of `memory` out again before the hold is over. Without effect, and false, for memory that is not the
    /// arena's.
    bool hold(arena_hold& by, std::span<std::byte> memory) noexcept;
    /// Lets go what is held back for peers that cannot be touching it any more.
    void end_holds() noexcept;

    /// Makes the file and maps it, once. Throws.
    void open();

    [[nodiscard]] int file() const noexcept { return fd_.get(); }
    [[nodiscard]] std::byte* base() const noexcept { return base_; }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// Of news and of touches. Lie in front of the arena, in the same file; nullptr before `open`.
    [[nodiscard]] notice_board* board() const noexcept { return base_ == nullptr ? nullptr : &boards().news; }
    [[nodiscard]] notice_board* touch_board() const noexcept {
        return base_ == nullptr ? nullptr : &boards().touches;
    }

private:
    /// A free range. Allocated together with pieces, so that giving one back needs no memory.
    struct range {
        std::size_t offset;
        std::size_t bytes;
        range* next;
    };

    [[nodiscard]] notice_boards& boards() const noexcept {
        return *reinterpret_cast<notice_boards*>(base_ - notice_board_bytes);
    }
    [[nodiscard]] bool holds(std::span<std::byte> piece) noexcept;
    void make_free(std::span<std::byte> piece) noexcept;
    [[nodiscard]] range* take_spare(std::size_t offset, std::size_t bytes, range* next) noexcept;
    void keep_spare(range* unused) noexcept;
    void add_spare();

    const scheduler* owner_;
    std::size_t bytes_;
    std::byte* base_ = nullptr;
    unique_fd fd_;
    range* free_ = nullptr;   // in ascending order, never adjacent
    range* spare_ = nullptr;  // at least one for each piece that is out
    std::size_t spares_ = 0;
    std::size_t pieces_ = 0;    // that are out
    range* awaited_ = nullptr;  // given back, and held
    intrusive_list<arena_hold> holds_;
};

}  // namespace detail::shm
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/arena.ipp>
#endif
