// unmap_watch: learns of memory that this process unmaps, moves or throws away, before anybody can use what comes after.
#pragma once

#include <rdmacoro/memory/detail/mapping_kind.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rdmacoro::detail {

/// [start, end), in bytes of this process's address space.
struct address_range {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
};

/// What one listener has not heard yet. Bounded: when more happens, everything may have changed. The watch's, under its
/// lock, from `subscribe` to `unsubscribe`.
class unmap_events {
public:
    static constexpr std::size_t capacity = 256;

    [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }
    [[nodiscard]] const address_range* begin() const noexcept { return ranges_.data(); }
    [[nodiscard]] const address_range* end() const noexcept { return ranges_.data() + count_; }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0 && !overflowed_; }

private:
    friend class unmap_watch;

    void add(const address_range& range) noexcept {
        if (count_ < capacity) {
            ranges_[count_++] = range;
        } else {
            overflowed_ = true;
        }
    }

    std::array<address_range, capacity> ranges_;  // set as far as count_ says
    std::size_t count_ = 0;
    bool overflowed_ = false;
    unmap_events* next_ = nullptr;
};

struct unmap_watch_options {
    bool permitted = true;  ///< false: as on a system that refuses userfaultfd
    mapping_kind::way kinds = mapping_kind::way::query_or_text;
};

/// Watches ranges of private anonymous memory by a userfaultfd: they are registered for write protection, but nothing is
/// ever protected, so no access ever faults. The kernel holds back munmap, mremap, brk, madvise and a mapping on top of
/// another until a thread of ours has read the event.
///
/// Before it reads an event that thread raises `sequence()`, and it tells the listeners before it lets go of the lock that
/// `take` needs. So whoever has seen an unmapping call return finds a higher number, and by `take` learns the range.
/// Another thread may be given the same addresses again while that call has not returned yet: see `settled()`.
///
/// All functions may be called by any thread. Whoever holds `events_lock_` neither allocates, frees nor unmaps, as that
/// would wait for the watcher, who may wait for the lock. The watcher does none of it either.
///
/// One a process, for ever: memory with nobody to read its events could not be unmapped any more. A child made by fork
/// does not inherit it: there `inherited()` is true, and `of_process` makes a new one.
class unmap_watch {
public:
    static unmap_watch& of_process() {
        static std::mutex making;
        static std::atomic<unmap_watch*> only{nullptr};
        const std::scoped_lock lock(making);
        unmap_watch* now = only.load(std::memory_order_relaxed);
        if (now == nullptr || now->inherited()) {
            now = new unmap_watch(unmap_watch_options{});  // outlives everything
            only.store(now, std::memory_order_relaxed);
        }
        return *now;
    }

    /// Only for tests, which must keep it until the process ends if it is `available()`.
    explicit unmap_watch(const unmap_watch_options& options) noexcept : kinds_(options.kinds) {
        available_ = options.permitted && open() && start_watcher();
    }
    unmap_watch(const unmap_watch&) = delete;
    unmap_watch& operator=(const unmap_watch&) = delete;
    ~unmap_watch() {
        if (fd_ >= 0) ::close(fd_);
        if (word_ != nullptr) ::munmap(word_, page_bytes());
    }

    /// Whether anything can be watched on this system.
    [[nodiscard]] bool available() const noexcept { return available_; }
    /// Whether this is a parent's, seen by a child process, where it watches nothing.
    [[nodiscard]] bool inherited() const noexcept {
        return available_ && word_->load(std::memory_order_relaxed) == 0;
    }

    /// Changes before any call that unmaps watched memory returns. Never zero, but in a child process.
    [[nodiscard]] std::uint64_t sequence() const noexcept { return word_->load(std::memory_order_acquire); }

    /// False while some thread is inside a call that has unmapped watched memory and has not been read yet: its addresses
    /// may already be another thread's new memory, and `sequence()` does not say so. One system call, of some 200 ns.
    [[nodiscard]] bool settled() const noexcept {
        uffdio_writeprotect
            nothing{};  // refused as empty, but only after the kernel has looked at what is pending
        const bool unsettled = ::ioctl(fd_, UFFDIO_WRITEPROTECT, &nothing) != 0 && errno == EAGAIN;
        std::atomic_thread_fence(std::memory_order_acquire);
        return !unsettled;
    }

    void subscribe(unmap_events& events) noexcept {
        const std::scoped_lock lock(events_lock_);
        events.next_ = listeners_;
        listeners_ = &events;
    }
    void unsubscribe(unmap_events& events) noexcept {
        const std::scoped_lock lock(events_lock_);
        for (unmap_events** at = &listeners_; *at != nullptr; at = &(*at)->next_) {
            if (*at != &events) continue;
            *at = events.next_;
            break;
        }
    }
    /// Moves what `from` has not heard yet to `into`, and returns the sequence number up to which that is everything.
    [[nodiscard]] std::uint64_t take(unmap_events& from, unmap_events& into) noexcept {
        const std::scoped_lock lock(events_lock_);
        into.count_ = from.count_;
        into.overflowed_ = from.overflowed_;
        for (std::size_t i = 0; i < from.count_; ++i) into.ranges_[i] = from.ranges_[i];
        from.count_ = 0;
        from.overflowed_ = false;
        return sequence();
    }

    /// Watches whole pages, which may be watched already. False when that is not possible: not permitted, memory that is
    /// shared, of a file or of huge pages, watched by another userfaultfd, or too many mappings. Pair with `unwatch`.
    [[nodiscard]] bool watch(const address_range& range) noexcept {
        if (!available_) return false;
        const std::scoped_lock lock(ranges_lock_);
        uffdio_register asked{{range.start, range.end - range.start}, UFFDIO_REGISTER_MODE_WP, 0};
        // Also when it is covered: what was watched here may have been unmapped, and this is what came after.
        const bool taken = ::ioctl(fd_, UFFDIO_REGISTER, &asked) == 0;
        if (taken && kinds_.private_anonymous(range.start, range.end) && cover(range)) return true;
        if (taken) uncover_unused(range);
        return false;
    }

    /// Ends one `watch` of the same range. What another still covers stays watched.
    void unwatch(const address_range& range) noexcept {
        const std::scoped_lock lock(ranges_lock_);
        const auto first = covered_.find(range.start);
        const auto last = covered_.find(range.end);
        for (auto at = first; at != last; ++at) --at->second.covers;
        uncover_unused(range);
        leave(first);
        leave(last);
    }

    [[nodiscard]] static std::size_t page_bytes() noexcept {
        static const std::size_t bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        return bytes;
    }

private:
    using word = std::atomic<std::uint64_t>;
    static_assert(word::is_always_lock_free);

    bool open() noexcept {
        void* page =
            ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return false;
        word_ = ::new (page) word(1);
        if (::madvise(page, page_bytes(), MADV_WIPEONFORK) != 0) return false;
        // User mode only is open to everybody since Linux 5.11. Faults never happen, so it takes nothing away.
        fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
        if (fd_ < 0) fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
        if (fd_ < 0) return false;
        uffdio_api asked{UFFD_API,
                         UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP |
                             UFFD_FEATURE_PAGEFAULT_FLAG_WP,
                         0};
        return ::ioctl(fd_, UFFDIO_API, &asked) == 0;
    }

    bool start_watcher() noexcept {
        sigset_t all;
        sigset_t before;
        ::sigfillset(&all);
        if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
            return false;  // signals are for the program's threads
        pthread_t thread;
        const bool started = ::pthread_create(&thread, nullptr, &unmap_watch::run, this) == 0;
        if (started) ::pthread_detach(thread);
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return started;
    }

    static void* run(void* self) {
        for (;;) static_cast<unmap_watch*>(self)->wait_and_read();
    }

    void wait_and_read() noexcept {
        pollfd readable{fd_, POLLIN, 0};
        if (::poll(&readable, 1, -1) <= 0) return;
        uffd_msg messages[16];
        const std::scoped_lock lock(events_lock_);
        word_->store(word_->load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
        const ssize_t got = ::read(fd_, messages, sizeof messages);
        for (ssize_t i = 0; i < got / static_cast<ssize_t>(sizeof messages[0]); ++i) tell(messages[i]);
    }

    void tell(const uffd_msg& message) noexcept {
        address_range gone;
        switch (message.event) {
            case UFFD_EVENT_UNMAP:
            case UFFD_EVENT_REMOVE: gone = {message.arg.remove.start, message.arg.remove.end}; break;
            case UFFD_EVENT_REMAP:
                gone = {message.arg.remap.from, message.arg.remap.from + message.arg.remap.len};
                break;
            default: return;
        }
        for (unmap_events* each = listeners_; each != nullptr; each = each->next_) each->add(gone);
    }

    // covered_ maps the start of each piece to what it is; it lasts up to the next piece's start. What lies before the
    // first piece is covered by no range, and so is the last piece.
    struct piece {
        std::uint32_t covers = 0;  // so many ranges
        std::uint32_t edges =
            0;  // so many ranges begin here, or ended just before; with none the piece has no use
    };
    using pieces = std::map<std::uintptr_t, piece>;

    bool cover(const address_range& range) noexcept {
        const auto first = split(range.start);
        if (first == covered_.end()) return false;
        const auto last = split(range.end);
        if (last == covered_.end()) {
            leave(first);
            return false;
        }
        for (auto at = first; at != last; ++at) ++at->second.covers;
        return true;
    }
    pieces::iterator split(std::uintptr_t address) noexcept {
        auto at = covered_.lower_bound(address);
        if (at == covered_.end() || at->first != address) {
            const std::uint32_t covers = at == covered_.begin() ? 0 : std::prev(at)->second.covers;
            try {
                at = covered_.emplace_hint(at, address, piece{covers, 0});
            } catch (const std::bad_alloc&) {
                return covered_.end();
            }
        }
        ++at->second.edges;
        return at;
    }
    void leave(pieces::iterator at) noexcept {
        if (--at->second.edges == 0) covered_.erase(at);
    }
    /// Stops watching those parts of the range that nothing covers. What is not mapped any more is not watched anyway.
    void uncover_unused(const address_range& range) noexcept {
        std::uintptr_t at = range.start;
        while (at < range.end) {
            const auto next = covered_.upper_bound(at);
            const std::uint32_t covers = next == covered_.begin() ? 0 : std::prev(next)->second.covers;
            const std::uintptr_t end =
                next == covered_.end() || next->first > range.end ? range.end : next->first;
            if (covers == 0) {
                uffdio_range unused{at, end - at};
                static_cast<void>(::ioctl(fd_, UFFDIO_UNREGISTER, &unused));
            }
            at = end;
        }
    }

    mapping_kind kinds_;
    int fd_ = -1;
    word* word_ = nullptr;  // in a page of its own, which the kernel gives to a child process as zeroes
    bool available_ = false;

    std::mutex events_lock_;
    unmap_events* listeners_ = nullptr;

    std::mutex ranges_lock_;  // never taken by the watcher: its holder may allocate and free
    pieces covered_;
};

}  // namespace rdmacoro::detail
