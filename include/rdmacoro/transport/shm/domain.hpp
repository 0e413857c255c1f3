// The shared-memory domain: what is one for a scheduler. Its doorbell, its table of regions, its shared arena, and the
// descriptors it watches.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/shm/arena.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <linux/membarrier.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rdmacoro {

/// How a shared-memory domain behaves; the defaults suit all but tests.
struct shm_options {
    detail::shm::geometry shape{};  ///< of the links this side connects
    std::size_t arena_bytes =
        1u << 30;  ///< address space for `shared_memory`; pages are used as they are touched
    std::size_t max_regions = 16384;                      ///< registered at once; at most 65,536
    duration handshake_limit = std::chrono::seconds(10);  ///< how long a peer may take to say who it is
    bool use_process_vm = true;  ///< false: as on a kernel that forbids process_vm_readv
    bool use_membarrier = true;  ///< false: as on a kernel without it
};

namespace detail::shm {

/// Something to call when a descriptor is ready. Lives with the descriptor's owner; unwatched before it goes.
struct fd_handler {
    using function = void (*)(fd_handler& self, std::uint32_t events) noexcept;
    function ready = nullptr;
    int watched = -1;
    bool awaited = false;
};

/// A link as its domain sees it.
class pollable : public list_node<pollable> {
public:
    virtual unsigned poll(unsigned budget) noexcept = 0;
    virtual void set_parked(bool parked) noexcept = 0;
    /// Returns when the peer is not touching the region of ours with this key; 0: any.
    virtual void wait_until_untouched(std::uint64_t key) noexcept = 0;

protected:
    ~pollable() { unlink(); }
};

/// Whether a peer's doorbell may be looked at without a fence; see `doorbell_order`.
inline bool register_membarrier() noexcept {
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

/// What is one for a scheduler, without templates.
class domain_base : public progress_source, public region_owner {
public:
    domain_base(scheduler& owner, const shm_options& options)
        : owner_(owner),
          options_(options),
          epoll_(::epoll_create1(EPOLL_CLOEXEC)),
          doorbell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
          table_file_(make_table(options.max_regions)),
          table_memory_(map_table(table_file_.get(), options.max_regions)),
          regions_(std::span<region_entry>(table_memory_, options.max_regions)),
          arena_(options.arena_bytes),
          membarrier_(options.use_membarrier && register_membarrier()) {
        if (!epoll_ || !doorbell_) throw_errno("epoll or eventfd for shared memory");
        if (::getrandom(&probe_word_, sizeof probe_word_, 0) != sizeof probe_word_) throw_errno("getrandom");
        bell_.ready = [](fd_handler& self, std::uint32_t) noexcept {
            std::uint64_t rung = 0;
            [[maybe_unused]] const auto taken = ::read(self.watched, &rung, sizeof rung);
        };
        watch(bell_, doorbell_.get(), EPOLLIN);
        owner_.add_source(*this);
    }
    domain_base(const domain_base&) = delete;
    domain_base& operator=(const domain_base&) = delete;
    ~domain_base() {
        if (!links_.empty()) fatal("a shared-memory domain was destroyed before its links");
        ::munmap(table_memory_, table_bytes(options_.max_regions));
    }

    [[nodiscard]] scheduler& owner() noexcept { return owner_; }
    [[nodiscard]] const shm_options& options() const noexcept { return options_; }
    [[nodiscard]] int doorbell() const noexcept { return doorbell_.get(); }
    [[nodiscard]] int table_file() const noexcept { return table_file_.get(); }
    [[nodiscard]] bool uses_membarrier() const noexcept { return membarrier_; }
    [[nodiscard]] arena& shared_arena() noexcept { return arena_; }
    /// A word that a peer reads to find out whether it can read our memory.
    [[nodiscard]] const std::uint64_t* probe_word() const noexcept { return &probe_word_; }
    [[nodiscard]] region_table& regions() noexcept { return regions_; }

    /// Makes memory reachable for every peer of this domain. Throws `errc::no_resources` when the table is full.
    [[nodiscard]] region register_memory(std::span<std::byte> memory,
                                         access_rights rights = access_rights::all) {
        return region(*this, memory, regions_.add(memory, rights));
    }

    /// As above; empty instead of throwing.
    [[nodiscard]] region try_register(std::span<std::byte> memory, access_rights rights) noexcept {
        return detail::try_register(*this, regions_, memory, rights);
    }

    /// Memory that peers can reach with a plain copy, without the kernel, once it is registered. Every peer maps all of it:
    /// the rights of its regions bind peers that keep to them. Throws `errc::no_resources`.
    [[nodiscard]] shared_memory allocate_shared(std::size_t bytes) { return arena_.allocate(bytes); }

    void deregister(std::uint64_t key) noexcept override {
        regions_.remove(key);
        // A peer marks the region it is touching, then checks the table; this empties the table, then looks for marks.
        for (pollable* link = links_.front(); link != nullptr; link = links_.next(*link))
            link->wait_until_untouched(key);
    }

    void add_link(pollable& link) noexcept { links_.push_back(link); }

    /// Calls `handler.ready` when `fd` has one of `events`; level-triggered. `awaited`: somebody waits for it, so look often.
    /// Throws.
    void watch(fd_handler& handler, int fd, std::uint32_t events, bool awaited = false) {
        epoll_event wanted{};
        wanted.events = events;
        wanted.data.ptr = &handler;
        if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted) != 0)
            throw_errno("epoll_ctl for shared memory");
        handler.watched = fd;
        handler.awaited = awaited;
        if (awaited) ++awaited_;
    }
    void unwatch(fd_handler& handler) noexcept {
        if (handler.watched < 0) return;
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, handler.watched, nullptr);
        handler.watched = -1;
        if (handler.awaited) --awaited_;
        for (epoll_event& event : batch_) {
            if (event.data.ptr == &handler)
                event.data.ptr = nullptr;  // it may be in the batch that is being called
        }
    }

    bool poll() noexcept override {
        bool any = false;
        // Looking at a ring costs a few nanoseconds, a turn of the scheduler several times that: look more than once.
        for (unsigned looks = 0; looks < looks_in_a_poll && !any; ++looks) {
            for (pollable* link = links_.front(); link != nullptr;) {
                pollable* after = links_.next(*link);
                any |= link->poll(links_budget) != 0;
                link = after;
            }
        }
        // Sockets tell of connections and of deaths; looking costs a system call, so only now and then while busy.
        turns_ += any ? 1u : 8u;
        if (turns_ >= (awaited_ != 0 ? turns_between_looks_soon : turns_between_looks))
            any |= look_at_descriptors();
        return any;
    }

    int wake_fd() noexcept override { return epoll_.get(); }

    void arm() noexcept override {
        for (pollable* link = links_.front(); link != nullptr; link = links_.next(*link))
            link->set_parked(true);
        if (membarrier_) {
            // From here on every peer either sees that we sleep, or had published before and is found by the next poll.
            ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
        } else {
            std::atomic_thread_fence(std::memory_order_seq_cst);
        }
        turns_ = turns_between_looks;
    }
    void disarm() noexcept override {
        for (pollable* link = links_.front(); link != nullptr; link = links_.next(*link))
            link->set_parked(false);
        turns_ = turns_between_looks;
    }

private:
    static constexpr unsigned links_budget = 64;
    static constexpr unsigned looks_in_a_poll = 4;
    static constexpr unsigned turns_between_looks = 1u << 15;
    static constexpr unsigned turns_between_looks_soon = 1u << 9;

    [[gnu::noinline]] bool look_at_descriptors() noexcept {
        turns_ = 0;
        const int ready = ::epoll_wait(epoll_.get(), batch_.data(), static_cast<int>(batch_.size()), 0);
        for (int i = 0; i < ready; ++i) {
            const epoll_event event = batch_[static_cast<std::size_t>(i)];
            if (event.data.ptr == nullptr) continue;
            auto* handler = static_cast<fd_handler*>(event.data.ptr);
            handler->ready(*handler, event.events);
        }
        for (epoll_event& event : batch_) event.data.ptr = nullptr;
        if (ready == static_cast<int>(batch_.size())) turns_ = turns_between_looks;
        return ready > 0;
    }

    [[nodiscard]] static std::size_t table_bytes(std::size_t entries) noexcept {
        return (entries * sizeof(region_entry) + page_bytes - 1) / page_bytes * page_bytes;
    }
    [[nodiscard]] static unique_fd make_table(std::size_t entries) {
        unique_fd fd(::memfd_create("rdmacoro-regions", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(table_bytes(entries))) != 0)
            throw_errno("memfd of the region table");
        return fd;
    }
    /// Maps it for us, and then forbids anybody, ourselves included, to map it for writing again.
    [[nodiscard]] static region_entry* map_table(int fd, std::size_t entries) {
        void* mapped = ::mmap(nullptr, table_bytes(entries), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) throw_errno("mmap of the region table");
        if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
            throw_errno("sealing the region table");
        }
        return static_cast<region_entry*>(mapped);
    }

    scheduler& owner_;
    shm_options options_;
    unique_fd epoll_;
    unique_fd doorbell_;
    unique_fd table_file_;
    region_entry* table_memory_;
    region_table regions_;
    arena arena_;
    bool membarrier_;
    std::uint64_t probe_word_ = 0;
    unsigned turns_ = turns_between_looks;
    unsigned awaited_ = 0;  // handlers that somebody waits for
    fd_handler bell_;
    intrusive_list<pollable> links_;
    std::array<epoll_event, 16> batch_{};
};

}  // namespace detail::shm
}  // namespace rdmacoro
