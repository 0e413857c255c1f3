// unmap_watch: learns of memory that this process unmaps, moves or discards, before the addresses can be used again.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/memory/detail/mapping_kind.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <pthread.h>

struct uffd_msg;

namespace rdmacoro::detail {

/// [start, end), in bytes of this process's address space.
struct address_range {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
};

/// Ranges that one listener has not taken yet. Bounded: when it overflows, any memory may have changed. Accessed by the
/// watch, under its lock, from `subscribe` to `unsubscribe`.
class unmap_events {
public:
    static constexpr std::size_t capacity = 256;

    [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }
    [[nodiscard]] const address_range* begin() const noexcept { return ranges_; }
    [[nodiscard]] const address_range* end() const noexcept { return ranges_ + count_; }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0 && !overflowed_; }

private:
    friend class unmap_watch;

    void add(const address_range& range) noexcept;

    address_range ranges_[capacity];  // the first `count_` are set
    std::size_t count_ = 0;
    bool overflowed_ = false;
    unmap_events* next_ = nullptr;
};

struct unmap_watch_options {
    bool permitted = true;  ///< false: as on a system that refuses userfaultfd
    mapping_kind::way kinds = mapping_kind::way::query_or_text;
};

/// Watches ranges of private anonymous memory by a userfaultfd: they are registered for write protection, but never
/// protected, so that no access faults. The kernel suspends munmap, mremap, brk, madvise and a mapping on top of another
/// until the watcher, a thread of this class, has read the event.
///
/// Before it reads an event the watcher raises `sequence()`, and it stores the range for the listeners before it releases
/// the lock that `take` needs. So a thread that has seen an unmapping call return reads a higher number, and `take` gives
/// it the range. Another thread may be given the same addresses while that call has not returned yet: see `settled()`.
///
/// All functions may be called by any thread. A holder of `events_lock_` neither allocates, frees nor unmaps, as that
/// would wait for the watcher, which may wait for the lock. Nor does the watcher.
///
/// One for each process, never destroyed: memory could not be unmapped any more if no thread read its events. A child made
/// by fork does not inherit it: there `inherited()` is true, and `of_process` makes a new one.
class unmap_watch {
public:
    static unmap_watch& of_process();

    /// Only for tests, which must keep it until the process ends if it is `available()`.
    explicit unmap_watch(const unmap_watch_options& options) noexcept;
    unmap_watch(const unmap_watch&) = delete;
    unmap_watch& operator=(const unmap_watch&) = delete;
    ~unmap_watch();

    /// Whether memory can be watched on this system.
    [[nodiscard]] bool available() const noexcept { return available_; }
    /// Whether this is the parent's, in a child process, where it watches nothing.
    [[nodiscard]] bool inherited() const noexcept {
        return available_ && word_->load(std::memory_order_relaxed) == 0;
    }

    /// Changes before any call that unmaps watched memory returns. Never zero, but in a child process.
    [[nodiscard]] std::uint64_t sequence() const noexcept { return word_->load(std::memory_order_acquire); }

    /// False while some thread is in a call that has unmapped watched memory, and the event has not been read yet: the
    /// addresses may already be another thread's new memory, and `sequence()` has not changed. One system call, of some
    /// 200 ns.
    [[nodiscard]] bool settled() const noexcept;

    void subscribe(unmap_events& events) noexcept;
    void unsubscribe(unmap_events& events) noexcept;
    /// Moves all ranges of `from` to `into`, and returns the sequence number up to which they are complete.
    [[nodiscard]] std::uint64_t take(unmap_events& from, unmap_events& into) noexcept;

    /// Watches whole pages, which may be watched already. False when that is not possible: not permitted, memory that is
    /// shared, of a file or of huge pages, watched by another userfaultfd, or too many mappings. Pair with `unwatch`.
    [[nodiscard]] bool watch(const address_range& range) noexcept;

    /// Ends one `watch` of the same range. Parts that another range covers stay watched.
    void unwatch(const address_range& range) noexcept;

    [[nodiscard]] static std::size_t page_bytes() noexcept;

private:
    using word = std::atomic<std::uint64_t>;
    static_assert(word::is_always_lock_free);

    /// Lasts up to the start of the next piece. No range covers the memory before the first piece, nor the last piece.
    struct piece {
        std::uintptr_t start;
        std::uint32_t covers;  // number of ranges
        std::uint32_t
            edges;  // ranges that begin here, or ended right before; without any the piece is removed
    };
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    bool open() noexcept;
    bool start_watcher() noexcept;
    static void* run(void* self);
    void wait_and_read() noexcept;
    void notify(const ::uffd_msg& message) noexcept;

    bool cover(const address_range& range) noexcept;
    [[nodiscard]] std::size_t piece_at(std::uintptr_t address) const noexcept;
    std::size_t split(std::uintptr_t address) noexcept;
    void leave(std::size_t at) noexcept;
    void uncover_unused(const address_range& range) noexcept;

    mapping_kind kinds_;
    int fd_ = -1;
    word* word_ = nullptr;  // in a page of its own, which the kernel clears in a child process
    bool available_ = false;

    pthread_mutex_t events_lock_ = PTHREAD_MUTEX_INITIALIZER;
    unmap_events* listeners_ = nullptr;

    pthread_mutex_t ranges_lock_ = PTHREAD_MUTEX_INITIALIZER;  // never taken by the watcher
    plain_vector<piece> pieces_;                               // by address
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/memory/detail/impl/unmap_watch.ipp>
#endif
