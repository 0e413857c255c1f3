// Bodies of group_state.hpp: why a collective does not end, which another rank knows or has to be asked for.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/detail/group_state.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rdmacoro::detail {

/// Of two numbers the nearer way around tells which comes first: they begin anew after 2^32 collectives.
[[nodiscard]] inline bool is_before(std::uint32_t one, std::uint32_t other) noexcept {
    return static_cast<std::int32_t>(one - other) < 0;
}

/// `progress_` has room for all ranks.
RDMACORO_COLD void group_state::ask(unsigned to) {
    send(to, word_kind::ask);
    ++progress_[to].asked;
}

RDMACORO_COLD bool group_state::has_heard_of_all() noexcept {
    for (unsigned at = 0; at < size(); ++at) {
        if (at != rank_ && !progress_[at].is_known() && !peer(at).lost && !peer(at).left) return false;
    }
    return true;
}

/// Of several that are canceled while one search goes on the first counts: what has not come to that one has not come to the others. A rank is asked
/// when a search begins, and again for a collective before those that it was asked for, but never while it has yet to answer.
RDMACORO_COLD task<group_state::absence> group_state::find_absent(group_state* self, std::uint32_t number,
                                                                  std::string_view title) {
    self->progress_.resize(self->size());
    const bool searches = !self->canceled_;
    if (searches || is_before(number, self->canceled_->number)) {
        bool connected = true;
        for (unsigned to = 0; to < self->size(); ++to) {
            if (to == self->rank_) continue;
            const rank_peer& of = self->peer(to);
            connected = connected && (of.link != nullptr || of.lost);
            if (self->progress_[to].is_known()) self->ask(to);
        }
        // To connect takes several messages each way. Others wait for the word of this, in `find_failure`, for longer.
        const duration patience = std::chrono::milliseconds(connected ? 100 : 600);
        const time_point until = searches ? self->links_->owner().now() + patience : self->canceled_->until;
        self->canceled_ = canceled_collective{number, title, until};
    }
    const time_point until = self->canceled_->until;
    while (!self->failure_ && !(searches && self->has_heard_of_all())) {
        const duration left = until - self->links_->owner().now();
        if (left <= duration::zero()) break;
        // The others wait for the end of the search alone, lest each answer wakes them all.
        event& news = searches ? self->changed_ : self->revoked_;
        static_cast<void>(co_await as_result(timeout(news.wait(), left)));
    }
    absence found;
    found.number = number;
    found.title = title;
    if (self->canceled_) {
        found.number = self->canceled_->number;
        found.title = self->canceled_->title;
    }
    if (!searches && self->failure_) co_return found;
    if (searches) self->canceled_.reset();
    // Of ranks that did not answer yet when the group was revoked by another one nothing is known.
    // Neither is where a destructor waits for this collective: what would hear the answers may not run.
    const bool asked_all = !self->failure_ && !self->links_->owner().is_narrowed();
    for (unsigned at = 0; at < self->size(); ++at) {
        if (at == self->rank_) continue;
        const progress& of = self->progress_[at];
        // A rank that has left cannot answer: what needs more of it fails by itself, and names it.
        if (self->peer(at).left && !of.is_known()) continue;
        const bool came = of.answers != 0 && !is_before(static_cast<std::uint32_t>(of.entered), found.number);
        if (came || !(asked_all || of.is_known())) continue;
        found.ranks.push_back(at);
        if (!of.is_known()) found.silent.push_back(at);
    }
    co_return found;
}

RDMACORO_COLD task<> group_state::find_failure(group_state* self, std::optional<unsigned> left) {
    // A rank that leaves says what it knows first.
    const duration patience = left ? std::chrono::milliseconds(200) : std::chrono::milliseconds(1000);
    const time_point until = self->links_->owner().now() + patience;
    while (!self->failure_) {
        const duration still = until - self->links_->owner().now();
        if (still > duration::zero()) {
            static_cast<void>(co_await as_result(timeout(self->revoked_.wait(), still)));
            continue;
        }
        if (left) {
            self->transfer_failed(*left, make_error_code(errc::closed));
        } else {
            self->revoke_alone(make_error_code(group_errc::revoked), "another rank has canceled its message");
        }
    }
}

}  // namespace rdmacoro::detail
