// How a libfabric domain opens, polls, parks and closes.
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/transport/ofi/engine.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include <sys/epoll.h>

namespace rdmacoro::detail::fabric {

/// A wait object is of no use to a scheduler that never sleeps.
[[nodiscard]] RDMACORO_DECL ofi_options suited_to(const scheduler& owner, ofi_options options) {
    options.may_park = options.may_park && owner.may_park();
    return options;
}

RDMACORO_DECL engine::engine(scheduler& owner, const ofi_profile& profile, const ofi_options& options)
    : owner_(owner),
      options_(suited_to(owner, options)),
      scheme_(profile.scheme),
      device_(profile, options_),
      serves_(options.one_sided.value_or(device_.profile().one_sided) == ofi_one_sided::served),
      inject_limit_(device_.inject_limit()),
      host_(host_number()),
      memory_(device_),
      registrar_(memory_),
      cache_(registrar_, options.cache),
      regions_(memory_, serves_),
      slots_(memory_, options.slot_bytes != 0 ? options.slot_bytes : device_.profile().slot_bytes),
      receives_(slots_, options.spare_slots),
      scratch_(std::max({inject_limit_, frame_word_bytes, tagged_head::long_wire_bytes})),
      rests_(&owner.time() == &monotonic_clock::instance()),
      pending_(owner, this, [](void* self) noexcept { static_cast<engine*>(self)->admit_waiting_clients(); }),
      heartbeat_(owner, this, [](void* self) noexcept { static_cast<engine*>(self)->beat(); }) {
    check_options();
    receives_.limit_posted(device_.most_receives());
    if (const int failed = slots_.reserve(options.spare_slots); failed != 0)
        throw_registration_failure(device_.name(), slots_.slab_bytes(), failed);
    if (!watch_completions())
        throw error(std::error_code(errno, std::system_category()),
                    device_.name() + ": watch the completion queue");
}

RDMACORO_DECL void engine::check_options() const {
    const auto check = [&](bool good, const std::string& what) {
        if (!good) throw error(errc::invalid_argument, device_.name() + ": options: " + what);
    };
    check(options_.credits >= connect_info::least_credits && options_.credits <= connect_info::most_credits,
          "credits must be 8 to 1024");
    const std::size_t least = device_.profile().slot_bytes;
    check(slots_.slot_bytes() >= least && slots_.slot_bytes() <= connect_info::most_slot,
          "slot_bytes must be " + std::to_string(least) + " bytes to 1 MiB");
    check(device_.closes_amid_gets() || slots_.slot_bytes() <= most_slot_without_gets,
          "slot_bytes must be 16384 at most with this version of libfabric");
    check(options_.receives == 0 || options_.receives >= connect_info::least_credits,
          "receives must be 8 at least, or 0");
    check(options_.spare_slots <= ofi_options::most_spare_slots, "spare_slots must be 65536 at most");
    check(device_.profile().delivery_complete, "the provider does not report when a put has arrived");
    check(device_.longest() >= slots_.slot_bytes(), "slot_bytes is more than the provider's longest message");
    check(options_.peer_timeout >= ofi_options::least_peer_timeout,
          "peer_timeout must be 2 seconds at least");
    check(options_.handshake_timeout > duration::zero(), "handshake_timeout must be more than 0");
    check(options_.most_waiting >= 1, "most_waiting must be at least 1");
    check(!serves_ || device_.profile().get_alignment <= 1,
          "one_sided must not be served: the provider's gets need aligned addresses");
}

/// False: `errno` is the reason.
RDMACORO_DECL bool engine::watch_completions() noexcept {
    return device_.wait_fd() < 0 || watching_.watch(completions_, device_.wait_fd(), EPOLLIN);
}

RDMACORO_DECL engine::~engine() {
    // The last frames of closed links still go out, if the peers take them: a peer that has them all hangs up. The sockets are
    // looked at first: some providers must not be polled after a peer in the same process is closed.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    for (;;) {
        watching_.look();
        table_.reap();
        if (!table_.any_leaving() || broken_ || std::chrono::steady_clock::now() > limit) break;
        progress();
    }
    while (session* c = table_.first()) {
        if (c->owned()) fatal("a libfabric domain, or its scheduler, was destroyed before its links");
        table_.destroy(*c);
    }
    if (regions_.registered() != 0)
        fatal("a libfabric domain, or its scheduler, was destroyed before a region of its memory");
    read_out();
    watching_.unwatch(completions_);
    unbind();
    device_.close_endpoint();
}

RDMACORO_DECL void engine::read_out() noexcept {
    if (!device_.profile().reads_before_close || broken_) return;
    // A poll of a domain that is to break ends the endpoint, and would begin here again.
    constexpr auto quiet = std::chrono::microseconds(500);
    constexpr auto most = std::chrono::milliseconds(20);  // peers that live may send on
    const auto began = std::chrono::steady_clock::now();
    for (auto now = began, last = began; !breaks_ && now - last < quiet && now - began < most;
         now = std::chrono::steady_clock::now()) {
        if (progress() != 0) last = now;
    }
}

/// Closes the registrations that are bound to the endpoint, which must end before it.
RDMACORO_DECL void engine::unbind() noexcept {
    if (!device_.asks(FI_MR_ENDPOINT)) return;
    regions_.cut_off();
    cache_.clear();
    slots_.unregister();
}

// ---- polling

RDMACORO_DECL bool engine::poll() noexcept {
    const time_point now = owner_.coarse_now();
    if (at_rest() && !pace_.due(now)) return false;
    bool any = false;
    if (pace_.resting()) {
        const auto began = std::chrono::steady_clock::now();
        any = progress() != 0;
        if (!any) pace_.took(std::chrono::steady_clock::now() - began);
    } else {
        any = progress() != 0;
    }
    if (any) pace_.brought(now);
    any |= serve_in_turn(work_, [](session& c, unsigned budget) noexcept { return c.serve(budget); });
    if (table_.any_leaving()) any |= table_.reap();
    if (watching_.due(table_.any_leaving(), now)) any |= watching_.look();
    if (pending_.any_waiting()) [[unlikely]]
        admit_waiting_clients();
    return any;
}

RDMACORO_DECL unsigned engine::progress_matched() noexcept {
    unsigned all = 0;
    const auto look = [&](session& c) noexcept {
        ++matched_looks_;
        const unsigned came = c.matched_->progress();
        if (came != 0) matched_works(c);
        all += came;
        return came != 0;
    };
    // Of those at rest the first that was looked at ends the round.
    session* first = nullptr;
    for (unsigned n = 0; n < looks_at_rest; ++n) {
        session* const c = matched_at_rest_.front();
        if (c == nullptr || c == first) break;
        if (first == nullptr) first = c;
        matched_at_rest_.pop_front();
        matched_at_rest_.push_back(*c);
        static_cast<void>(look(*c));
    }
    for (session* c = matched_at_work_.front(); c != nullptr;) {
        session* const after = matched_at_work_.next(*c);
        if (!look(*c) && --c->matched_->looks_left == 0) {
            static_cast<list_node<matched_tag>&>(*c).unlink();
            matched_at_rest_.push_back(*c);
        }
        c = after;
    }
    return all;
}

RDMACORO_COLD void engine::matches(session& c) noexcept {
    ++matched_links_;
    matched_works(c);
}
RDMACORO_COLD void engine::matches_no_more(session& c) noexcept {
    list_node<matched_tag>& node = c;
    if (!node.linked()) return;
    node.unlink();
    --matched_links_;
}
RDMACORO_DECL void engine::matched_works(session& c) noexcept {
    if (std::exchange(c.matched_->looks_left, looks_at_work) != 0) return;
    static_cast<list_node<matched_tag>&>(c).unlink();
    matched_at_work_.push_back(c);
}

RDMACORO_COLD void engine::progress_waiting() noexcept {
    progress();
    for (session* c = serving_.front(); c != nullptr;) {
        session* const after = serving_.next(*c);
        c->answer_while_waiting();
        c = after;
    }
}

RDMACORO_DECL void engine::pump_stalled() noexcept {
    intrusive_list<session, stalled_tag> turn;
    turn.splice_back(stalled_);
    while (session* c = turn.pop_front()) c->pump();
}

RDMACORO_DECL bool engine::dispatch_error() noexcept {
    fi_cq_err_entry entry{};
    const ssize_t got = ::fi_cq_readerr(device_.queue(), &entry, 0);
    if (got <= 0) {
        if (got < 0 && got != -FI_EAGAIN) must_break("read the completion queue's errors", got);
        return false;
    }
    if (entry.err != FI_ECANCELED) note_failure(*device_.queue(), entry);
    auto* const about = static_cast<operation*>(entry.op_context);
    const int error = entry.err != 0 ? entry.err : FI_EIO;
    if (about == nullptr) {
        inject_failed();
    } else if (about->what == operation::kind::slot) {
        slot_over(static_cast<slot&>(*about), 0, error);
    } else {
        auto& t = static_cast<transfer&>(*about);
        t.owner->piece_over(t, error);
    }
    return true;
}

// ---- failures

RDMACORO_COLD void engine::note_failure(fid_cq& queue, const fi_cq_err_entry& entry) noexcept {
    std::array<char, 128> words{};
    const char* const text =
        ::fi_cq_strerror(&queue, entry.prov_errno, entry.err_data, words.data(), words.size());
    std::snprintf(last_failure_.data(), last_failure_.size(), "%s (%s)", ::fi_strerror(entry.err),
                  text != nullptr ? text : "no more");
}
RDMACORO_COLD void engine::note_failure(const char* step, long failed) noexcept {
    std::snprintf(last_failure_.data(), last_failure_.size(), "%s: %s", step,
                  ::fi_strerror(static_cast<int>(-failed)));
}

RDMACORO_COLD void engine::inject_failed() noexcept {
    count_failed_inject();
    for (session* c = table_.first(); c != nullptr; c = table_.next(*c)) c->doubt();
}

RDMACORO_COLD std::string engine::why_broken() const {
    std::string text = broken_step_;
    if (broken_by_ != 0) text += ": " + text_of(broken_by_);
    return text;
}

RDMACORO_COLD void engine::must_break(const char* what, long failed) noexcept {
    if (breaks_) return;
    breaks_ = true;
    broken_step_ = what;
    broken_by_ = failed;
    note_failure(what, failed);
}

/// Links end, and so do waiting accepts; `why_broken` is in the texts of later connects and accepts.
RDMACORO_COLD void engine::break_down() noexcept {
    static_cast<void>(end_endpoint());
    broken_ = true;
    while (listening* l = listening_.pop_front()) l->domain_broke(*l);
}

/// Posts as many receives as there are credits for, and the provider takes; further frames wait inside the provider, which
/// guarantees that none is lost (FI_RM_ENABLED).
RDMACORO_DECL void engine::post_receives() noexcept {
    while (slot* s = breaks_ ? nullptr : receives_.next_to_post()) {
        const ssize_t failed = ::fi_recv(device_.endpoint(), s->data, slots_.slot_bytes(), s->descriptor,
                                         FI_ADDR_UNSPEC, &s->scratch);
        if (failed != 0) {
            if (!is_busy(failed) && failed != -FI_ENOMEM) must_break("post a receive", failed);
            return receives_.not_posted(*s);
        }
        s->now = slot::use::posted;
        ++table_.closed_totals().receive_posts;
    }
}

// ---- parking

RDMACORO_DECL int engine::wake_fd() noexcept {
    if (!broken_ && (!device_.may_wait() || !stalled_.empty() || receives_.queued() != 0)) return -1;
    for (auto* list : {&matched_at_work_, &matched_at_rest_}) {
        for (session* c = list->front(); c != nullptr; c = list->next(*c)) {
            if (!c->matched_->may_wait()) return -1;
        }
    }
    return watching_.descriptor();
}

// ---- regions

RDMACORO_DECL void engine::deregister(std::uint64_t key) noexcept {
    require_thread_of(&owner_, "memory for", "was deregistered");
    if (serves_) settle(key);
    regions_.remove(key);
}

/// Waits for this side's transfers for peers in a region that is about to be closed.
RDMACORO_DECL void engine::settle(std::uint64_t region_key) noexcept {
    if (wait_while([&]() noexcept { return touched(region_key); })) reopen_endpoint();
}

/// Ends transfers of the region as soon as they are not with the provider. True: some still are.
RDMACORO_DECL bool engine::touched(std::uint64_t region_key) noexcept {
    bool any = false;
    for (session* c = serving_.front(); c != nullptr; c = serving_.next(*c)) {
        c->refuse(region_key);
        any |= c->touches(region_key);
    }
    return any;
}

RDMACORO_DECL void engine::cut_off(session& c) noexcept {
    if (serves_) return;  // this side moves the data, and has ended its transfers
    cache_.clear();       // so that a region ends together with its registration
    if (c.to_ == FI_ADDR_UNSPEC || c.severed_) return;
    if (!device_.closes_amid_gets()) {
        // Gets of other links end by themselves, most likely, once they go no further.
        for (session* other = table_.first(); other != nullptr; other = table_.next(*other))
            other->fail(errc::peer_lost);
        static_cast<void>(wait_while([this]() noexcept { return gets(); }));
    }
    reopen_endpoint();
}

/// The connection of a process that died ends soon: no data arrives after that. Each frame that is sent then would begin another
/// connection; until there is one, the provider answers that it is busy.
RDMACORO_DECL bool engine::disconnected(session& c) noexcept {
    const bool counts = c.window_.credits() != 0;
    if (!counts && !c.peer_hung_up_) return false;  // a peer that lives has no receive for it
    c.store_word(frame_kind::credit, scratch());
    if (::fi_inject(device_.endpoint(), scratch(), frame_word_bytes, c.to_) != 0) return true;
    if (counts) c.sent_one();
    return false;
}

/// Whether a get of any link is with the provider.
RDMACORO_DECL bool engine::gets() noexcept {
    for (session* c = table_.first(); c != nullptr; c = table_.next(*c)) {
        if (c->gets()) return true;
    }
    return false;
}

RDMACORO_DECL void engine::reopen_endpoint() noexcept {
    if (broken_) return;
    ++table_.closed_totals().reopened;
    const bool usable = end_endpoint();
    if (!usable) {
        must_break("too many endpoints were left open amid gets", 0);
    } else if (const device::opened how = device_.open_endpoint(); how.failed != 0) {
        must_break(how.step, how.failed);
    } else if (const int failed = slots_.register_again(); failed != 0) {
        must_break("register the slots with another endpoint", failed);
    } else if (!watch_completions()) {
        must_break("watch the completion queue", -errno);
    }
    if (breaks_) return break_down();
    post_receives();
}

RDMACORO_DECL bool engine::end_endpoint() noexcept {
    ofi_counts& totals = table_.closed_totals();
    read_out();
    watching_.unwatch(completions_);
    unbind();
    bool usable = true;
    if (!device_.closes_amid_gets() && gets()) {
        ++totals.abandoned;
        usable = device_.abandon_endpoint() == 0 && totals.abandoned < ofi_counts::most_abandoned;
    } else {
        device_.close_endpoint();
    }
    slots_.for_each([this](slot& s) noexcept {
        if (s.now == slot::use::posted) {
            s.now = slot::use::idle;
            receives_.not_posted(s);
        } else if (s.now == slot::use::sending) {
            static_cast<void>(slot_back(s));
        }
    });
    for (session* c = table_.first(); c != nullptr; c = table_.next(*c)) {
        c->fail(errc::peer_lost);
        c->endpoint_gone();
    }
    return usable;
}

// ---- connections

RDMACORO_DECL session* engine::make_session() noexcept {
    if (broken_ || breaks_) return nullptr;
    return table_.make([this](std::uint32_t place) { return new session(*this, numbers_.next(place)); });
}

/// A provider that does not store messages without a receive needs a posted receive for each credit. Each new link gets a sixteenth of the
/// receives that are left, at most as many as the options say: later links get fewer.
RDMACORO_DECL std::uint32_t engine::credits_for_one() const noexcept {
    constexpr std::size_t part = 16;
    const std::size_t most = options_.credits;
    if (device_.profile().keeps_unexpected) return options_.credits;
    const std::size_t given = receives_.wanted();
    const std::size_t left = device_.most_receives() > given ? device_.most_receives() - given : 0;
    if (left < connect_info::least_credits) return 0;
    return static_cast<std::uint32_t>(
        std::clamp<std::size_t>(left / part, connect_info::least_credits, most));
}

// ---- clients that have not finished connecting

/// A provider that does not keep what finds no receive has receives for the credits of all; the others have memory.
RDMACORO_COLD bool engine::has_room_for_client() const noexcept {
    if (pending_.size() == 0) return true;  // the reason of a refusal is another then
    if (pending_.size() >= std::max(1u, options_.most_waiting / pending_part)) return false;
    if (device_.profile().keeps_unexpected) return true;
    const std::size_t more = credits_for_one();
    return more != 0 && pending_credits_ + more <= device_.most_receives() / pending_part;
}
RDMACORO_COLD bool engine::admit_pending(session& c) noexcept {
    return pending_.admit(c, has_room_for_client(), owner_.now(), pending_grace());
}
RDMACORO_COLD void engine::admit_waiting_clients() noexcept {
    const auto has_room = [this]() noexcept {
        if (table_.any_leaving()) static_cast<void>(table_.reap());  // one that gave way leaves its room
        return has_room_for_client();
    };
    pending_.admit_waiting(has_room, owner_.now(), pending_grace());
}

RDMACORO_DECL int engine::hold_resources(std::uint32_t credits) noexcept {
    if (const int failed = slots_.reserve(credits + session::most_staged); failed != 0) return failed;
    receives_.add_wanted(credits);
    if (!broken_) post_receives();
    return 0;
}
RDMACORO_DECL void engine::release_resources(session& c) noexcept {
    if (c.to_ != FI_ADDR_UNSPEC) device_.release(c.to_);
    receives_.remove_wanted(c.given_);
    // Slots that the provider is still sending are of use to others when it has done with them.
    const std::size_t held = c.given_ + session::most_staged;
    slots_.unreserve(held - std::min(c.staged_, held));
    c.released_ = true;
}

RDMACORO_COLD void engine::begin_heartbeat() noexcept {
    if (!heartbeat_.queued()) heartbeat_.set(options_.peer_timeout / 2);
}
RDMACORO_COLD void engine::beat() noexcept {
    bool any = false;
    for (session* c = table_.first(); c != nullptr; c = table_.next(*c)) any |= c->beat();
    if (any) begin_heartbeat();
}

RDMACORO_DECL ofi_counts engine::counts() noexcept {
    ofi_counts sum = table_.counts();
    sum.polls = epoch_ + matched_looks_;
    sum.unfinished = pending_.size();
    return sum;
}

}  // namespace rdmacoro::detail::fabric
