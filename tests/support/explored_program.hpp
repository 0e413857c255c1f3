#pragma once

// Small programs of sends, receives and cancels between two endpoints over `sim`, written as text, and what must hold of
// each of their executions, whatever the order of events was.

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// One step of one side. In text a letter and a digit, which may be left out where it says so:
///   e r s   sends a short, a long, or a middling synchronous message; the digit is its tag, or 1
///   R W T   receives an exact tag (the digit, or 1), any tag, or an exact tag into a buffer that most messages exceed
///   c       cancels the side's operation of that number, from 0
///   -       nothing; a step all the same
struct program_step {
    char what = '-';
    unsigned number = 1;

    [[nodiscard]] bool sends() const noexcept { return what == 'e' || what == 'r' || what == 's'; }
    [[nodiscard]] bool receives() const noexcept { return what == 'R' || what == 'W' || what == 'T'; }
};

using side_program = std::vector<program_step>;

/// Both sides' steps; in text "r,s,c0/R,W".
struct two_sided_program {
    std::array<side_program, 2> sides;

    [[nodiscard]] static two_sided_program parsed(std::string_view text) {
        two_sided_program made;
        std::size_t side = 0;
        program_step* last = nullptr;
        for (const char c : text) {
            if (c == '/') {
                if (++side == 2) throw std::invalid_argument("a program has two sides");
                last = nullptr;
            } else if (c >= '0' && c <= '9' && last != nullptr) {
                last->number = static_cast<unsigned>(c - '0');
            } else if (std::string_view("ersRWTc-").find(c) != std::string_view::npos) {
                last = &made.sides[side].emplace_back(program_step{c, 1});
            } else if (c != ',') {  // commas are for the eye
                throw std::invalid_argument("not a step: " + std::string(1, c));
            }
        }
        return made;
    }
    [[nodiscard]] std::string text() const {
        std::string made;
        for (const side_program& steps : sides) {
            if (&steps == &sides[1]) made += '/';
            for (const program_step& s : steps) {
                if (&s != &steps.front()) made += ',';
                made += s.what;
                if (s.what == 'c' || s.number != 1) made += std::to_string(s.number);
            }
        }
        return made;
    }
};

/// The properties of the links of an explored program.
struct explored_link {
    bool revokes_at_once = true;
    bool put_before_send = false;
    bool borrows = false;  ///< every message with a payload is sent from the caller's memory
    /// The credit that either side begins with; a message costs 4. The rest pays for messages that nobody ever receives.
    std::uint32_t credit = unlimited;
    static constexpr std::uint32_t unlimited = 0xffffffff;

    [[nodiscard]] std::string text() const {
        return std::string(revokes_at_once ? "revokes" : "lingers") +
               (put_before_send ? "+chained" : "+unchained") + (borrows ? "+borrows" : "") +
               (credit != unlimited ? "+credit" + std::to_string(credit) : "");
    }
};

/// One send or receive of an explored program, its memory, and what became of it.
class explored_operation {
public:
    static constexpr std::size_t most_bytes = 96;
    static constexpr std::byte untouched{0xee};
    static constexpr std::byte gone{0xdd};

    /// `index` counts the sends, and the receives, of one side.
    explored_operation(program_step step, unsigned side, unsigned index) : step_(step), index_(index) {
        memory_.fill(untouched);
        if (step.sends()) {
            for (std::size_t n = 0; n < bytes(); ++n) buffer()[n] = of_message(side, index, n);
        }
    }

    [[nodiscard]] bool sends() const noexcept { return step_.sends(); }
    [[nodiscard]] unsigned index() const noexcept { return index_; }
    [[nodiscard]] tag_type tag() const noexcept { return step_.number; }
    [[nodiscard]] bool accepts(tag_type other) const noexcept { return step_.what == 'W' || other == tag(); }
    /// Of the message, or of the buffer. All messages of one side differ in length.
    [[nodiscard]] std::size_t bytes() const noexcept {
        switch (step_.what) {
            case 'e': return 8 + index_;
            case 's': return 24 + index_;
            case 'r': return (index_ % 2 == 0 ? 40 : 56) + index_;
            case 'T': return index_ % 2 == 0 ? 20 : 4;
            default: return most_bytes;
        }
    }
    [[nodiscard]] std::span<std::byte> buffer() noexcept {
        return std::span(memory_).subspan(guard, bytes());
    }
    [[nodiscard]] static std::byte of_message(unsigned side, unsigned index, std::size_t at) noexcept {
        return static_cast<std::byte>((1 + side * 128 + index * 37 + at * 11) & 0xff);
    }

    template <class Endpoint>
    void post(Endpoint& at, sim_world& in) {
        if (sends()) {
            work_.emplace(send(at, *this, in));
        } else {
            work_.emplace(receive(at, *this, in));
        }
    }
    void cancel() noexcept {
        asked = true;
        stop_.request_stop();
    }
    [[nodiscard]] bool posted() const noexcept { return work_.has_value(); }
    [[nodiscard]] started<task<>>& work() noexcept { return *work_; }
    /// Whether its memory is unchanged since it ended, and the bytes around it since the beginning.
    [[nodiscard]] bool as_it_ended() const noexcept {
        return memory_ == at_end_ && std::all_of(memory_.begin(), memory_.begin() + guard, is_untouched) &&
               std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(guard + bytes()), memory_.end(),
                           is_untouched);
    }
    /// Whether the buffer holds message `of` of the other side, of that length, and nothing else.
    [[nodiscard]] bool holds(unsigned from_side, const explored_operation& of) noexcept {
        for (std::size_t n = 0; n < bytes(); ++n) {
            const std::byte wanted = n < of.bytes() ? of_message(from_side, of.index(), n) : untouched;
            if (buffer()[n] != wanted) return false;
        }
        return true;
    }

    bool asked = false;  ///< to end
    bool ended = false;
    std::error_code outcome{};
    received got{};
    std::uint64_t info = 0;

private:
    static constexpr std::size_t guard = 8;
    using all_memory = std::array<std::byte, most_bytes + 2 * guard>;

    [[nodiscard]] static bool is_untouched(std::byte b) noexcept { return b == untouched; }

    template <class Endpoint>
    static task<> send(Endpoint& at, explored_operation& self, sim_world& in) {
        const std::span<const std::byte> from = self.buffer();
        if (self.step_.what == 's') {
            const auto r = co_await as_result(with_stop(at.ssend(from, self.tag()), self.stop_.get_token()));
            self.outcome = r.error();
        } else {
            const auto r = co_await as_result(with_stop(at.send(from, self.tag()), self.stop_.get_token()));
            self.outcome = r.error();
        }
        // A later sender of it sends something else.
        std::fill(self.buffer().begin(), self.buffer().end(), gone);
        self.end(in);
    }
    template <class Endpoint>
    static task<> receive(Endpoint& at, explored_operation& self, sim_world& in) {
        const tag_match wanted = self.step_.what == 'W' ? any_tag : tag_match(self.tag());
        auto r = co_await as_result(with_stop(at.recv(self.buffer(), wanted), self.stop_.get_token()));
        self.outcome = r.error();
        self.info = r.info();
        if (r) self.got = *r;
        self.end(in);
    }
    void end(sim_world& in) {
        in.finished(buffer());
        at_end_ = memory_;
        ended = true;
    }

    program_step step_;
    unsigned index_;
    all_memory memory_{};
    all_memory at_end_{};
    local_stop_source stop_;
    std::optional<started<task<>>> work_;
};

/// Of all executions together: buffers announced, those that messages were put into, and those that crossed theirs.
struct seen_announcements {
    std::uint64_t announced = 0;
    std::uint64_t met = 0;
    std::uint64_t crossed = 0;
};

/// A program for `explore`.
template <protocol_list List>
class explored_program {
public:
    using endpoint_type = endpoint<sim, List>;

    /// `instead`: decides what happens next in place of the explorer.
    explored_program(const two_sided_program& what, const explored_link& how,
                     rdmacoro::detail::sim::chooser* instead = nullptr)
        : what_(&what), how_(how), instead_(instead) {}

    [[nodiscard]] static sim_options options_of(const explored_link& how) {
        sim_options made;
        made.offered.revokes_at_once = how.revokes_at_once;
        made.offered.put_before_send = how.put_before_send;
        made.offered.eager_bytes = 16;
        made.offered.segment_bytes = 32;
        if (how.borrows) made.staged_bytes = 0;
        made.lingering_regions = 1;
        return made;
    }

    task<> operator()(exploration& x) { return run(*what_, how_, x, instead_, seen_); }

    void count_into(seen_announcements& sum) noexcept { seen_ = &sum; }

private:
    struct side {
        side(scheduler& on, const sim_options& options) : domain(on, options) {}

        sim::domain domain;
        std::optional<endpoint_type> end;
        std::deque<explored_operation> operations;
        unsigned sends = 0;
        unsigned receives = 0;
    };
    struct both {
        both(scheduler& on, const sim_options& options) : a(on, options), b(on, options) {}
        both(const both&) = delete;
        both& operator=(const both&) = delete;
        ~both() {
            for (side* s : {&a, &b}) s->operations.clear();
            for (side* s : {&a, &b}) s->end.reset();  // a domain outlives the links to it
        }

        side a;
        side b;
    };
    static constexpr duration for_ever = std::chrono::hours(1);  // nothing happens by itself for so long

    [[noreturn]] static void wrong(const std::string& what) { throw std::logic_error(what); }
    [[nodiscard]] static std::string name_of(unsigned of, const explored_operation& o) {
        return std::string(o.sends() ? "send " : "receive ") + std::to_string(o.index()) + " of side " +
               std::to_string(of);
    }

    static task<> run(const two_sided_program& what, explored_link how, exploration& x,
                      rdmacoro::detail::sim::chooser* instead, seen_announcements* seen) {
        scheduler& on = rdmacoro::detail::running_scheduler();
        sim_options options = options_of(how);
        options.world = &x.world();
        both nodes(on, options);
        side& a = nodes.a;
        side& b = nodes.b;
        std::array<side*, 2> sides{&a, &b};
        {
            sim::listener listening = co_await b.domain.listen("b");
            sim::connection near = co_await a.domain.connect("b");
            sim::connection far = co_await listening.accept();
            a.end.emplace(on, std::move(near));
            b.end.emplace(on, std::move(far));
        }
        co_await sleep_for(std::chrono::seconds(1));
        if (!a.end->is_open() || !b.end->is_open()) wrong("not connected");

        if (how.credit != explored_link::unlimited) {
            leave_credit(a, b, how.credit);
            leave_credit(b, a, how.credit);
        }
        task_group walking;
        x.begin();
        if (instead != nullptr) x.world().set_chooser(instead);
        walking.spawn(walk, std::ref(a), 0u, std::cref(what.sides[0]), std::ref(x.world()));
        walking.spawn(walk, std::ref(b), 1u, std::cref(what.sides[1]), std::ref(x.world()));
        co_await walking.join();
        co_await sleep_for(for_ever);  // until nothing is left to happen
        x.end();

        for (const unsigned n : {0u, 1u}) ended_where_asked(*sides[n], n);
        // The operations behind those receives that wait in vain.
        std::array<std::size_t, 2> own{a.operations.size(), b.operations.size()};
        for (side* s : sides) {
            while (s->end->connection().mailbox().matching().unexpected() != 0 ||
                   sends_wait(s == &a ? b : a)) {
                s->operations.emplace_back(program_step{'W', 0}, s == &a ? 0u : 1u, s->receives++);
                s->operations.back().post(*s->end, x.world());
                co_await sleep_for(for_ever);
                if (!s->operations.back().ended) wrong("a message that has come can't be received");
            }
        }
        for (const unsigned n : {0u, 1u}) waits_in_vain(*sides[n], n, own[n], *sides[1 - n]);
        for (side* s : sides) {
            for (explored_operation& o : s->operations) {
                if (!o.ended && !o.sends()) o.cancel();
            }
        }
        co_await sleep_for(for_ever);
        for (const unsigned n : {0u, 1u}) {
            for (explored_operation& o : sides[n]->operations) {
                if (!o.ended) wrong(name_of(n, o) + " never ends");
            }
        }
        for (side* s : sides) {
            for (explored_operation& o : s->operations) co_await o.work();
        }
        for (const unsigned n : {0u, 1u}) {
            const side& from = *sides[n];
            side& to = *sides[1 - n];
            messages_met_their_receives(from, to, n);
            counts_agree(from, to);
            at_rest(*sides[n], n, how);
            if (seen == nullptr) continue;
            seen->announced += to.end->counts().announced;
            seen->met += to.end->counts().announcements_met;
            seen->crossed += to.end->counts().announcements_crossed;
        }
    }

    static void leave_credit(side& from, side& to, std::uint32_t credit) {
        auto& paying = from.end->connection().credits();
        const std::uint32_t gone = paying.available() - credit;
        if (!paying.take(gone) || !to.end->connection().credits().charge(gone)) wrong("no such credit");
    }
    static bool sends_wait(const side& of) {
        return std::any_of(of.operations.begin(), of.operations.end(),
                           [](const explored_operation& o) { return o.sends() && !o.ended; });
    }

    static task<> walk(side& here, unsigned number, const side_program& steps, sim_world& in) {
        sim_actor self(here.domain);
        for (const program_step& step : steps) {
            co_await self.step();
            if (step.what == 'c') {
                here.operations.at(step.number).cancel();
            } else if (step.what != '-') {
                const unsigned index = step.sends() ? here.sends++ : here.receives++;
                here.operations.emplace_back(step, number, index);
                here.operations.back().post(*here.end, in);
            }
        }
    }

    static void ended_where_asked(const side& here, unsigned number) {
        if (!here.end->is_open()) {
            const std::error_code why = const_cast<side&>(here).end->connection().reason();
            wrong("the link of side " + std::to_string(number) + " is down: " + why.message());
        }
        for (const explored_operation& o : here.operations) {
            if (!o.ended && o.asked) wrong(name_of(number, o) + " was canceled and does not end");
        }
    }

    /// An operation that is pending when no event is left has no match.
    static void waits_in_vain(const side& here, unsigned number, std::size_t own, const side& there) {
        for (std::size_t n = 0; n < own; ++n) {
            const explored_operation& o = here.operations[n];
            if (o.ended) continue;
            if (o.sends()) wrong(name_of(number, o) + " never ends");
            // A message that was found later had come before: it should have met this one.
            for (std::size_t late = own; late < here.operations.size(); ++late) {
                const explored_operation* m = message_of(there, here.operations[late]);
                if (m != nullptr && o.accepts(m->tag()))
                    wrong(name_of(number, o) + " has not met a message that waits");
            }
        }
    }

    /// The message that a receive took, by its length; nullptr: none.
    [[nodiscard]] static const explored_operation* message_of(const side& from, const explored_operation& r) {
        std::uint64_t bytes = 0;
        if (!r.outcome && r.ended) {
            bytes = r.got.bytes;
        } else if (r.outcome == errc::truncated) {
            bytes = r.info;
        } else {
            return nullptr;
        }
        for (const explored_operation& o : from.operations) {
            if (o.sends() && o.bytes() == bytes) return &o;
        }
        wrong("a message of " + std::to_string(bytes) + " bytes that nobody sent was received");
    }

    static void messages_met_their_receives(const side& from, side& to, unsigned from_number) {
        const unsigned to_number = 1 - from_number;
        struct meeting {
            const explored_operation* message;
            const explored_operation* receive;
        };
        std::vector<meeting> met;
        std::size_t messages_canceled = 0;
        std::size_t receives_canceled = 0;
        std::size_t peer_canceled = 0;
        for (const explored_operation& o : from.operations) {
            if (!o.sends()) continue;
            if (o.asked) ++messages_canceled;
            if (o.outcome && !(o.asked && o.outcome == errc::canceled))
                wrong(name_of(from_number, o) + ": " + o.outcome.message());
            if (!o.as_it_ended()) wrong(name_of(from_number, o) + " was written to");
        }
        for (explored_operation& o : to.operations) {
            if (o.sends()) continue;
            if (!o.as_it_ended()) wrong(name_of(to_number, o) + " was written to after its end, or beside");
            if (const explored_operation* m = message_of(from, o)) {
                if (!o.accepts(m->tag())) wrong(name_of(to_number, o) + " took a wrong tag");
                for (const meeting& other : met) {
                    if (other.message == m) wrong(name_of(from_number, *m) + " was received twice");
                }
                met.push_back({m, &o});
                if (o.outcome) {
                    if (m->bytes() <= o.bytes()) wrong(name_of(to_number, o) + ": not truncated at all");
                } else {
                    if (o.got.tag != m->tag()) wrong(name_of(to_number, o) + " tells a wrong tag");
                    if (m->bytes() > o.bytes()) wrong(name_of(to_number, o) + ": truncated in silence");
                    if (!o.holds(from_number, *m)) wrong(name_of(to_number, o) + " holds wrong bytes");
                }
            } else if (o.outcome == errc::canceled && o.asked) {
                ++receives_canceled;
            } else if (o.outcome == errc::peer_canceled) {
                ++peer_canceled;
            } else {
                wrong(name_of(to_number, o) + ": " + o.outcome.message());
            }
        }
        if (peer_canceled > messages_canceled) wrong("receives ended with peer_canceled, and no send was");
        std::size_t lost = 0;
        for (const explored_operation& o : from.operations) {
            if (!o.sends()) continue;
            const auto taken =
                std::find_if(met.begin(), met.end(), [&](const meeting& m) { return m.message == &o; });
            if (taken == met.end()) {
                if (!o.asked) ++lost;
                if (!o.asked && !may_be_lost(to, o)) wrong(name_of(from_number, o) + " was lost");
                continue;
            }
            for (const meeting& other : met) {
                if (other.message->index() > o.index() && other.receive->index() < taken->receive->index() &&
                    other.receive->accepts(o.tag()))
                    wrong(name_of(from_number, o) + " was overtaken");
            }
        }
        for (const meeting& m : met) {
            for (const explored_operation& o : from.operations) {
                if (!o.sends() || o.asked || o.index() > m.message->index() || !m.receive->accepts(o.tag()))
                    continue;
                const bool taken =
                    std::any_of(met.begin(), met.end(), [&](const meeting& n) { return n.message == &o; });
                if (!taken && !may_be_lost(to, o, m.receive->index()))
                    wrong(name_of(from_number, o) + " was passed over");
            }
        }
        if (lost > receives_canceled) wrong("more messages were lost than receives canceled");
    }
    /// Whether a receive that was canceled, before the one of that index, may have taken it.
    [[nodiscard]] static bool may_be_lost(const side& to, const explored_operation& message,
                                          unsigned before = ~0u) {
        return std::any_of(to.operations.begin(), to.operations.end(), [&](const explored_operation& o) {
            return !o.sends() && o.asked && o.outcome == errc::canceled && o.index() < before &&
                   o.accepts(message.tag());
        });
    }

    static void counts_agree(const side& from, const side& to) {
        const metrics& out = from.end->counts();
        const metrics& in = to.end->counts();
        std::uint64_t sent = 0;
        std::uint64_t bytes = 0;
        for (const explored_operation& o : from.operations) {
            if (!o.sends() || o.outcome) continue;
            ++sent;
            bytes += o.bytes();
        }
        std::uint64_t got = 0;
        for (const explored_operation& o : to.operations) {
            if (o.sends()) continue;
            if (!o.outcome) ++got;
        }
        if (out.messages_sent != sent || out.bytes_sent != bytes)
            wrong("messages_sent is " + std::to_string(out.messages_sent) + ", not " + std::to_string(sent));
        if (in.messages_received != got)
            wrong("messages_received is " + std::to_string(in.messages_received) + ", not " +
                  std::to_string(got));
        const std::uint64_t by_policy = out.eager_sent + out.in_place_sent + out.segmented_sent +
                                        out.get_sent + out.put_sent + out.cooperative_sent + out.staged_sent +
                                        out.speculative_sent + out.sent_ahead;
        if (by_policy < sent) wrong("a message was sent by no policy");
        if (in.announced != in.announcements_met + in.announcements_crossed + in.announcements_mispredicted +
                                in.announcements_withdrawn)
            wrong("announcements: " + std::to_string(in.announced) + " made, " +
                  std::to_string(in.announcements_met) + " met, " + std::to_string(in.announcements_crossed) +
                  " crossed, " + std::to_string(in.announcements_mispredicted) + " mispredicted, " +
                  std::to_string(in.announcements_withdrawn) + " withdrawn");
        if (out.announcements_used != in.announcements_met)
            wrong("announcements used and announcements met differ");
    }

    static void at_rest(side& here, unsigned number, const explored_link& how) {
        const std::string whose = " of side " + std::to_string(number);
        auto& box = here.end->connection().mailbox();
        if (!here.end->is_open()) wrong("the link" + whose + " is down");
        // Blocks that messages are staged in stay open.
        const std::size_t blocks =
            here.end->counts().staged_sent != 0 ? std::size_t{rdmacoro::detail::most_staged} : 0;
        if (here.domain.registered() > blocks + (how.revokes_at_once ? 0 : 1))
            wrong("memory" + whose + " is exposed");
        if (box.store().live() != 0) wrong("a message" + whose + " is kept");
        if (box.matching().unexpected() != 0 || box.matching().posted() != 0)
            wrong("something" + whose + " is matched by nobody");
    }

    const two_sided_program* what_;
    explored_link how_;
    rdmacoro::detail::sim::chooser* instead_;
    seen_announcements* seen_ = nullptr;
};

/// Events in a given order, told as `sim_world::described` does: each of `told` is how the next begins. Then any order.
class told_order final : public rdmacoro::detail::sim::chooser {
public:
    using event = rdmacoro::detail::sim::event;

    explicit told_order(std::vector<std::string> told) : told_(std::move(told)) {}

    event* choose(std::span<event* const> enabled) noexcept override {
        if (at_ == told_.size() || !impossible_.empty()) return enabled.front();
        for (event* e : enabled) {
            if (sim_world::described(e->key).starts_with(told_[at_])) {
                ++at_;
                return e;
            }
        }
        impossible_ = std::to_string(at_) + ": " + told_[at_] + ", but only";
        for (event* e : enabled) impossible_ += " [" + sim_world::described(e->key) + "]";
        return enabled.front();
    }
    unsigned choose(unsigned) noexcept override { return 0; }

    /// Whether all of it has happened.
    [[nodiscard]] bool told() const noexcept { return at_ == told_.size(); }
    [[nodiscard]] const std::string& impossible() const noexcept { return impossible_; }

private:
    std::vector<std::string> told_;
    std::size_t at_ = 0;
    std::string impossible_;
};

}  // namespace rdmacoro::test
