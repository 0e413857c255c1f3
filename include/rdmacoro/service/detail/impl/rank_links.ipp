// Bodies of rank_link.hpp and rank_links.hpp.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/detail/group_state.hpp>
#include <rdmacoro/service/detail/node_core.hpp>
#include <rdmacoro/service/detail/rank_links.hpp>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rdmacoro::detail {

// ---- rank_peer

RDMACORO_COLD void rank_peer::send_later(rank_send& r) noexcept {
    if (lost) return r.finish(lost);
    sends.push_back(r);
    of->want(*this);
}
RDMACORO_COLD void rank_peer::receive_later(rank_receive& r) noexcept {
    if (lost) return r.finish(lost);
    receives.push_back(r);
    of->want(*this);
}
RDMACORO_COLD void rank_peer::cancel(rank_send& r) noexcept {
    if (r.given != nullptr) return r.given->cancel_send(r);
    static_cast<list_node<send_request>&>(r).unlink();
    r.finish(errc::canceled);
}
RDMACORO_COLD void rank_peer::cancel(rank_receive& r) noexcept {
    if (r.given != nullptr) return r.given->cancel_receive(r);
    static_cast<list_node<receive_request>&>(r).unlink();
    r.finish(errc::canceled);
}
RDMACORO_COLD void rank_peer::fail_waiting(std::error_code why) noexcept {
    while (receive_request* const r = receives.pop_front()) r->finish(why);
    while (send_request* const r = sends.pop_front()) r->finish(why);
}

// ---- rank_links

RDMACORO_COLD bool names_ranks_below(const group_failure& why, unsigned size) noexcept {
    const auto is_rank = [size](unsigned rank) { return rank < size; };
    return is_rank(why.by) && std::ranges::all_of(why.lost, is_rank) &&
           std::ranges::all_of(why.absent, is_rank);
}
RDMACORO_COLD group_failure never_entered(unsigned rank) {
    group_failure why;
    why.why = make_error_code(group_errc::revoked);
    why.by = rank;
    why.text = "it was ready to shrink, and has let the group go";
    return why;
}

RDMACORO_COLD rank_links::rank_links(scheduler& on, unsigned rank, unsigned size)
    : owner_(on), rank_(rank), size_(size), peers_(new rank_peer[size]), work_(std::in_place) {
    for (unsigned at = 0; at < size; ++at) {
        peers_[at].of = this;
        peers_[at].rank = at;
    }
    // A connection's failure is told where it ends.
    work_->on_error([](const std::exception_ptr&) {});
}

RDMACORO_COLD rank_links::~rank_links() { stop(); }

RDMACORO_COLD bool rank_links::wants_comparison() {
    const char* const said = std::getenv("RDMACORO_CHECK_COLLECTIVES");
    if (said != nullptr && *said != '\0') {
        const auto is = [said](const char* word) { return std::string_view(said) == word; };
        if (is("1") || is("yes") || is("on") || is("true")) return true;
        if (is("0") || is("no") || is("off") || is("false")) return false;
        throw error(errc::invalid_argument, std::string("RDMACORO_CHECK_COLLECTIVES=") + said +
                                                ": say 1 or 0, yes or no, on or off, true or false");
    }
#if defined(NDEBUG)
    return false;
#else
    return true;
#endif
}

RDMACORO_COLD void rank_links::stop() noexcept {
    if (!work_) return;
    for (unsigned at = 0; at < size_; ++at) {
        if (peers_[at].link == nullptr) ended(at, make_error_code(errc::closed));
    }
    work_.reset();
}

RDMACORO_COLD void rank_links::want(rank_peer& which) noexcept {
    if (std::exchange(which.connecting, true)) return;
    if (!work_) return ended(which.rank, make_error_code(errc::closed));
    try {
        begin_connect(which.rank);
    } catch (const std::bad_alloc&) {
        without_memory(which.rank);
    }
}

RDMACORO_COLD void rank_links::without_memory(unsigned rank) noexcept {
    peers_[rank].connecting = false;
    peers_[rank].fail_waiting(make_error_code(errc::no_resources));
}

RDMACORO_COLD void rank_links::attached(unsigned rank, rank_link& link) noexcept {
    rank_peer& to = peers_[rank];
    to.link = &link;
    to.kept = 0;
    while (receive_request* const r = to.receives.pop_front()) to.receive(static_cast<rank_receive&>(*r));
    while (send_request* const r = to.sends.pop_front()) to.send(static_cast<rank_send&>(*r));
}

RDMACORO_COLD void rank_links::ended(unsigned rank, std::error_code why) noexcept {
    rank_peer& to = peers_[rank];
    to.link = nullptr;
    to.lost = why;
    to.fail_waiting(why);
    ++ending_;
    for (auto& [context, of] : groups_) of->rank_ended(rank, why);
    if (--ending_ == 0 && may_be_stale_) group_revoked();  // once for all groups
}

RDMACORO_COLD void rank_links::left(unsigned rank) noexcept {
    peers_[rank].left = true;
    for (auto& [context, of] : groups_) of->rank_ended(rank, make_error_code(errc::closed));
}

RDMACORO_COLD void rank_links::enter(group_state& group) {
    if (group.context() >> context_bits != 0)
        throw error(errc::no_resources, "group: there is no context of this number");
    if (!groups_.emplace(group.context(), &group).second)
        throw error(errc::invalid_argument, "group: this rank has two groups of one number");
    const auto early = revoked_.find(group.context());
    std::optional<group_failure> why;
    if (early != revoked_.end() && group.rank_of(early->second.from) != group.size() &&
        names_ranks_below(early->second.why, group.size()))
        why = std::move(early->second.why);
    if (early != revoked_.end()) revoked_.erase(early);
    begun_ = true;
    if (namings_ != 1) drop_stale();  // else the naming that this is a part of does, at its end
    if (why) group.revoke(std::move(*why));
    // What was asked before the group was here.
    for (std::size_t at = 0; at < unanswered_.size();) {
        if (unanswered_[at].word.context != group.context()) {
            ++at;
            continue;
        }
        const early_question asked = std::move(unanswered_[at]);
        unanswered_.erase(unanswered_.begin() + static_cast<std::ptrdiff_t>(at));
        const unsigned rank = group.rank_of(asked.from);
        if (rank == group.size()) continue;
        try {
            group.word_arrived(rank, asked.word);
        } catch (const std::bad_alloc&) {}  // it waits until this rank calls `shrink`, or is lost
    }
}

RDMACORO_COLD void rank_links::leave(group_state& group, bool is_decided) noexcept {
    constexpr std::size_t most_let_go = 1024;
    const auto at = groups_.find(group.context());
    if (at == groups_.end() || at->second != &group) return;
    groups_.erase(at);
    if (!is_decided) {
        try {
            if (let_go_in_turn_.size() == most_let_go) {
                let_go_.erase(let_go_in_turn_.front());
                let_go_in_turn_.pop_front();
            }
            let_go_in_turn_.push_back(group.context());
            let_go_.emplace(group.context(), group.rank());
        } catch (const std::bad_alloc&) {}  // a decision that has this rank in it is not refused
    }
    if (group.failure()) drop_stale();
}

RDMACORO_COLD rank_links::naming::~naming() {
    if (--of_->namings_ != 0) return;
    of_->revoked_.clear();
    of_->drop_stale();
    for (const early_question& asked : std::exchange(of_->unanswered_, {}))
        of_->tell_absence(asked.from, asked.word.context);
}

RDMACORO_COLD void rank_links::tell_absence(unsigned to, std::uint64_t context) noexcept try {
    group_word absent;
    absent.kind = static_cast<std::uint8_t>(word_kind::shrink_absent);
    absent.context = context;
    send_word(to, std::move(absent));
} catch (...) {  // for want of memory, or as no scheduler runs: it waits until it loses this rank
}

/// As far as the last of them go: contexts are not used again.
RDMACORO_COLD bool rank_links::was_left(std::uint64_t context) const noexcept {
    return let_go_.contains(context) ||
           std::ranges::find(decisions_, context, &group_word::context) != decisions_.end();
}
RDMACORO_COLD bool rank_links::is_stale(std::uint64_t context) const noexcept {
    if (context == 0) return false;  // a word
    const auto at = groups_.find(context);
    if (at != groups_.end()) return at->second->failure().has_value();
    return begun_ && (namings_ == 0 || was_left(context));
}
RDMACORO_COLD bool is_stale(const rank_links& at, tag_type tag) noexcept {
    return at.is_stale(tag >> (64 - context_bits));
}

/// A look costs what lies unread, most of it for groups that live. So without a group that was revoked since the last one there is none before as many
/// messages have come as lay there then.
RDMACORO_COLD void rank_links::drop_stale() noexcept {
    const bool surely = std::exchange(may_be_stale_, false);
    for (unsigned at = 0; at < size_; ++at) {
        rank_peer& from = peers_[at];
        if (from.link == nullptr) continue;
        const std::size_t unread = from.link->unread();
        const bool looks = unread != 0 && (surely || unread / 2 >= from.kept);
        from.kept = std::min(from.kept, unread);
        if (!looks) continue;
        try {
            from.link->drop_stale(*this);
        } catch (const std::bad_alloc&) {
            may_be_stale_ = true;  // they wait for the next time
            return;
        }
        from.kept = from.link->unread();
    }
}

RDMACORO_COLD void rank_links::keep_decision(group_word done) noexcept {
    constexpr std::size_t most = 64;
    try {
        if (decisions_.size() == most) decisions_.pop_front();
        decisions_.push_back(std::move(done));
    } catch (const std::bad_alloc&) {
        return;  // a rank that asks for it waits until it loses this one
    }
}

// ---- words

RDMACORO_COLD void rank_links::send_word(unsigned to, group_word what) {
    if (!work_ || to == rank_ || peers_[to].lost) return;
    outgoing& queue = outgoing_[to];
    queue.words.push_back(std::move(what));
    if (std::exchange(queue.sending, true)) return;
    try {
        work_->spawn(as_it_is, send_words(this, to));  // its frame is there already, or this throws
    } catch (...) {
        outgoing_.erase(to);
        throw;
    }
}

RDMACORO_COLD task<> rank_links::send_words(rank_links* self, unsigned to) {
    while (!self->outgoing_[to].words.empty()) {
        std::vector<group_word> words = std::exchange(self->outgoing_[to].words, {});
        for (const group_word& word : words) {
            std::vector<std::byte> bytes;
            result<void> sent = make_error_code(errc::no_resources);
            for (;;) {
                try {
                    if (bytes.empty()) bytes = encode_word(word);
                } catch (const std::bad_alloc&) {
                    bytes.clear();
                }
                if (!bytes.empty()) {
                    rank_peer& peer = self->peers_[to];
                    rank_send out(peer, self->owner_, bytes, word_tag);
                    sent = co_await as_result(out);
                    const bool unconnected = peer.link == nullptr && !peer.lost;
                    if (sent || sent.error() != errc::no_resources || !unconnected) break;
                }
                // Memory is short for the word, or for a connection: later, then.
                const result<void> slept = co_await as_result(sleep_for(std::chrono::milliseconds(1)));
                if (!slept) co_return;  // the end of all
            }
            if (!sent) break;
        }
    }
    self->outgoing_.erase(to);
    self->words_out_.set();
    self->words_out_.reset();
}

RDMACORO_COLD task<> rank_links::say_goodbye(rank_links* self) {
    for (auto& [context, of] : self->groups_) of->tell_connected();
    // Words to ranks that this one had no connection with, and that may be dead.
    co_await words_are_out(self, std::chrono::milliseconds(300));
}

RDMACORO_COLD task<> rank_links::words_are_out(rank_links* self, duration patience) {
    const time_point until = self->owner_.now() + patience;
    while (self->work_ && !self->outgoing_.empty()) {
        const duration left = until - self->owner_.now();
        if (left <= duration::zero()) break;
        static_cast<void>(co_await as_result(timeout(self->words_out_.wait(), left)));
    }
}

/// Of a group that this rank has let go of, after it had said that it was ready: those that are left have it in theirs.
RDMACORO_COLD void rank_links::refuse_decision(unsigned from, const group_word& done) {
    const auto at = let_go_.find(done.context);
    if (at == let_go_.end() || done.number == 0) return;
    const unsigned rank = at->second;
    if (std::ranges::binary_search(done.lost, rank)) return;
    const auto lower = std::ranges::lower_bound(done.lost, rank) - done.lost.begin();
    send_word(from, word_of(never_entered(rank - static_cast<unsigned>(lower)), done.number));
}

RDMACORO_COLD bool rank_links::word_arrived(unsigned from, std::span<const std::byte> bytes) {
    result<group_word> word = decode_word(bytes, size_);
    if (!word) return false;
    const auto at = groups_.find(word->context);
    if (at != groups_.end()) {
        const unsigned rank = at->second->rank_of(from);
        if (rank == at->second->size()) return false;
        at->second->word_arrived(rank, *word);
        return true;
    }
    // Of a group that this process has not entered yet, or has left.
    constexpr std::size_t most_early = 1024;
    const auto kind = static_cast<word_kind>(word->kind);
    if (kind == word_kind::revoke && (!begun_ || namings_ != 0) && revoked_.size() < most_early) {
        revoked_.emplace(word->context, early_failure{from, failure_of(*word)});
    } else if (kind == word_kind::shrink_ask || kind == word_kind::shrink_ready) {
        const auto done = std::ranges::find(decisions_, word->context, &group_word::context);
        if (done != decisions_.end()) {
            send_word(from, *done);
        } else if (is_stale(word->context)) {
            tell_absence(from, word->context);
        } else if (unanswered_.size() < most_early) {
            // Of a group that this process is about to enter, or left long ago: known when it has what it expects.
            word->text = {};
            unanswered_.push_back({from, std::move(*word)});
        }
    } else if (kind == word_kind::shrink_done) {
        refuse_decision(from, *word);
    }
    return true;
}

}  // namespace rdmacoro::detail
