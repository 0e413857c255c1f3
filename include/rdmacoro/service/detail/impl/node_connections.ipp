// Bodies of node_connections.hpp.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/messaging/detail/connect_attempts.hpp>
#include <rdmacoro/service/detail/node_connections.hpp>
#include <rdmacoro/service/detail/node_guards.hpp>

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD task<std::string> node_connections::listen(counted_ptr<node_connections> self, std::string url,
                                                         std::string as) {
    self->check_thread("node: listen: the node is of another scheduler");
    for (const auto& over : self->transports_) {
        if (!over->has_scheme_of(url)) continue;
        co_await over->listen(url, as);
        co_return as;
    }
    throw error(errc::address_invalid, "node: no transport of this node has the scheme of " + url);
}

RDMACORO_COLD node_connections::~node_connections() { stop(); }

RDMACORO_COLD void node_connections::stop() noexcept {
    if (!work) return;
    stopped = true;
    leaving = false;
    end_waits();
    const node_patience told_late(*this);
    work.reset();
    for (auto& [id, of] : peers) of->leftovers.clear();  // connections end before the node does
}

RDMACORO_COLD task<> node_connections::close(counted_ptr<node_connections> self) {
    self->check_thread("node: close: the node is of another scheduler");
    if (!self->work) {
        co_await turn_for_others();
        co_return;
    }
    self->stopped = true;  // no connection is made any more
    self->end_waits();
    self->leaving = true;
    self->leaves.request_stop();
    while (self->agreeing != 0) co_await self->agreed.wait();
    {
        task_group closing;
        for (node_record* at = self->records.front(); at != nullptr; at = self->records.next(*at)) {
            if (at->closing == leave_reason::stopping) continue;
            closing.spawn(as_it_is, close_record(self.get(), counted_ptr<node_record>(at)));
            at->closing = leave_reason::stopping;
        }
        co_await closing.join();
    }
    self->work->request_stop();
    const time_point until = deadline_after(self->owner.now(), self->options.close_limit);
    while (!self->attended.empty()) {
        const duration left = std::max(until - self->owner.now(), duration::zero());
        const result<void> less = co_await as_result(timeout(self->attended_less.wait(), left));
        if (less || self->attended.empty()) continue;
        if (less.error() != errc::timed_out) throw error(less.error());
        throw error(errc::timed_out,
                    "node " + std::to_string(self->self.id) +
                        ": close: these do not end, though they were asked to stop: " + self->unfinished());
    }
    self->stop();
}

RDMACORO_COLD void node_connections::begin_connect(node_peer& to) {
    if (to.connecting || stopped) return;
    begin(connect_peer(this, counted_ptr<node_peer>(&to)));
    to.connecting = true;
}

RDMACORO_COLD void node_connections::begin_close(node_record& which, leave_reason why) {
    begin(close_record(this, counted_ptr<node_record>(&which)));
    which.closing = why;
    if (which.peer->current == &which) which.peer->current = nullptr;
    which.peer->closed_idle = which.closed_idle();
}

RDMACORO_COLD task<> node_connections::connect_peer(node_connections* self, counted_ptr<node_peer> to) {
    const node_connecting now(std::move(to));
    node_peer& peer = now.to();
    const time_point until = deadline_after(self->owner.now(), self->options.connect_limit);
    // Where no other life may come, one that does not listen any more has ended: when it has refused all attempts for so long.
    std::optional<time_point> refused_since;
    const duration of_refusals = self->options.admits_other_lives
                                     ? self->options.connect_limit
                                     : std::min(self->options.connect_limit, node_options().connect_limit);
    while (peer.open() == nullptr) {
        const time_point here = self->owner.now();
        if (peer.next_try > here || peer.accepting != 0) {
            const duration pause = peer.accepting != 0 ? self->options.hello_limit : peer.next_try - here;
            const result<void> waited = co_await as_result(timeout(peer.changed.wait(), pause));
            if (!waited && waited.error() != errc::timed_out) throw error(waited.error());
            continue;
        }
        node_try last;
        {
            node_attempt attempt(peer);
            last = co_await with_stop(try_all(self, peer), attempt.token());
        }
        if (peer.open() != nullptr) peer.failure = {};
        if (peer.open() != nullptr || self->stopped) break;
        if (last.why == errc::canceled) continue;  // the other node's connection is preferred
        if (!last.why) {                           // it was made, and has been closed since
            peer.failure = {};
            break;
        }
        ++peer.tries;
        peer.next_try = deadline_after(self->owner.now(), self->pause_after(peer.tries));
        peer.failure = last.why;
        if (last.why != errc::connection_refused) {
            refused_since.reset();
        } else if (!refused_since) {
            refused_since = here;
        }
        const time_point most =
            refused_since ? std::min(until, deadline_after(*refused_since, of_refusals)) : until;
        if (may_connect_later(last.why) && peer.next_try < most) continue;
        ++peer.failures;
        self->tell(node_change::failed, peer.id, peer.last_born, last.why);
        break;
    }
}

/// Tries every URL once, the best transport first.
RDMACORO_COLD task<node_try> node_connections::try_all(node_connections* self, node_peer& to) {
    to.explaining.clear();
    const node_try outcome = co_await try_each(self, to);
    if (outcome.why != errc::canceled) to.explained = std::move(to.explaining);
    co_return outcome;
}
RDMACORO_COLD task<node_try> node_connections::try_each(node_connections* self, node_peer& to) {
    if (to.is_behind()) {
        to.explaining = "  the messages of former connections are not received\n";
        co_return node_try{make_error_code(errc::no_resources), {}};
    }
    const result<void> room = co_await as_result(take_place(self, self->options.attempt_limit));
    if (!room) {
        if (room.error() != errc::canceled)
            to.explaining = "  no connection may be made: the limit is reached, and none is idle\n";
        co_return node_try{room.error(), {}};
    }
    node_place place(*self);
    const node_card card = to.card;  // which may change meanwhile
    // Of several outcomes the last, unless it says only that there is no such device here.
    node_try said{make_error_code(errc::timed_out), {}};
    bool any = false;
    // Shared memory first, then the order of the list.
    for (const bool near : {true, false}) {
        for (const auto& over : self->transports_) {
            if (over->is_within_host() != near) continue;
            for (const std::string& url : card.urls) {
                if (!over->has_scheme_of(url)) continue;
                if (near && card.host.known() && card.host != self->self.host) {
                    to.explaining += "  " + url + ": not tried, it is on another host\n";
                    continue;
                }
                any = true;
                const node_try outcome = co_await over->try_to_connect(to, url, place);
                if (outcome.why == errc::canceled) co_return outcome;
                to.explaining +=
                    "  " + url + ": " + (outcome.why ? outcome.text : std::string("taken")) + '\n';
                if (!outcome.why) co_return outcome;
                if (outcome.why != errc::unsupported) said = outcome;
            }
        }
    }
    if (!any) to.explaining += "  it has no URL that this node can use: it has to connect by itself\n";
    co_return said;
}

/// Says why, and closes in good order.
RDMACORO_COLD task<> node_connections::close_record(node_connections* self, counted_ptr<node_record> of) {
    const std::byte why{static_cast<std::uint8_t>(*of->closing)};
    try {
        co_await self->transports_[of->index]->close(*of, why, self->options.close_limit);
    } catch (const std::bad_alloc&) {
        of->abort();
    }
    of->closed.set();
}

}  // namespace rdmacoro::detail
