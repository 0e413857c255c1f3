// Bodies of group_state.hpp.
#pragma once

#include <rdmacoro/service/detail/group_state.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <unordered_set>
#include <utility>

namespace rdmacoro::detail {

/// By `RDMACORO_ALLREDUCE=ring` and its like. Throws `errc::invalid_argument` for a name that is none.
RDMACORO_COLD const algorithm* forced_by_environment(collective_kind kind) {
    std::string variable = "RDMACORO_";
    for (const char c : name_of(kind)) variable += c == '_' ? c : static_cast<char>(c - 'a' + 'A');
    const char* const said = std::getenv(variable.c_str());
    if (said == nullptr || *said == '\0') return nullptr;
    if (const algorithm* const found = find_algorithm(kind, said)) return found;
    std::string names;
    for (const algorithm& one : algorithms_of(kind))
        names += (names.empty() ? "" : ", ") + std::string(one.name);
    throw error(errc::invalid_argument, variable + "=" + said + ": there are " + names);
}

RDMACORO_COLD group_state::group_state(counted_ptr<rank_links> links, std::vector<unsigned> members,
                                       std::uint64_t context, const algorithm_choice& by)
    : choice(by), links_(std::move(links)), members_(std::move(members)), context_(context) {
    checks = links_->compares_calls();
    for (std::size_t kind = 0; kind < collective_kinds; ++kind)
        forced_[kind] = forced_by_environment(static_cast<collective_kind>(kind));
    rank_ = rank_of(links_->rank());
    std::unordered_set<unsigned> seen;
    for (unsigned at = 0; at < size(); ++at) {
        first_on_host_.push_back(seen.insert(host_of(at)).second);
        if (first_on_host_.back()) leaders_.push_back(at);
        if (host_of(at) == host_of(rank_)) here_.push_back(at);
        if (at != 0 && !first_on_host_.back() && host_of(at) != host_of(at - 1)) hosts_in_turn_ = true;
    }
    gone_.reserve(size());
    links_->enter(*this);
    for (unsigned at = 0; at < size(); ++at) {
        if (const std::error_code why = peer(at).lost) {
            rank_ended(members_[at], why);
        } else if (peer(at).left) {
            rank_ended(members_[at], make_error_code(errc::closed));
        }
    }
}

RDMACORO_COLD group_state::~group_state() {
    if (decision_) {
        if (agreeing_) refuse_decided();
        tell_decision();
        try {
            links_->keep_decision(decision_word());
        } catch (const std::bad_alloc&) {}  // a rank that asks for it waits until it loses this one
    } else {
        tell_absence();
    }
    links_->leave(*this, decision_.has_value());
}

RDMACORO_COLD unsigned group_state::rank_of(unsigned of_job) const noexcept {
    if (of_job < size() && members_[of_job] == of_job) return of_job;
    return static_cast<unsigned>(std::find(members_.begin(), members_.end(), of_job) - members_.begin());
}

RDMACORO_COLD void group_state::send(unsigned to, word_kind kind, std::uint64_t number) {
    group_word word;
    word.kind = static_cast<std::uint8_t>(kind);
    word.context = context_;
    word.number = number;
    word.by = rank_;
    links_->send_word(members_[to], std::move(word));
}

/// Ranks that have left in good order, or have let this group go, are named apart from the lost ones: other groups go on with those.
RDMACORO_COLD void group_state::tell_ready(unsigned to) {
    group_word word;
    word.kind = static_cast<std::uint8_t>(word_kind::shrink_ready);
    word.context = context_;
    word.by = rank_;
    for (const unsigned rank : gone_) {
        const std::error_code why = peer(rank).lost;
        (why && why != errc::closed ? word.lost : word.absent).push_back(rank);
    }
    links_->send_word(members_[to], std::move(word));
}

/// Room for all ranks is reserved.
RDMACORO_COLD void group_state::is_not_left(unsigned rank) noexcept {
    const auto at = std::lower_bound(gone_.begin(), gone_.end(), rank);
    if (at == gone_.end() || *at != rank) gone_.insert(at, rank);
}

/// Ranks that wait for this one in `shrink` go on without it, and the one that has heard that it is ready.
RDMACORO_COLD void group_state::tell_absence() noexcept try {
    for (unsigned at = 0; at < asked_by_.size(); ++at) {
        if (asked_by_[at] && told_ != at) send(at, word_kind::shrink_absent);
    }
    for (unsigned at = 0; at < ready_.size(); ++at) {
        if (ready_[at] && told_ != at) send(at, word_kind::shrink_absent);
    }
    if (told_) send(*told_, word_kind::shrink_absent);
} catch (...) {  // without memory, or where no scheduler runs, they wait until they lose this rank
}

/// A `shrink` has been decided that this rank gave up, and the group was let go: those that are left have this rank in theirs.
RDMACORO_COLD void group_state::refuse_decided() noexcept try {
    const std::vector<unsigned>& left = decision_->left;
    const auto here = std::lower_bound(left.begin(), left.end(), rank_);
    if (here == left.end() || *here != rank_ || decision_->context == 0) return;
    const auto rank = static_cast<unsigned>(here - left.begin());
    const auto size_left = static_cast<unsigned>(left.size());
    const group_word word = word_of(never_entered(rank), decision_->context);
    for_neighbours(rank, size_left, [&](unsigned to) {
        if (to != rank) links_->send_word(members_[left[to]], word);
    });
} catch (...) {  // as above, and those that go on to `shrink` that group hear that this rank has it no more
}

RDMACORO_COLD void group_state::transfer_failed(unsigned rank, std::error_code why) noexcept {
    group_failure failure;
    failure.why = why;
    failure.by = rank_;
    try {
        failure.lost.push_back(rank);
        failure.text = why.message();
    } catch (const std::bad_alloc&) {
        failure.text.clear();
    }
    revoke(std::move(failure));
}

RDMACORO_COLD void group_state::rank_ended(unsigned of_job, std::error_code why) noexcept {
    const unsigned rank = rank_of(of_job);
    if (rank == size()) return;
    is_not_left(rank);
    changed_.set();
    changed_.reset();
    // A rank that leaves in good order has done its part of every collective that it entered: only a transfer with it fails.
    if (why != errc::closed) transfer_failed(rank, why);
}

RDMACORO_COLD void group_state::tell_neighbours() noexcept {
    has_untold_ = false;
    for_neighbours(rank_, size(), [this](unsigned to) {
        if (to == rank_) return;
        try {
            links_->send_word(members_[to], word_of(*failure_, context_));
        } catch (...) {
            has_untold_ = true;  // for want of memory, or as no scheduler runs
        }
    });
}

RDMACORO_COLD void group_state::revoke(group_failure why) noexcept {
    const bool first = !failure_.has_value();
    try {
        if (!first && !failure_->merge(why)) return;
    } catch (const std::bad_alloc&) {
        return;  // the group has ended before, and this adds a rank to those that are named
    }
    if (first) failure_ = std::move(why);
    // Each rank passes on what is new to it.
    tell_neighbours();
    if (!first) return;
    for (running_collective* at = running_.front(); at != nullptr; at = running_.next(*at)) at->revoked();
    links_->group_revoked();
    revoked_.set();
    changed_.set();
    changed_.reset();
}

RDMACORO_COLD void group_state::revoke_alone(std::error_code why, const char* text) noexcept {
    group_failure failure;
    failure.why = why;
    failure.by = rank_;
    try {
        failure.text = text;
    } catch (const std::bad_alloc&) {
        failure.text.clear();
    }
    revoke(std::move(failure));
}

RDMACORO_COLD void group_state::revoke_with(const group_state& whole) {
    group_failure failure;
    failure.by = rank_;
    failure.why = make_error_code(errc::canceled);
    failure.text = "the split that made it has failed";
    if (const auto& of = whole.failure_) {
        failure.why = of->why;
        failure.text += ": " + of->describe();
        for (const unsigned lost : of->lost) {
            const unsigned rank = rank_of(whole.members_[lost]);
            if (rank != size()) failure.lost.push_back(rank);
        }
        std::sort(failure.lost.begin(), failure.lost.end());
    }
    revoke(std::move(failure));
}

RDMACORO_COLD void group_state::tell_connected() noexcept {
    if (!failure_) return;
    try {
        for (unsigned to = 0; to < size(); ++to) {
            if (to != rank_ && peer(to).link != nullptr)
                links_->send_word(members_[to], word_of(*failure_, context_));
        }
    } catch (...) {
        return;  // they hear of it from others
    }
}

RDMACORO_COLD void group_state::refuse(const std::string& why) {
    group_failure failure;
    failure.why = make_error_code(errc::invalid_argument);
    failure.by = rank_;
    failure.text = why;
    revoke(std::move(failure));
    throw error(errc::invalid_argument, "group: " + why);
}

RDMACORO_COLD void group_state::word_arrived(unsigned from, const group_word& word) {
    const auto is_rank = [this](std::uint32_t rank) { return rank < size(); };
    if (!is_rank(word.by) || !std::ranges::all_of(word.lost, is_rank) ||
        !std::ranges::all_of(word.absent, is_rank))
        return;
    switch (static_cast<word_kind>(word.kind)) {
        case word_kind::revoke: revoke(failure_of(word)); break;
        case word_kind::ask: answer_entered(from); break;
        case word_kind::entered:
            if (from < progress_.size()) {
                ++progress_[from].answers;
                progress_[from].entered = word.number;
            }
            break;
        case word_kind::shrink_ask:
            asked_by_.resize(size());
            asked_by_[from] = true;
            if (decision_) tell_decision();
            break;
        case word_kind::shrink_ready:
            ready_.resize(size());
            ready_[from] = true;
            if (decision_) {
                tell_decision();
                break;
            }
            lost_by_.resize(size());
            lost_by_[from] = word.lost;
            asked_alive_ = false;
            // A rank that this one has a connection with is asked, or decides, whatever the sender has lost.
            for (const std::uint32_t rank : word.lost) {
                if (rank != rank_ && peer(rank).link == nullptr) give_up(rank);
            }
            for (const std::uint32_t rank : word.absent) {
                if (rank != rank_) is_not_left(rank);
            }
            break;
        case word_kind::shrink_absent: is_not_left(from); break;
        case word_kind::shrink_done:
            if (!decision_ && word.number >> context_bits == 0) {
                agreement found;
                found.context = word.number;
                for (unsigned at = 0; at < size(); ++at) {
                    if (!std::binary_search(word.lost.begin(), word.lost.end(), at)) found.left.push_back(at);
                }
                decide(std::move(found));
            }
            break;
    }
    changed_.set();
    changed_.reset();
}

RDMACORO_COLD group_word group_state::decision_word() const {
    group_word word;
    word.kind = static_cast<std::uint8_t>(word_kind::shrink_done);
    word.context = context_;
    word.number = decision_->context;
    word.by = rank_;
    for (unsigned at = 0; at < size(); ++at) {
        if (!std::binary_search(decision_->left.begin(), decision_->left.end(), at)) word.lost.push_back(at);
    }
    return word;
}

/// Another rank has lost this one, with which there is no connection here. It is lost for good: if it lives, it must not wait for this rank, which
/// says to the next one that it is ready.
RDMACORO_COLD void group_state::give_up(unsigned rank) noexcept {
    if (!peer(rank).lost) links_->ended(members_[rank], make_error_code(errc::peer_lost));
    is_not_left(rank);
}

/// Gives up the dead ranks that others have lost and this one has no connection with. Each attempt to connect would take its limit, one
/// rank that might decide after the other. A rank that another one could not reach in time may live.
RDMACORO_COLD void group_state::give_up_unreached() noexcept {
    if (failure_->why != errc::peer_lost && failure_->why != errc::connection_refused) return;
    for (const unsigned rank : failure_->lost) {  // to which that adds none
        if (rank != rank_ && peer(rank).link == nullptr && !peer(rank).lost)
            links_->ended(members_[rank], make_error_code(errc::peer_lost));
    }
}

/// Of ranks that have all said that they are ready: which of them have lost which. A group of ranks that cannot reach each other would fail at
/// once. This rank has all of them.
RDMACORO_COLD std::vector<group_state::rank_pair>
group_state::strangers(const std::vector<unsigned>& left) const {
    std::vector<rank_pair> apart;
    for (const unsigned one : left) {
        if (one == rank_ || one >= lost_by_.size()) continue;
        for (const unsigned other : lost_by_[one]) {
            if (other != rank_ && std::ranges::binary_search(left, other))
                apart.emplace_back(std::minmax(one, other));
        }
    }
    std::ranges::sort(apart);
    apart.erase(std::unique(apart.begin(), apart.end()), apart.end());
    return apart;
}

/// One of each pair. First goes the rank that most others miss, of several the highest.
RDMACORO_COLD void group_state::leave_out(std::vector<unsigned>& left, std::vector<rank_pair> apart) {
    while (!apart.empty()) {
        std::map<unsigned, unsigned> missed;
        for (const auto& [one, other] : apart) {
            ++missed[one];
            ++missed[other];
        }
        const auto out = std::max_element(missed.begin(), missed.end(), [](const auto& a, const auto& b) {
            return a.second < b.second || (a.second == b.second && a.first < b.first);
        });
        std::erase(left, out->first);
        std::erase_if(apart, [rank = out->first](const auto& pair) {
            return pair.first == rank || pair.second == rank;
        });
    }
}

/// Asks them, once, and looks whether all have answered. Of two ranks one of which has lost the other that one may have died, after it had
/// said that it was ready: then it must not be the living one that is left out.
RDMACORO_COLD bool group_state::are_alive(const std::vector<unsigned>& ranks) {
    progress_.resize(size());
    if (!asked_alive_) {
        for (const unsigned rank : ranks) {
            if (rank != rank_) ask(rank);
        }
        asked_alive_ = true;
    }
    return std::ranges::all_of(ranks, [this](unsigned rank) {
        return rank == rank_ || progress_[rank].answers >= progress_[rank].asked;
    });
}

/// Sends the decision to the ranks that have asked for it and to those that this one had asked; later questions are answered as they come.
RDMACORO_COLD void group_state::decide(agreement found) {
    ready_.resize(size());
    asked_by_.resize(size());
    decision_ = std::move(found);
    tell_decision();
}

/// To those that wait for it, each once. One that memory is short for is told by `tell_again`, or when this rank lets the group go.
RDMACORO_COLD void group_state::tell_decision() noexcept {
    std::optional<group_word> word;  // the same for all
    for (unsigned at = 0; at < size(); ++at) {
        if (at == rank_ || !(ready_[at] || asked_by_[at])) continue;
        try {
            if (!word) word = decision_word();
            links_->send_word(members_[at], *word);
            ready_[at] = asked_by_[at] = false;
        } catch (...) {}  // for want of memory, or as no scheduler runs
    }
}

/// The lowest rank that is left decides. It asks every other one, which answers once its caller wants to know. A rank that knows a
/// decision tells it to all that have asked, were asked or ask later, also when it has let the group go: all that are left agree even if the
/// deciding rank dies after it has told some, and a rank that another one has lost hears that it is left out.
/// Ranks may have lost each other and all live. One that has lost the deciding rank takes the next one for it, and says to that that it is
/// ready: it hears what the other one decides. A rank says that it is ready to another one only when it has lost the first for good.
RDMACORO_COLD task<group_state::agreement> group_state::agree(group_state* self) {
    if (!self->failure_) self->revoke_alone(make_error_code(group_errc::revoked), "shrink");
    self->ready_.resize(self->size());
    self->asked_by_.resize(self->size());
    if (!self->agreeing_ && !self->decision_) self->agreeing_.emplace(self->links_);
    if (self->decision_) self->tell_decision();  // the former call may have had no memory for it
    unsigned told = self->size();                // the rank that knows that this one is ready
    bool asked = false;
    while (!self->decision_) {
        self->give_up_unreached();
        unsigned decides = 0;
        while (decides != self->rank_ && self->is_gone(decides)) ++decides;
        if (decides == self->rank_) {
            if (!std::exchange(asked, true)) {
                for (unsigned to = 0; to < self->size(); ++to) {
                    if (to != self->rank_ && !self->is_gone(to)) self->send(to, word_kind::shrink_ask);
                }
            }
            agreement found;
            bool complete = true;
            for (unsigned at = 0; at < self->size() && complete; ++at) {
                if (self->is_gone(at)) continue;
                complete = at == self->rank_ || self->ready_[at];
                found.left.push_back(at);
            }
            if (complete) {
                auto apart = self->strangers(found.left);
                complete = apart.empty() || self->are_alive(found.left);
                if (complete) leave_out(found.left, std::move(apart));
            }
            if (complete) {
                found.context = self->links_->name_context();  // 0: there is none, as all hear
                self->decide(std::move(found));
                break;
            }
        } else if (told != decides || self->asked_by_[decides]) {
            told = decides;
            self->told_ = decides;
            self->asked_by_[decides] = false;
            self->tell_ready(decides);
        }
        if (self->decision_) break;
        co_await self->changed_.wait();
    }
    agreement found = *self->decision_;
    const bool is_left = std::binary_search(found.left.begin(), found.left.end(), self->rank_);
    if (!is_left || found.context == 0) self->agreed();  // there is no group that this one may enter
    if (!is_left) throw error(group_errc::not_member, "group: the others have gone on without this rank");
    if (found.context == 0)
        throw error(errc::no_resources, "group: the rank that decides has named as many groups as it may");
    for (unsigned& at : found.left) at = self->members_[at];
    co_return found;
}

}  // namespace rdmacoro::detail
