// Bodies of node_core.hpp.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/messaging/detail/connect_attempts.hpp>
#include <rdmacoro/service/detail/call_failure.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/detail/node_core.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD node_record::node_record(node_peer& to, unsigned by, generation life,
                                       std::uint64_t attempts) noexcept
    : peer(&to), index(by), born(life), theirs(attempts), keeps_peer_(&to) {
    ++to.own;
}
RDMACORO_COLD node_record::~node_record() {
    if (keeps_peer_) --peer->own;
    unlink();
}
RDMACORO_COLD void node_record::leave_to_peer() noexcept {
    --peer->own;
    keeps_peer_.reset();
}
RDMACORO_COLD void node_record::abort() noexcept {
    link->close(make_error_code(outlived ? errc::peer_lost : errc::closed));
}
RDMACORO_DECL void node_record::touch() noexcept {
    if (retired) return;
    node_core* const core = peer->core;
    if (core == nullptr) return;
    stamp = ++core->uses;
    static_cast<void>(used_directly());
}
RDMACORO_COLD node_peer::~node_peer() {
    if (core != nullptr) core->peers.erase(id);
}

RDMACORO_COLD node_attendance::node_attendance(node_core& in, const node_record& of) noexcept
    : at(in), record(of) {
    at.attended.push_back(*this);
}
RDMACORO_COLD node_attendance::~node_attendance() {
    unlink();
    at.attended_less.set();
    at.attended_less.reset();
}

RDMACORO_COLD node_turn::~node_turn() {
    const bool first = is_first();
    unlink();
    if (node_turn* const then = among_.front(); first && then != nullptr) then->comes.set();
}

RDMACORO_COLD node_watcher::~node_watcher() { unlink(); }
RDMACORO_COLD void node_watcher::tell(node_event what) noexcept {
    if (count_ == most_) {
        // The oldest goes; the one after it says so.
        first_ = (first_ + 1) % most_;
        --count_;
        ++missed_;
    }
    const std::size_t at = (first_ + count_) % most_;
    if (at == ring_.size()) {
        ring_.push_back(what);  // into memory that is reserved
    } else {
        ring_[at] = what;
    }
    ++count_;
    changed.set();
    changed.reset();
}
RDMACORO_COLD void node_watcher::end() noexcept {
    ended = true;
    changed.set();
}
RDMACORO_COLD std::optional<node_event> node_watcher::take() noexcept {
    if (count_ == 0) return std::nullopt;
    node_event oldest = ring_[first_];
    oldest.missed = std::exchange(missed_, 0);
    first_ = (first_ + 1) % most_;
    --count_;
    return oldest;
}

RDMACORO_COLD node_core::node_core(scheduler& on, node_id id, const node_options& given)
    : owner(on), options(given), random_(0) {
    if (id == 0) throw error(errc::invalid_argument, "node: 0 is no node's id");
    if (options.connections == 0) throw error(errc::invalid_argument, "node: a limit of 0 connections");
    if (options.unnamed_connections == 0)
        throw error(errc::invalid_argument, "node: a limit of 0 unnamed connections");
    if (std::min({options.hello_limit, options.attempt_limit, options.connect_limit}) <= duration::zero())
        throw error(errc::invalid_argument,
                    "node: hello_limit, attempt_limit or connect_limit is not more than 0");
    self.id = id;
    self.born = options.born != generation{} ? options.born : new_generation();
    self.host = host_identity::own();
    random_ = static_cast<std::uint64_t>(self.born) | 1;
    work.emplace();
    // Each coroutine reports what goes wrong with its connection; what is left is a lack of memory, and that connection ends.
    work->on_error([](std::exception_ptr) {});
}
RDMACORO_COLD node_core::~node_core() {
    for (auto& [id, of] : peers) {
        of->core = nullptr;  // handles may outlive it
        of->let_go();
    }
}

RDMACORO_COLD void node_core::check_thread(const char* what) const { require_current(owner, what); }

RDMACORO_COLD void node_core::add(const node_card& card) {
    if (const char* const why = card.fault())
        throw error(errc::invalid_argument, std::string("node: ") + why);
    if (card.id == self.id)
        throw error(errc::invalid_argument,
                    "node: the card has the id of this node, " + std::to_string(self.id));
    node_card copy = card;  // what takes memory is done before anything changes
    const counted_ptr<node_peer> of = peer(card.id);
    of->card = std::move(copy);
    of->listed = true;
    of->keep();
    was_not_learned(*of);
    of->tries = 0;
    of->next_try = {};
    of->change();
}

RDMACORO_COLD bool node_core::remove(node_id id) {
    const counted_ptr<node_peer> of = find(id);
    if (!of || !of->listed) return false;
    of->listed = false;
    was_not_learned(*of);
    of->card = {};
    of->change();
    of->let_go();
    return true;
}

RDMACORO_COLD counted_ptr<node_peer> node_core::find(node_id id) const noexcept {
    const auto found = peers.find(id);
    return counted_ptr<node_peer>(found != peers.end() ? found->second : nullptr);
}

RDMACORO_COLD counted_ptr<node_peer> node_core::peer(node_id id) {
    if (id == 0) throw error(errc::invalid_argument, "node: 0 is no node's id");
    if (id == self.id)
        throw error(errc::invalid_argument, "node: " + std::to_string(id) + " is this node itself");
    if (counted_ptr<node_peer> known = find(id)) return known;
    counted_ptr<node_peer> made(new node_peer(id, this));
    peers.emplace(id, made.get());
    return made;
}

RDMACORO_COLD std::string node_core::explain(node_id id) const {
    if (id == self.id) {
        std::string text = node_text(id, self.born) + ": this node";
        for (const std::string& url : self.urls)
            text += (&url == &self.urls.front() ? ", at " : " and ") + url;
        return text + '\n' + deaf;
    }
    const counted_ptr<node_peer> of = find(id);
    if (!of) return "node " + std::to_string(id) + ": not in the address book, and never met\n";
    std::string text = node_text(id, of->last_born);
    text += of->open() != nullptr ? ": connected" : of->connecting ? ": connecting" : ": not connected";
    if (!of->listed) text += ", not in the address book";
    return text + '\n' + of->explained;
}

RDMACORO_COLD welcome node_core::judge(const node_hello& hello) const noexcept {
    if (hello.to != self.id || hello.from.id == self.id) return welcome::other_node;
    if (hello.to_born != generation{} && hello.to_born != self.born) return welcome::other_generation;
    const counted_ptr<node_peer> from = find(hello.from.id);
    if (!options.admits_strangers && (!from || !from->listed)) return welcome::stranger;
    if (!from) return welcome::accepted;
    if (from->listed && from->card.host.known() && from->card.host != hello.from.host)
        return welcome::other_host;
    if (excludes(*from, hello.from.born)) return welcome::other_generation;
    // An attempt that the other node began before this connection was agreed on has lost against it.
    const node_record* const now = from->open();
    if (now != nullptr && now->born == hello.from.born && hello.attempt <= now->theirs)
        return welcome::other_attempt;
    if (from->is_behind()) return welcome::full;
    // Both say hello at once: the one with the lower id is heard.
    if (from->hello_sent && self.id < hello.from.id) return welcome::other_attempt;
    return welcome::accepted;
}

RDMACORO_COLD std::string node_core::lie(const node_peer& of, const node_card& found) {
    if (found.id != of.id)
        return "the node there has the id " + std::to_string(found.id) + ", not " + std::to_string(of.id);
    if (of.card.born != generation{} && of.card.born != found.born)
        return "the node there is of generation " + to_string(found.born) + ", its card of " +
               to_string(of.card.born);
    if (of.card.host.known() && of.card.host != found.host)
        return "the node there is on host " + found.host.text() + ", its card on " + of.card.host.text();
    return {};
}

RDMACORO_COLD void node_core::publish(node_record& made, node_card theirs) noexcept {
    node_peer& of = *made.peer;
    node_record* const before = std::exchange(of.current, &made);
    if (!of.listed) of.card = std::move(theirs);
    if (of.card.born != generation{}) of.card.born = made.born;
    of.last_born = made.born;
    of.closed_idle = false;
    of.tries = 0;
    of.next_try = {};
    made.number = made.stamp = ++uses;
    records.push_back(made);
    if (before != nullptr && before->born != made.born) {
        before->outlived = true;
        before->ends.request_stop();
    }
    if (of.attempt != nullptr) of.attempt->request_stop();
    tell(node_change::came, of.id, made.born, {});
    of.change();
}

RDMACORO_COLD bool node_core::is_closing(const node_peer& of) noexcept {
    for (node_record* at = records.front(); at != nullptr; at = records.next(*at)) {
        if (at->peer == &of && at != of.open()) return true;
    }
    return false;
}

RDMACORO_COLD bool node_core::keeps_of_stranger() const noexcept {
    if (!expects_cards_) return false;
    std::size_t kept = 0;
    for (const auto& [id, of] : peers) kept += !of->listed && !of->leftovers.empty() ? 1 : 0;
    return kept < most_unlisted;
}

RDMACORO_COLD void node_core::drop_of_strangers() noexcept {
    expects_cards_ = false;
    for (auto at = peers.begin(); at != peers.end();) {
        node_peer& of = *(at++)->second;
        if (of.listed) continue;
        if (!of.has_users()) {
            of.leftovers.clear();
            of.see_receives();
        }
        of.let_go();
    }
}

RDMACORO_COLD void node_core::retire(node_record& ended) noexcept {
    if (std::exchange(ended.retired, true)) return;
    ended.unlink();
    // The loss of the connection is told once, whatever was on its way.
    connection_base& link = *ended.link;
    link.mailbox().matching().each_stored(link.source(), [&](unexpected_message& m) noexcept {
        if (m.lost && m.from == &link) link.withdraw(m);
    });
    node_peer& of = *ended.peer;
    const bool was_current = of.current == &ended;
    if (was_current) of.current = nullptr;
    if (of.current == nullptr) of.closed_idle = ended.closed_idle();
    std::error_code why = ended.link->reason();
    if (of.open() != nullptr && of.open()->born != ended.born) why = make_error_code(errc::peer_lost);
    const bool left = ended.left == leave_reason::stopping || (why == errc::closed && !ended.left);
    if (!stopped && !ended.closed_idle() && !ended.closing) {
        if (!ended.told && of.lost != errc::no_resources) {
            of.lost = why ? why : make_error_code(errc::closed);
            of.lost_born = ended.born;
        }
        tell(left ? node_change::left : node_change::failed, of.id, ended.born,
             left ? std::error_code() : why);
    }
    give_place();
    of.see_receives();
    of.change();
}

RDMACORO_COLD bool node_core::keep_unread(node_record& ended, receiver by) {
    node_peer& of = *ended.peer;
    std::size_t unread = 0;
    if (by == receiver::handles) {
        unread = ended.unread();
    } else if (by == receiver::handles_beside_calls) {
        ended.link->mailbox().matching().each_stored(
            ended.link->source(),
            [&](unexpected_message& m) noexcept { unread += (m.tag & calls_bit) == 0 ? 1 : 0; });
    }
    if (unread == 0 || stopped) return false;
    const bool may_be_listed = !of.listed && keeps_of_stranger();
    if (!of.listed && !of.has_users() && !may_be_listed) return false;
    try {
        of.leftovers.emplace_back(&ended);
    } catch (const std::bad_alloc&) {
        has_dropped_messages(ended);
        return false;
    }
    ended.kept = true;
    if (may_be_listed) of.keep();
    // Calls need the next connection, whether these are received or not.
    if (by == receiver::handles_beside_calls && of.is_behind()) {
        of.leftovers.erase(of.leftovers.begin());
        has_dropped_messages(ended);
    }
    of.see_receives();
    of.change();
    return true;
}

/// The next receive hears of that.
RDMACORO_COLD void node_core::has_dropped_messages(const node_record& last) noexcept {
    node_peer& of = *last.peer;
    of.lost = make_error_code(errc::no_resources);
    of.lost_born = last.born;
    of.see_receives();
    of.change();
}

RDMACORO_COLD void node_core::give_place() noexcept {
    --places;
    place_free.set();
    place_free.reset();
}

RDMACORO_COLD node_record* node_core::longest_unused() noexcept {
    node_record* oldest = nullptr;
    for (node_record* at = records.front(); at != nullptr; at = records.next(*at)) {
        node_record& one = *at;
        if (one.used_directly()) one.stamp = std::max(one.stamp, uses);
        const bool idle =
            one.uses == 0 && !one.closing && !one.left && one.unread() == 0 && one.link->is_open();
        if (idle && (oldest == nullptr || one.stamp < oldest->stamp)) oldest = &one;
    }
    return oldest;
}

RDMACORO_COLD void node_core::close_idle() {
    // To look for one takes its time where there are thousands: not for all that wait at once.
    constexpr std::size_t most_at_once = 16;
    std::size_t wanted = 0;
    for (node_turn* at = for_place.front(); at != nullptr && wanted != most_at_once; at = for_place.next(*at))
        ++wanted;
    std::size_t closing = 0;
    for (node_record* at = records.front(); at != nullptr; at = records.next(*at))
        closing += at->closing ? 1 : 0;
    // A peer that stands still keeps its own for `close_limit`: then another one goes, too.
    if (closing >= wanted) {
        if (owner.now() < next_idle_close_) return;
        wanted = closing + 1;
    }
    for (; closing < wanted; ++closing) {
        node_record* const oldest = longest_unused();
        if (oldest == nullptr) return;
        begin_close(*oldest, leave_reason::idle);
        next_idle_close_ = owner.now() + std::chrono::milliseconds(100);
    }
}

RDMACORO_COLD task<> node_core::take_place(node_core* self, duration limit) {
    const time_point until = deadline_after(self->owner.now(), limit);
    node_turn turn(self->for_place);
    for (;;) {
        const bool first = turn.is_first();
        if (first && self->places < self->options.connections) break;
        if (first) self->close_idle();
        const duration left = until - self->owner.now();
        if (left <= duration::zero())
            throw error(errc::no_resources, "node " + std::to_string(self->self.id) + " has its limit of " +
                                                std::to_string(self->options.connections) +
                                                " connections, and none of them became idle in time");
        // Idle ones are looked for again now and then: nothing tells when an operation has ended.
        const bool others_wait = self->for_place.next(turn) != nullptr;
        const duration look_again = std::chrono::milliseconds(others_wait ? 1 : 5);
        const result<void> waited = co_await as_result(timeout(
            first ? self->place_free.wait() : turn.comes.wait(), first ? std::min(left, look_again) : left));
        if (self->stopped) self->throw_stopped();
        if (!waited && waited.error() != errc::timed_out) throw error(waited.error());
    }
    ++self->places;
}

RDMACORO_COLD duration node_core::pause_after(unsigned tries) noexcept {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    constexpr duration least = std::chrono::milliseconds(1);
    const duration longest = std::max(options.longest_pause, least);
    duration pause = std::clamp(options.first_pause, least, longest);
    for (unsigned n = 1; n < tries && pause < longest; ++n) pause = pause > longest / 2 ? longest : 2 * pause;
    const auto half = static_cast<std::uint64_t>(pause.count() / 2);
    return duration(static_cast<duration::rep>(half + (random_ >> 33) % (half + 1)));
}

RDMACORO_COLD void node_core::add_url(const std::string& url) {
    self.urls.push_back(url);
    if (const char* const why = self.fault()) {
        self.urls.pop_back();
        throw error(errc::invalid_argument, "node: with " + url + ' ' + why);
    }
}

RDMACORO_COLD task<> as_it_is(task<> what) { return what; }

RDMACORO_COLD void node_core::begin(task<> what) { work->spawn(as_it_is, std::move(what)); }

RDMACORO_COLD void node_core::throw_stopped() const {
    throw error(errc::closed, "node " + std::to_string(self.id) + " was stopped");
}

/// In one line: it is a part of the text of a time limit.
RDMACORO_COLD std::string node_peer::still_unconnected() const {
    std::string text = node_text(id, last_born) + " is not connected";
    // The last round may be the one that has made the connection before.
    const std::string& attempts = explaining.empty() && failure ? explained : explaining;
    const std::size_t end = attempts.find_last_not_of('\n');
    if (end == std::string::npos) return text;
    const std::size_t begin = attempts.find_first_not_of(' ', attempts.rfind('\n', end) + 1);
    return text + ", " + attempts.substr(begin, end + 1 - begin);
}

RDMACORO_COLD task<counted_ptr<node_record>> node_core::connected(counted_ptr<node_peer> to, bool receives,
                                                                  std::uint64_t after) {
    const counted_ptr<node_core> self(to->core);
    if (!self)
        throw error(errc::closed, node_text(to->id, to->last_born) + ": the node of this side was destroyed");
    self->check_thread("node: the peer is of a node of another scheduler");
    time_point until = deadline_after(self->owner.now(), self->options.connect_limit);
    for (;;) {
        if (self->stopped) self->throw_stopped();
        static_cast<void>(to->is_behind());
        if (receives) {
            if (node_record* const left = to->leftover_above(after)) co_return counted_ptr<node_record>(left);
        }
        if (receives && to->lost) {
            const std::error_code why = std::exchange(to->lost, {});
            to->see_receives();
            throw error(why, node_text(to->id, to->lost_born) + ", since the last receive from it");
        }
        to->see_receives();
        if (node_record* const open = to->open()) co_return counted_ptr<node_record>(open);
        if (!receives && to->lost && to->lost != errc::no_resources) {
            // A message sent now is for the next generation, and so are the receives that follow. Of messages that were dropped they hear.
            to->lost = {};
            to->see_receives();
        }
        // One that was never met may still connect by itself: a receive waits for that.
        const bool never_met =
            to->card.id == 0 && to->current == nullptr && to->accepting == 0 && !to->connecting;
        const bool over = self->owner.now() >= until;
        if (never_met && (!receives || !self->options.admits_strangers || over))
            throw error(errc::address_invalid,
                        node_text(to->id, to->last_born) + " is not in the address book of node " +
                            std::to_string(self->self.id) + (receives ? ", and has not connected" : ""));
        const std::uint64_t failures = to->failures;
        // A node that closed the connection because it has too many would have to close another one for this: a receive waits
        // until there is something for it, and looks only now and then whether the node is still there.
        const bool quiet = receives && to->closed_idle && !to->connecting && !over;
        if (receives && to->closed_idle && over)
            until = deadline_after(self->owner.now(), self->options.connect_limit);
        // Messages that the node sent before it left are received first; it may be gone by now.
        const bool closing = receives && !over && self->is_closing(*to);
        if (!never_met && !quiet && !closing) self->begin_connect(*to);
        const duration left = until - self->owner.now();
        const result<void> waited =
            co_await as_result(timeout(to->changed.wait(), std::max(left, duration::zero())));
        if (!waited && waited.error() != errc::timed_out)
            throw error(waited.error(), to->still_unconnected());
        if (self->stopped) self->throw_stopped();
        if (to->open() != nullptr) continue;
        if (never_met || quiet || closing || (receives && !over && self->is_closing(*to))) continue;
        if (receives && to->leftover_above(after) != nullptr) continue;
        if (failures != to->failures || !waited) {
            // The attempts that have ended had begun before this did.
            const bool goes_on = waited && self->options.admits_other_lives &&
                                 may_connect_later(to->failure) && self->owner.now() < until;
            if (goes_on) continue;
            const std::error_code why = to->failure ? to->failure : make_error_code(errc::timed_out);
            throw error(why, node_text(to->id, to->last_born) + " cannot be reached:\n" + to->explained);
        }
    }
}

RDMACORO_COLD task<counted_ptr<node_record>> node_core::connected_in_turn(counted_ptr<node_peer> to,
                                                                          std::optional<node_turn>& turn,
                                                                          const method_facts& of) {
    turn.emplace(to->sends);
    try {
        for (;;) {
            counted_ptr<node_record> over = co_await connected(to, false, 0);
            if (turn->is_first()) co_return over;
            const result<void> waited = co_await as_result(turn->comes.wait());
            if (!waited)
                throw error(waited.error(),
                            node_text(to->id, to->last_born) + ": what began before it is not sent yet");
        }
    } catch (const error& why) {
        throw_call_unsent(of, why);
    }
}

RDMACORO_COLD task<> node_core::turn_before_calls(const node_record& over, const method_facts& of) {
    const result<void> waited = co_await as_result(yield());
    if (waited) co_return;
    throw_call_unsent(of, error(waited.error(), node_text(over.peer->id, over.born) +
                                                    ": its connection does not carry calls yet"));
}

RDMACORO_COLD std::string node_core::unfinished() {
    std::string text;
    for (node_attendance* one = attended.front(); one != nullptr; one = attended.next(*one)) {
        const node_id id = one->record.peer->id;
        const std::string names = work_names != nullptr ? work_names->running_for(id) : std::string();
        if (!text.empty()) text += "; ";
        text += names.empty() ? "the function of the connection with " : names + ", for ";
        text += node_text(id, one->record.born);
    }
    return text;
}

RDMACORO_COLD void node_core::hears_no_more(const std::string& url, const std::system_error& why) {
    std::erase(self.urls, url);
    deaf += "  " + url + ": accepts no more connections: " + why.what() + '\n';
    tell(node_change::deaf, self.id, self.born, why.code());
}

RDMACORO_COLD node_patience::node_patience(node_core& of) noexcept : of_(of) {
    if (of.attended.empty()) return;
    deadline = deadline_after(of.owner.now(), of.options.close_limit);
    expired = &is_over;
    of.owner.add_timer(*this);
}
RDMACORO_COLD node_patience::~node_patience() {
    if (queued()) of_.owner.remove_timer(*this);
}
RDMACORO_COLD void node_patience::is_over(timer_node& at) noexcept {
    node_core& of = static_cast<node_patience&>(at).of_;
    try {
        std::fprintf(stderr,
                     "rdmacoro: node %u is destroyed, and waits for what does not end, though it was asked "
                     "to stop: %s\n",
                     of.self.id, of.unfinished().c_str());
    } catch (const std::bad_alloc&) {}
}

RDMACORO_COLD void node_core::tell(node_change what, node_id id, generation born,
                                   std::error_code why) noexcept {
    for (node_watcher* at = watchers.front(); at != nullptr; at = watchers.next(*at))
        at->tell({what, id, born, why, 0});
}

RDMACORO_COLD std::size_t node_core::open_connections() noexcept {
    std::size_t count = 0;
    for (node_record* at = records.front(); at != nullptr; at = records.next(*at)) {
        if (at->link->is_open()) ++count;
    }
    return count;
}

RDMACORO_COLD void node_core::end_waits() noexcept {
    for (auto& [id, of] : peers) of->change();
    place_free.set();
    for (node_turn* at = for_place.front(); at != nullptr; at = for_place.next(*at)) at->comes.set();
    while (node_watcher* const one = watchers.pop_front()) one->end();
}

}  // namespace rdmacoro::detail
