// How ranges of memory are watched, and the thread that reads the kernel's events.
#pragma once

#include <rdmacoro/coro/detail/signals_blocked.hpp>
#include <rdmacoro/memory/detail/unmap_watch.hpp>

#include <cerrno>
#include <new>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rdmacoro::detail {

class pthread_lock {
public:
    explicit pthread_lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) { ::pthread_mutex_lock(&mutex_); }
    ~pthread_lock() { ::pthread_mutex_unlock(&mutex_); }
    pthread_lock(const pthread_lock&) = delete;
    pthread_lock& operator=(const pthread_lock&) = delete;

private:
    pthread_mutex_t& mutex_;
};

RDMACORO_DECL void unmap_events::add(const address_range& range) noexcept {
    if (count_ < capacity) {
        ranges_[count_++] = range;
    } else {
        overflowed_ = true;
    }
}

RDMACORO_DECL unmap_watch& unmap_watch::of_process() {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    static unmap_watch* only = nullptr;
    const pthread_lock lock(making);
    if (only == nullptr || only->inherited()) only = new unmap_watch(unmap_watch_options{});
    return *only;
}

RDMACORO_DECL unmap_watch::unmap_watch(const unmap_watch_options& options) noexcept : kinds_(options.kinds) {
    available_ = options.permitted && open() && start_watcher();
}

RDMACORO_DECL unmap_watch::~unmap_watch() {
    if (fd_ >= 0) ::close(fd_);
    if (word_ != nullptr) ::munmap(word_, page_bytes());
}

RDMACORO_DECL std::size_t unmap_watch::page_bytes() noexcept {
    static const std::size_t bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

RDMACORO_DECL bool unmap_watch::settled() const noexcept {
    uffdio_writeprotect
        nothing{};  // refused as empty, but only after the kernel has looked for pending events
    const bool unsettled = ::ioctl(fd_, UFFDIO_WRITEPROTECT, &nothing) != 0 && errno == EAGAIN;
    std::atomic_thread_fence(std::memory_order_acquire);
    return !unsettled;
}

RDMACORO_DECL void unmap_watch::subscribe(unmap_events& events) noexcept {
    const pthread_lock lock(events_lock_);
    events.next_ = listeners_;
    listeners_ = &events;
}

RDMACORO_DECL void unmap_watch::unsubscribe(unmap_events& events) noexcept {
    const pthread_lock lock(events_lock_);
    for (unmap_events** at = &listeners_; *at != nullptr; at = &(*at)->next_) {
        if (*at != &events) continue;
        *at = events.next_;
        break;
    }
}

RDMACORO_DECL std::uint64_t unmap_watch::take(unmap_events& from, unmap_events& into) noexcept {
    const pthread_lock lock(events_lock_);
    into.count_ = from.count_;
    into.overflowed_ = from.overflowed_;
    for (std::size_t i = 0; i < from.count_; ++i) into.ranges_[i] = from.ranges_[i];
    from.count_ = 0;
    from.overflowed_ = false;
    return sequence();
}

RDMACORO_DECL bool unmap_watch::watch(const address_range& range) noexcept {
    if (!available_) return false;
    const pthread_lock lock(ranges_lock_);
    uffdio_register asked{{range.start, range.end - range.start}, UFFDIO_REGISTER_MODE_WP, 0};
    // Also when it is covered: the memory watched here may have been unmapped, and this may be a new mapping.
    const bool taken = ::ioctl(fd_, UFFDIO_REGISTER, &asked) == 0;
    if (taken && kinds_.private_anonymous(range.start, range.end) && cover(range)) return true;
    if (taken) uncover_unused(range);
    return false;
}

RDMACORO_DECL void unmap_watch::unwatch(const address_range& range) noexcept {
    const pthread_lock lock(ranges_lock_);
    const std::size_t first = piece_at(range.start);
    const std::size_t last = piece_at(range.end);
    for (std::size_t at = first; at != last; ++at) --pieces_[at].covers;
    uncover_unused(range);
    leave(last);
    leave(first);
}

RDMACORO_DECL bool unmap_watch::open() noexcept {
    void* page = ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    word_ = ::new (page) word(1);
    if (::madvise(page, page_bytes(), MADV_WIPEONFORK) != 0) return false;
    // Since Linux 5.11 every user may watch in user mode only. Faults never happen, so that is no restriction.
    fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
    if (fd_ < 0) fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
    if (fd_ < 0) return false;
    uffdio_api asked{UFFD_API,
                     UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP |
                         UFFD_FEATURE_PAGEFAULT_FLAG_WP,
                     0};
    return ::ioctl(fd_, UFFDIO_API, &asked) == 0;
}

RDMACORO_DECL bool unmap_watch::start_watcher() noexcept {
    const signals_blocked for_thread;
    pthread_t thread;
    const bool started = ::pthread_create(&thread, nullptr, &unmap_watch::run, this) == 0;
    if (started) ::pthread_detach(thread);
    return started;
}

RDMACORO_DECL void* unmap_watch::run(void* self) {
    for (;;) static_cast<unmap_watch*>(self)->wait_and_read();
}

RDMACORO_DECL void unmap_watch::wait_and_read() noexcept {
    pollfd readable{fd_, POLLIN, 0};
    if (::poll(&readable, 1, -1) <= 0) return;
    uffd_msg messages[16];
    const pthread_lock lock(events_lock_);
    word_->store(word_->load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    const ssize_t got = ::read(fd_, messages, sizeof messages);
    for (ssize_t i = 0; i < got / static_cast<ssize_t>(sizeof messages[0]); ++i) notify(messages[i]);
}

RDMACORO_DECL void unmap_watch::notify(const ::uffd_msg& message) noexcept {
    address_range lost;
    switch (message.event) {
        case UFFD_EVENT_UNMAP:
        case UFFD_EVENT_REMOVE: lost = {message.arg.remove.start, message.arg.remove.end}; break;
        case UFFD_EVENT_REMAP:
            lost = {message.arg.remap.from, message.arg.remap.from + message.arg.remap.len};
            break;
        default: return;
    }
    for (unmap_events* each = listeners_; each != nullptr; each = each->next_) each->add(lost);
}

RDMACORO_DECL bool unmap_watch::cover(const address_range& range) noexcept {
    const std::size_t first = split(range.start);
    if (first == none) return false;
    const std::size_t last = split(range.end);
    if (last == none) {
        leave(first);
        return false;
    }
    for (std::size_t at = first; at != last; ++at) ++pieces_[at].covers;
    return true;
}

/// The first piece that starts at `address` or later.
RDMACORO_DECL std::size_t unmap_watch::piece_at(std::uintptr_t address) const noexcept {
    std::size_t low = 0;
    for (std::size_t high = pieces_.size(); low < high;) {
        const std::size_t middle = (low + high) / 2;
        if (pieces_[middle].start < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/// Makes a piece start at `address`. `none` when memory is short.
RDMACORO_DECL std::size_t unmap_watch::split(std::uintptr_t address) noexcept {
    const std::size_t at = piece_at(address);
    if (at == pieces_.size() || pieces_[at].start != address) {
        const std::uint32_t covers = at == 0 ? 0 : pieces_[at - 1].covers;
        if (!pieces_.try_insert(at, piece{address, covers, 0})) return none;
    }
    ++pieces_[at].edges;
    return at;
}

RDMACORO_DECL void unmap_watch::leave(std::size_t at) noexcept {
    if (--pieces_[at].edges == 0) pieces_.erase(at);
}

/// Stops watching the parts of the range that no range covers. Memory that is not mapped any more is not watched
/// anyway.
RDMACORO_DECL void unmap_watch::uncover_unused(const address_range& range) noexcept {
    std::uintptr_t at = range.start;
    while (at < range.end) {
        const std::size_t next = piece_at(at + 1);
        const std::uint32_t covers = next == 0 ? 0 : pieces_[next - 1].covers;
        const bool beyond = next == pieces_.size() || pieces_[next].start > range.end;
        const std::uintptr_t end = beyond ? range.end : pieces_[next].start;
        if (covers == 0) {
            uffdio_range unused{at, end - at};
            static_cast<void>(::ioctl(fd_, UFFDIO_UNREGISTER, &unused));
        }
        at = end;
    }
}

}  // namespace rdmacoro::detail
