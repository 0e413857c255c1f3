// The shared-memory domain's descriptors, links and table of regions.
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/coro/detail/ticks.hpp>
#include <rdmacoro/transport/shm/domain.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rdmacoro::detail::shm {

RDMACORO_COLD bool register_membarrier() noexcept {
    return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

/// Throws where peers would refuse what comes of them.
RDMACORO_COLD const shm_options& checked(const shm_options& options) {
    if (options.max_regions == 0 || options.max_regions > 65536)
        throw error(errc::invalid_argument, "shm_options::max_regions: 1 to 65,536");
    if (options.handshake_limit <= duration::zero())
        throw error(errc::invalid_argument, "shm_options::handshake_limit: more than 0");
    if (options.arena_bytes == 0 || options.arena_bytes > arena::most_bytes)
        throw error(errc::invalid_argument, "shm_options::arena_bytes: 1 byte to 64 TiB");
    return options;
}

RDMACORO_COLD domain_base::domain_base(scheduler& owner, const shm_options& options)
    : owner_(owner),
      options_(checked(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      table_file_(make_table(options.max_regions)),
      table_memory_(map_table(table_file_.get(), options.max_regions)),
      regions_(std::span<region_entry>(table_memory_.get(), options.max_regions), region_salt::random()),
      arena_(options.arena_bytes, &owner),
      membarrier_(options.use_membarrier && register_membarrier()),
      process_(::getpid()) {
    if (!epoll_) throw_errno("epoll for shared memory");
    touch_timer_.self = tidy_timer_.self = this;
    touch_timer_.expired = [](timer_node& t) noexcept { static_cast<own_timer&>(t).self->look_at_touched(); };
    tidy_timer_.expired = [](timer_node& t) noexcept { static_cast<own_timer&>(t).self->tidy(); };
    owner_.add_source(*this);
}

RDMACORO_COLD domain_base::~domain_base() {
    if (links_count_ != 0) fatal("a shared-memory domain, or its scheduler, was destroyed before its links");
    if (regions_.registered() != 0)
        fatal("a shared-memory domain, or its scheduler, was destroyed before a region of its memory");
    owner_.remove_timer(touch_timer_);
    owner_.remove_timer(tidy_timer_);
}

RDMACORO_COLD bool domain_base::own_process() const noexcept { return ::getpid() == process_; }

RDMACORO_COLD region domain_base::register_memory(std::span<std::byte> memory, access_rights rights) {
    require_thread_of(&owner_, "memory for", "was registered");
    return region(*this, memory, regions_.add(memory, rights));
}

RDMACORO_COLD region domain_base::try_register(std::span<std::byte> memory, access_rights rights) noexcept {
    return detail::try_register(*this, regions_, memory, rights);
}

RDMACORO_COLD void domain_base::deregister(std::uint64_t key) noexcept {
    require_thread_of(&owner_, "memory for", "was deregistered");
    const std::span<std::byte> range = regions_.memory_of(key);
    regions_.remove(key);
    // A peer marks the region it is touching, then checks the table; this empties the table, then looks for marks.
    const std::size_t slot = key_source::slot_of(key);
    if (const told only = slot < told_to_.size() ? std::exchange(told_to_[slot], {}) : told{};
        only.serial != 0) {
        pollable* const link = numbered_[only.number - 1];
        // Else it was closed, and has waited then.
        if (link == nullptr || link->serial_ != only.serial || !link->touched(key)) return;
        link->await_untouched(key, range, deadline_after(owner_.now(), mark_patience::most));
        set_timer(touch_timer_, between_touch_looks);
        if (!link->list_node<touched_tag>::linked()) touched_.push_back(*link);
        return;
    }
    mark_wait wait(patience_);
    take_touchers();
    for (pollable* link = touchers_.front(); link != nullptr; link = touchers_.next(*link))
        link->wait_until_untouched(key, range, wait);
    rest_touchers();
}

RDMACORO_COLD void domain_base::watch_touches(pollable& link) noexcept {
    link.want_touch_notice(0);
    if (!link.list_node<toucher_tag>::linked()) touchers_.push_back(link);
}

RDMACORO_COLD void domain_base::take_touchers() noexcept {
    notice_board* const board = arena_.touch_board();
    if (board == nullptr) return;
    board->take_all([&](std::uint32_t marked) noexcept {
        if (marked < numbered_.size() && numbered_[marked] != nullptr) watch_touches(*numbered_[marked]);
    });
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

RDMACORO_COLD void domain_base::rest_touchers() noexcept {
    intrusive_list<pollable, toucher_tag> busy;
    intrusive_list<pollable, toucher_tag> resting;
    while (pollable* link = touchers_.pop_front()) {
        const bool stays = link->number_ > notice_board::most_links || link->touched(0);
        (stays ? busy : resting).push_back(*link);
    }
    touchers_.splice_back(busy);
    if (resting.empty()) return;
    for (pollable* link = resting.front(); link != nullptr; link = resting.next(*link))
        link->want_touch_notice(link->number_);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    while (pollable* link = resting.pop_front()) {
        if (link->touched(0)) watch_touches(*link);
    }
}

RDMACORO_COLD void domain_base::set_timer(own_timer& timer, duration after) noexcept {
    if (timer.queued()) return;
    timer.deadline = deadline_after(owner_.now(), after);
    owner_.add_timer(timer);
}

RDMACORO_COLD void domain_base::look_at_touched() noexcept {
    const time_point now = owner_.now();
    for (pollable* link = touched_.front(); link != nullptr;) {
        pollable* const after = touched_.next(*link);
        if (!link->awaits_untouched(now)) link->list_node<touched_tag>::unlink();
        link = after;
    }
    // Without memory for it: when the next region ends.
    if (!touched_.empty()) set_timer(touch_timer_, between_touch_looks);
}

RDMACORO_DECL region domain_base::register_for(const pollable& link, std::span<std::byte> memory,
                                               access_rights rights) noexcept {
    region made = try_register(memory, rights);
    if (!made || link.number_ > notice_board::most_links) return made;
    const std::size_t slot = key_source::slot_of(made.remote().key);
    while (told_to_.size() <= slot && told_to_.try_push_back({})) {}
    if (slot < told_to_.size()) told_to_[slot] = {link.number_, link.serial_};
    return made;
}

RDMACORO_DECL errc domain_base::check_served(std::uint32_t serial, const remote_region& there,
                                             access_rights wanted) const noexcept {
    const std::size_t slot = key_source::slot_of(there.key);
    const std::uint32_t only = slot < told_to_.size() ? told_to_[slot].serial : 0;
    if (only != 0 && only != serial) return errc::bad_key;  // whether it is good is not this peer's business
    return regions_.check(there.key, there.address, there.length, wanted);
}

RDMACORO_COLD void domain_base::add_link(pollable& link) noexcept {
    arena_.end_holds();
    if (!free_numbers_.empty()) {
        link.number_ = free_numbers_.back();
        free_numbers_.pop_back();
        numbered_[link.number_ - 1] = &link;
    } else if (numbered_.size() < notice_board::most_links &&
               free_numbers_.try_reserve(numbered_.size() + 1) && numbered_.try_push_back(&link)) {
        link.number_ = static_cast<std::uint32_t>(numbered_.size());
    }  // else it has no number, and is always polled
    if (++last_serial_ == 0) last_serial_ = 1;
    link.serial_ = last_serial_;
    hot_.push_back(link);
    looked_at_.push_back(link);
    ++links_count_;
    if (arena_.board() != nullptr) marks_ = &arena_.board()->marked_groups;
    if (armed_) link.want_notice(link.number_);
    touchers_.push_back(link);  // until memory is closed for the first time
}

RDMACORO_COLD void domain_base::remove_link(pollable& link) noexcept {
    link.leave_lists();
    if (next_to_copy_ == &link) next_to_copy_ = nullptr;
    --links_count_;
    if (!link.hot_) --cold_count_;
    if (link.number_ > notice_board::most_links) return;
    numbered_[link.number_ - 1] = nullptr;
    static_cast<void>(free_numbers_.try_push_back(link.number_));
}

[[gnu::noinline]] RDMACORO_DECL void domain_base::reheat(pollable& link) noexcept {
    link.list_node<pollable>::unlink();
    --cold_count_;
    link.hot_ = true;
    hot_.push_front(link);
    looked_at_.push_back(link);
    if (!armed_) link.want_notice(0);  // else `disarm` does
}

RDMACORO_DECL void domain_base::barrier() noexcept {
    if (membarrier_) {
        ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    } else {
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
}

RDMACORO_DECL bool domain_base::cool() noexcept {
    if (to_cool_.empty()) to_cool_.splice_back(looked_at_);
    intrusive_list<pollable, cooling_tag> cooling;
    for (std::size_t n = 0; n < links_in_a_cooling; ++n) {
        pollable* const link = to_cool_.pop_front();
        if (link == nullptr) break;
        const bool quiet = link->quiet();
        if (quiet) {
            link->give_back();
            note_memory(*link);
        }
        const bool stays = !quiet || link->number_ > notice_board::most_links;
        (stays ? looked_at_ : cooling).push_back(*link);
    }
    if (to_cool_.empty() && looked_at_.empty()) {  // one stays hot: the last that became so, or was active
        if (pollable* const last = cooling.back()) {
            last->list_node<cooling_tag>::unlink();
            looked_at_.push_back(*last);
        }
    }
    if (cooling.empty()) return !to_cool_.empty();
    for (pollable* link = cooling.front(); link != nullptr; link = cooling.next(*link))
        link->want_notice(link->number_);
    barrier();
    while (pollable* link = cooling.pop_front()) {
        if (link->quiet()) {
            link->hot_ = false;
            ++cold_count_;
            link->list_node<pollable>::unlink();
            cold_.push_back(*link);
        } else {
            link->want_notice(0);
            looked_at_.push_back(*link);
        }
    }
    return !to_cool_.empty();
}

[[gnu::noinline]] RDMACORO_DECL bool domain_base::take_notices(unsigned& left) noexcept {
    bool any = false;
    notices_.take(*arena_.board(), [&](std::uint32_t marked) noexcept {
        if (marked >= numbered_.size()) return;
        pollable* const link = numbered_[marked];
        if (link == nullptr) return;
        const unsigned moved = left != 0 ? link->poll(messages_of_a_link) : 0;
        any |= moved != 0;
        left -= std::min(left, moved);
        if (numbered_[marked] != link) return;  // it was removed
        // A mark without cause makes no link hot. One for room that was given back leaves no other trace than the memory in use.
        if (moved != 0 || link->wants_poll() || link->holds_memory()) heat(*link);
    });
    return any || notices_.any(*arena_.board());
}

RDMACORO_DECL void domain_base::rung(pollable& link) noexcept {
    if (link.hot_ || !link.wants_poll()) return;
    // A mark is set before the doorbell is rung, and makes its link hot when it is taken. Where news is left of a cold one without a mark,
    // another peer has cleared it, and maybe those of others, which have not rung.
    const notice_board* const board = arena_.board();
    const bool marked = board != nullptr && notices_.any(*board) && board->marked(link.number_ - 1);
    if (!marked) marks_cleared_ = true;
}

[[gnu::noinline]] RDMACORO_DECL bool domain_base::sweep() noexcept {
    for (std::size_t n = 0; n < links_in_a_sweep && to_sweep_ != 0; ++n, --to_sweep_) {
        pollable* const link = cold_.pop_front();
        if (link == nullptr) {
            to_sweep_ = 0;
            break;
        }
        cold_.push_back(*link);
        if (link->wants_poll()) {
            reheat(*link);
        } else {
            note_memory(*link);
        }
    }
    return true;
}

RDMACORO_COLD void domain_base::watch(fd_handler& handler, int fd, std::uint32_t events, bool awaited) {
    epoll_event wanted{};
    wanted.events = events;
    wanted.data.ptr = &handler;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted) != 0)
        throw_errno("epoll_ctl for shared memory");
    handler.watched = fd;
    handler.awaited = awaited;
    if (awaited) ++awaited_;
}

RDMACORO_COLD void domain_base::unwatch(fd_handler& handler) noexcept {
    if (handler.watched < 0) return;
    if (own_process())
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, handler.watched, nullptr);  // else it is the parent's
    handler.watched = -1;
    if (handler.awaited) --awaited_;
    for (due& each : due_) {
        if (each.handler == &handler) each.handler = nullptr;
    }
}

/// A clock that costs a few nanoseconds; its unit is between 0.1 and 1 ns. Not the scheduler's, which a test may let stand still.
inline std::uint64_t ticks_now() noexcept {
#if defined(__x86_64__)
    return detail::ticks();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

RDMACORO_DECL bool domain_base::poll() noexcept {
    bool any = false;
    unsigned left = messages_of_a_poll;
    // These come first: nothing lies between a record that is found and the return to its coroutine.
    if (notices_.any(*marks_)) [[unlikely]]
        any = take_notices(left);
    if (--polls_to_clock_ == 0) [[unlikely]]
        any |= by_the_clock(left != messages_of_a_poll);
    // Polling a ring costs a few nanoseconds, a turn of the scheduler several times that: poll more than once.
    unsigned looks = 0;
    do {
        for (pollable* link = hot_.front(); link != nullptr;) {
            pollable* after = hot_.next(*link);
            if (const unsigned moved = link->poll(messages_of_a_link); moved != 0) {
                any = true;
                left -= std::min(left, moved);
                if (left == 0) [[unlikely]]
                    return begin_next_poll_with(after);
            }
            link = after;
        }
    } while (!any && ++looks < looks_in_a_poll);
    return any;
}

/// This poll has handed up as many messages as it may. Nullptr: of the last link.
[[gnu::noinline]] RDMACORO_DECL bool domain_base::begin_next_poll_with(pollable* first) noexcept {
    // A sink that was called in this poll may have removed it.
    if (first == nullptr || !first->hot_ || !first->list_node<pollable>::linked()) return true;
    while (hot_.front() != first) hot_.push_back(*hot_.pop_front());
    return true;
}

[[gnu::noinline]] RDMACORO_DECL bool domain_base::by_the_clock(bool handed_up) noexcept {
    // The unit differs from machine to machine, so these are coarse: 6, 13, 200 and 800 us at 2.6 GHz.
    constexpr std::uint64_t long_poll = 1u << 14;
    constexpr std::uint64_t between_looks_soon = 1u << 15;
    constexpr std::uint64_t between_looks = 1u << 19;
    constexpr std::uint64_t between_coolings = 1u << 21;
    const std::uint64_t now = ticks_now();
    // Reading the clock costs as much as polling a few links. A turn may take as long as its coroutines like: when one of the last
    // was long it is read in each, and then ever less often, as a short one may come between two that are long.
    if (now - clock_read_ > long_poll) {
        polls_between_clocks_ = 1;
    } else if (polls_between_clocks_ < most_between_clocks) {
        polls_between_clocks_ *= 2;
    }
    polls_to_clock_ = polls_between_clocks_;
    clock_read_ = now;
    bool any = false;
    if (copies_.used_up()) {
        // Some may have been used up in this very poll. Once: a peer can have marks found in each.
        copies_wait_ = handed_up && !copies_wait_;
        if (copies_wait_) {
            polls_to_clock_ = 1;
        } else {
            renew_copies();
        }
    }
    const bool begins = now - last_cooling_ > between_coolings && to_cool_.empty();
    if ((begins || !to_cool_.empty()) && !armed_) {
        if (begins) last_cooling_ = now;
        if (cool()) polls_to_clock_ = 1;
        if (begins && to_sweep_ == 0 && cold_count_ != 0) {
            to_sweep_ = links_in_a_sweep;
            sweep();
        }
    }
    if (to_sweep_ != 0) {
        any = sweep();
        polls_to_clock_ = 1;
    }
    // Sockets report connections and dead peers; polling them costs a system call.
    if (look_now_ || now - last_look_ > (awaited_ != 0 ? between_looks_soon : between_looks)) {
        last_look_ = now;
        any |= look_at_descriptors();
    }
    return any;
}

RDMACORO_DECL void domain_base::arm() noexcept {
    armed_ = true;
    for (pollable* link = hot_.front(); link != nullptr; link = hot_.next(*link)) {
        link->want_notice(link->number_);
        note_memory(*link);
    }
    look_at_memory_later();
    asleep().store(1, std::memory_order_relaxed);
    barrier();
    look_soon();
}

RDMACORO_DECL void domain_base::disarm() noexcept {
    armed_ = false;
    asleep().store(0, std::memory_order_relaxed);
    for (pollable* link = hot_.front(); link != nullptr; link = hot_.next(*link)) link->want_notice(0);
    look_soon();
}

[[gnu::noinline]] RDMACORO_DECL bool domain_base::look_at_descriptors() noexcept {
    look_now_ = false;
    if (next_due_ == due_count_) {
        epoll_event events[most_due];
        const int ready = ::epoll_wait(epoll_.get(), events, most_due, 0);
        next_due_ = 0;
        due_count_ = ready > 0 ? static_cast<unsigned>(ready) : 0;
        for (unsigned n = 0; n < due_count_; ++n)
            due_[n] = {static_cast<fd_handler*>(events[n].data.ptr), events[n].events};
    }
    const bool any = due_count_ != 0;
    // A handshake takes some 100 us: messages do not wait for those of 16 clients.
    constexpr std::uint64_t long_look = 1u << 17;  // in ticks, 50 us at 2.6 GHz
    const std::uint64_t began = any ? ticks_now() : 0;
    while (next_due_ != due_count_) {
        const due& one = due_[next_due_++];
        // A handler that was unwatched by one before it is no longer there.
        if (one.handler == nullptr) continue;
        one.handler->ready(*one.handler, one.events);
        if (ticks_now() - began > long_look) break;
    }
    if (next_due_ != due_count_ || due_count_ == most_due) {
        look_soon();
    } else if (std::exchange(marks_cleared_, false)) {
        to_sweep_ = cold_count_;
        polls_to_clock_ = 1;
    }
    return any;
}

RDMACORO_COLD void domain_base::renew_copies() noexcept {
    copies_.renew();
    pollable* const first = std::exchange(next_to_copy_, nullptr);
    begin_next_poll_with(first);
}

RDMACORO_DECL void domain_base::note_memory(pollable& link) noexcept {
    if (link.list_node<tidy_tag>::linked() || !link.holds_memory()) return;
    set_timer(tidy_timer_, between_tidyings);
    link.return_memory();  // takes note of what was sent up to now
    to_tidy_.push_back(link);
    ++to_tidy_count_;
}

RDMACORO_DECL void domain_base::look_at_memory_later() noexcept {
    if (cold_count_ == 0 || owner_.worked_at() < looked_at_memory_) return;
    set_timer(tidy_timer_, between_tidyings);
    look_at_memory_ = true;
}

RDMACORO_COLD void domain_base::tidy() noexcept {
    if (tidy_in_round_ == 0) {
        tidy_in_round_ = std::exchange(to_tidy_count_, 0);
        if (std::exchange(look_at_memory_, false)) {
            looked_at_memory_ = owner_.coarse_now();
            to_sweep_ = cold_count_;
            polls_to_clock_ = 1;
        }
    }
    for (std::size_t n = 0; n < links_in_a_tidying && tidy_in_round_ != 0; ++n) {
        --tidy_in_round_;
        pollable* const link = to_tidy_.pop_front();
        if (link == nullptr) {  // some were removed
            tidy_in_round_ = 0;
        } else if (link->return_memory()) {
            to_tidy_.push_back(*link);
            ++to_tidy_count_;
        }
    }
    if (!to_tidy_.empty() || look_at_memory_)
        set_timer(tidy_timer_, tidy_in_round_ != 0 ? soon : between_tidyings);
}

RDMACORO_COLD std::size_t domain_base::entries_bytes(std::size_t entries) noexcept {
    return (entries * sizeof(region_entry) + page_bytes - 1) / page_bytes * page_bytes;
}

RDMACORO_COLD std::size_t domain_base::table_bytes(std::size_t entries) noexcept {
    return entries_bytes(entries) + page_bytes;
}

RDMACORO_DECL std::atomic<std::uint32_t>& domain_base::asleep() noexcept {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(reinterpret_cast<std::byte*>(table_memory_.get()) +
                                                          entries_bytes(options_.max_regions));
}

RDMACORO_COLD unique_fd domain_base::make_table(std::size_t entries) {
    return make_memfd("rdmacoro-regions", table_bytes(entries), "the region table",
                      "shm_options::max_regions");
}

RDMACORO_COLD void domain_base::unmap_table::operator()(region_entry* table) const noexcept {
    ::munmap(table, table_bytes(entries));
}

RDMACORO_COLD domain_base::mapped_table domain_base::map_table(int fd, std::size_t entries) {
    void* mapped = ::mmap(nullptr, table_bytes(entries), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) throw_errno("mmap of the region table");
    mapped_table made(static_cast<region_entry*>(mapped), unmap_table{entries});
    if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
        throw_errno("sealing the region table");
    return made;
}

}  // namespace rdmacoro::detail::shm
