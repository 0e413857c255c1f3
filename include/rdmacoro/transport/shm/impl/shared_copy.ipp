// Blocks that both ends of a shared-memory link copy: claims, checks and rescue.
#pragma once

#include <rdmacoro/transport/shm/shared_copy.hpp>

#include <algorithm>
#include <bit>
#include <new>

namespace rdmacoro::detail::shm {

RDMACORO_COLD shared_copy_engine::~shared_copy_engine() {
    free_.splice_back(active_);
    free_.splice_back(turn_);
    free_.splice_back(late_);
    free_memory();
}

RDMACORO_COLD void shared_copy_engine::free_memory() noexcept {
    while (job* unused = free_.pop_front()) delete unused;
}

RDMACORO_DECL shared_copy_id shared_copy_engine::open(std::size_t bytes) noexcept {
    const auto slot = static_cast<unsigned>(std::countr_one(open_));
    if (slot == shared_copies_open || !shared_pieces(bytes).countable()) return no_shared_copy;
    open_ |= std::uint64_t{1} << slot;
    shared_copy_words& words = link_.out_copies[slot];
    words.finished.store(0, std::memory_order_relaxed);
    words.claimed.store(0, std::memory_order_release);
    return slot;
}

RDMACORO_DECL void shared_copy_engine::close(shared_copy_id id) noexcept {
    if (id < shared_copies_open) open_ &= ~(std::uint64_t{1} << id);
}

RDMACORO_DECL post_result shared_copy_engine::begin_front(shared_copy_id id, const remote_region& there,
                                                          std::byte* into, completion& c) noexcept {
    // No pieces, nothing to share; whether the memory may be read is still looked at.
    if (there.length == 0) return one_sided_.begin(true, there, into, c);
    return begin(true, id < shared_copies_open ? &link_.in_copies[id] : nullptr, there, into, c);
}

RDMACORO_DECL post_result shared_copy_engine::begin_back(shared_copy_id id, const std::byte* from,
                                                         const remote_region& there, completion& c) noexcept {
    // A put that the peer must serve would cost it more than the get that it is about to do.
    if (there.length == 0 || !link_.peer.reaches(there.address, there.length)) return post_result::done;
    return begin(false, id < shared_copies_open ? &link_.out_copies[id] : nullptr, there,
                 const_cast<std::byte*>(from), c);
}

RDMACORO_COLD bool shared_copy_engine::revoke(const completion& c) noexcept {
    job* found = of(active_, c);
    if (found == nullptr) found = of(turn_, c);
    if (found == nullptr) found = of(late_, c);
    if (found == nullptr) return false;
    give_back(*found);
    return true;
}

RDMACORO_DECL bool shared_copy_engine::advance() noexcept {
    bool any = false;
    // A completion that is called here may revoke another operation, begin one, or close the link.
    waits_ = false;
    turn_.splice_back(active_);
    while (job* one = turn_.pop_front()) {
        (link_.domain->copies().used_up() ? late_ : active_).push_back(*one);
        any |= step(*one);
        if (violated_) {
            any = true;
            break;
        }
        if (one->over) {
            finish(*one, make_error_code(one->status));
            any = true;
        }
    }
    late_.splice_back(active_);
    active_.splice_back(late_);
    active_.splice_back(turn_);
    return any;
}

RDMACORO_COLD void shared_copy_engine::fail_all(std::error_code reason) noexcept {
    active_.splice_back(turn_);
    active_.splice_back(late_);
    waits_ = false;
    while (job* one = active_.front()) finish(*one, reason);
}

RDMACORO_DECL shared_copy_engine::job::job() noexcept {
    part.done = [](completion& self, std::error_code outcome) noexcept {
        static_cast<part_completion&>(self).of->part_over(outcome);
    };
    part.of = this;
}

RDMACORO_DECL void shared_copy_engine::job::part_over(std::error_code outcome) noexcept {
    fetching = false;
    failure = outcome;
    next = until;
}

RDMACORO_DECL post_result shared_copy_engine::begin(bool front, shared_copy_words* words,
                                                    const remote_region& there, std::byte* local,
                                                    completion& c) noexcept {
    job* made = take();
    if (made == nullptr) return post_result::retry;
    made->done = &c;
    made->front = front;
    made->over = made->fetching = made->rescues = false;
    made->there = there;
    made->local = local;
    made->words = words;
    made->pieces = shared_pieces(static_cast<std::size_t>(there.length));
    made->mine = made->theirs = made->back_finished = 0;
    made->next = made->until = 0;
    made->status = errc::ok;
    made->failure = {};
    active_.push_back(*made);
    if (words == nullptr || !made->pieces.countable()) {
        violated_ = true;  // the peer has named a block that there can't be
        return post_result::posted;
    }
    step(*made);
    if (made->over && made->status == errc::ok && !made->failure) {
        give_back(*made);
        return post_result::done;
    }
    return post_result::posted;
}

RDMACORO_DECL bool shared_copy_engine::step(job& one) noexcept {
    bool any = false;
    while (!one.over && !violated_) {
        if (one.fetching) return any;
        if (one.failure) {
            one.over = true;
            break;
        }
        const std::uint64_t room = link_.domain->copies().piece() / shared_pieces::piece;
        if (one.next < one.until) {
            if (room == 0) {
                waits_ = true;
                return any;
            }
            const std::size_t now = copy_claimed(one, room);
            if (now == 0) return any || one.over || one.fetching;
            link_.domain->copies().copied(now);
        } else if (!find_work(one, room)) {
            return any || one.over;
        }
        any = true;
    }
    return any;
}

RDMACORO_DECL std::size_t shared_copy_engine::copy_claimed(job& one, std::uint64_t room) noexcept {
    if (!link_.peer.reaches(one.there.address, one.there.length)) {
        fetch_served(one);
        return 0;
    }
    const std::uint64_t now = std::min({one.until - one.next, room, shared_pieces::most_claimed});
    const std::uint64_t first = one.front ? one.next : one.pieces.count - one.next - now;
    const std::size_t offset = one.pieces.offset(first);
    const std::size_t bytes = one.pieces.offset(first + now) - offset;
    const errc outcome =
        link_.touch(one.there, one.front ? access_rights::remote_read : access_rights::remote_write, [&] {
            return link_.peer.copy(one.front, one.there.address + offset, one.local + offset, bytes);
        });
    if (outcome == errc::ok) {
        one.next += now;
        if (!one.front) send_finished(one, one.back_finished += static_cast<std::uint32_t>(now));
        return bytes;
    }
    if (one.front && outcome == errc::unsupported) {
        fetch_served(one);
        return 0;
    }
    // The back's piece is the front's to copy from here on: when the kernel changed its mind, that is all.
    if (!one.front) send_finished(one, one.back_finished | gave_up);
    one.status = outcome == errc::unsupported ? errc::ok : outcome;
    one.over = true;
    return 0;
}

RDMACORO_DECL void shared_copy_engine::send_finished(job& one, std::uint64_t word) noexcept {
    one.words->finished.store(word, std::memory_order_release);
    link_.ring_doorbell();
}

RDMACORO_DECL void shared_copy_engine::fetch_served(job& one) noexcept {
    const std::size_t offset = one.pieces.offset(one.next);
    const std::size_t bytes = one.pieces.offset(one.until) - offset;
    one.fetching = true;
    switch (one_sided_.begin(true, one.there.part(offset, bytes), one.local + offset, one.part)) {
        case post_result::done: one.part_over({}); break;
        case post_result::posted: break;
        default: one.fetching = false, waits_ = true;  // no memory: again at the next poll
    }
}

RDMACORO_DECL bool shared_copy_engine::find_work(job& one, std::uint64_t room) noexcept {
    if (!one.rescues) {
        for (unsigned tries = 0; tries < most_tries; ++tries) {
            const std::uint64_t word = one.words->claimed.load(std::memory_order_acquire);
            shared_claims seen = shared_claims::load(word);
            if (!plausible(one, seen)) return false;
            const std::uint64_t left = one.pieces.count - seen.both();
            if (left == 0) return one.front ? wait_for_back(one) : nothing_left(one);
            if (room == 0) {
                waits_ = true;
                return false;
            }
            // Where the peer must serve the copy, sharing is no gain: the front claims all pieces, the back none.
            const bool all = !link_.peer.reaches(one.there.address, one.there.length);
            if (all && !one.front) return nothing_left(one);
            const auto claim =
                static_cast<std::uint32_t>(all ? left : std::min(room, shared_pieces::share_of(left)));
            (one.front ? seen.front : seen.back) += claim;
            std::uint64_t expected = word;
            if (!one.words->claimed.compare_exchange_strong(expected, seen.store(), std::memory_order_acq_rel,
                                                            std::memory_order_relaxed))
                continue;
            one.next = one.mine;
            one.mine += claim;
            one.until = one.mine;
            return true;
        }
        return false;
    }
    one.over = true;  // the pieces that the back left are copied, too
    return false;
}

RDMACORO_DECL bool shared_copy_engine::plausible(job& one, const shared_claims& seen) noexcept {
    const std::uint32_t mine = one.front ? seen.front : seen.back;
    const std::uint32_t theirs = one.front ? seen.back : seen.front;
    if (mine != one.mine || theirs < one.theirs || seen.both() > one.pieces.count) {
        violated_ = true;
        return false;
    }
    one.theirs = theirs;
    return true;
}

RDMACORO_DECL bool shared_copy_engine::nothing_left(job& one) noexcept {
    one.over = true;
    return false;
}

RDMACORO_DECL bool shared_copy_engine::wait_for_back(job& one) noexcept {
    const std::uint64_t word = one.words->finished.load(std::memory_order_acquire);
    const std::uint64_t finished = word & ~gave_up;
    if (finished > one.theirs || finished < one.back_finished) {
        violated_ = true;
        return false;
    }
    one.back_finished = static_cast<std::uint32_t>(finished);
    if (finished == one.theirs) {
        one.over = true;
        return false;
    }
    if ((word & gave_up) == 0) return false;
    one.rescues = true;
    one.next = one.pieces.count - one.theirs;
    one.until = one.pieces.count - finished;
    return true;
}

RDMACORO_DECL void shared_copy_engine::finish(job& one, std::error_code outcome) noexcept {
    completion* c = one.done;
    if (one.failure) outcome = one.failure;
    give_back(one);
    c->done(*c, outcome);
}

RDMACORO_COLD shared_copy_engine::job* shared_copy_engine::of(intrusive_list<job>& list,
                                                              const completion& c) noexcept {
    job* one = list.front();
    while (one != nullptr && one->done != &c) one = list.next(*one);
    return one;
}

RDMACORO_DECL shared_copy_engine::job* shared_copy_engine::take() noexcept {
    if (job* recycled = free_.pop_front()) return recycled;
    return new (std::nothrow) job;
}

RDMACORO_DECL void shared_copy_engine::give_back(job& one) noexcept {
    if (one.fetching) one_sided_.revoke(one.part);
    one.fetching = false;
    one.unlink();
    free_.push_back(one);
}

}  // namespace rdmacoro::detail::shm
