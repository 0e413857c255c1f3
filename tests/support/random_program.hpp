#pragma once

// Long random programs of everything that endpoints can do, over a simulated network with faults. What a program does
// follows from its seed alone.

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/rendezvous.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace rdmacoro::test {

/// Numbers that are the same everywhere.
class dice {
public:
    explicit dice(std::uint64_t seed) : source_(seed) {}
    /// 0 to `below` - 1.
    std::size_t operator()(std::size_t below) { return static_cast<std::size_t>(source_() % below); }
    bool one_in(std::size_t n) { return (*this)(n) == 0; }
    template <class T, class... More>
    T any_of(T first, More... more) {
        const std::array<T, 1 + sizeof...(More)> all{first, more...};
        return all[(*this)(all.size())];
    }

private:
    std::mt19937_64 source_;
};

/// How a program ends.
enum class ending : std::uint8_t { rest, drop, close, abort };

struct random_program_outcome {
    std::string failure{};  ///< empty: all was well
    std::uint64_t trace = 0;
    std::size_t operations = 0;
    std::size_t received = 0;
};

template <protocol_list List>
class random_program {
public:
    static random_program_outcome run(std::uint64_t seed) {
        random_program self(seed);
        {
            scheduler on{impatient{}, self.world_.time()};
            on.run(self.program(on));
        }
        if (self.failure_.empty() && !self.world_.violations().empty())
            self.failure_ = self.world_.violations().front();
        return {self.failure_, self.world_.trace_hash(), self.posted_, self.received_};
    }

private:
    using endpoint_type = endpoint<sim, List>;
    static constexpr duration for_ever = std::chrono::hours(1);
    static constexpr unsigned steps = 150;  // of each side
    static constexpr std::size_t window_bytes = 4096;
    static constexpr tag_type tags = 4;
    static constexpr std::size_t most_bytes = 20000;  // of a message

    enum class kind : std::uint8_t { send, receive, lent, get, put };

    /// One operation, its memory and what became of it.
    struct operation {
        kind what{};
        std::size_t number =
            0;  ///< among those of its kind and side; receives and lent receives are of one kind
        tag_type tag = 0;
        tag_match wanted{0};
        bool synchronous = false;
        bool limited = false;  ///< in time
        bool asked = false;    ///< to end
        bool ended = false;
        std::size_t bytes = 0;
        std::size_t begin = 0;  ///< of the window of a get or put
        duration limit{};
        std::error_code outcome{};
        std::uint64_t info = 0;
        received got{};
        std::vector<std::byte> content;  ///< of a message that was received
        std::optional<scattered> memory;
        std::vector<std::byte> at_end;
        local_stop_source stop;
        std::optional<started<task<>>> work;

        [[nodiscard]] bool is_receive() const noexcept { return what == kind::receive || what == kind::lent; }
        /// Whether its owner may have canceled it.
        [[nodiscard]] bool given_up() const noexcept { return asked || limited; }
    };
    struct side {
        side(scheduler& on, const sim_options& options) : domain(on, options) {}

        sim::domain domain;
        std::vector<std::byte> readable = std::vector<std::byte>(window_bytes);
        std::vector<std::byte> writable = std::vector<std::byte>(window_bytes);
        region to_read;
        region to_write;
        std::size_t written = 0;  ///< of the peer's `writable`
        std::optional<endpoint_type> end;
        std::deque<operation> operations;
        std::size_t sends = 0;
        std::size_t receives = 0;
    };
    struct both {
        both(scheduler& on, const sim_options& one, const sim_options& other) : a(on, one), b(on, other) {}
        both(const both&) = delete;
        both& operator=(const both&) = delete;
        ~both() {
            a.domain.drop_links_to(b.domain);  // what hangs ends all the same
            for (side* s : {&a, &b}) s->operations.clear();
            for (side* s : {&a, &b}) s->end.reset();
            for (side* s : {&a, &b}) {
                s->to_read = {};
                s->to_write = {};
            }
        }
        side a;
        side b;
    };

    explicit random_program(std::uint64_t seed) : roll_(seed), world_(world_of(seed)) {
        end_ = roll_.any_of(ending::rest, ending::rest, ending::rest, ending::drop, ending::close,
                            ending::abort);
    }
    static sim_world_options world_of(std::uint64_t seed) {
        dice roll(seed * 77 + 5);
        sim_world_options made;
        made.seed = seed;
        made.violations_are_fatal = false;
        made.jitter = duration(roll.any_of(0, 300, 3000, 30000));
        return made;
    }
    [[nodiscard]] sim_options options_of_side() {
        sim_options made;
        capabilities& can = made.offered;
        can.revokes_at_once = roll_.one_in(2);
        can.put_before_send = roll_.one_in(2);
        can.get_alignment = roll_.any_of(1u, 1u, 4u, 8u);
        can.rendezvous_bytes = roll_.any_of(200u, 1000u, 4096u);
        can.eager_bytes = roll_.any_of(100u, 1000u, 4096u);
        can.segment_bytes = roll_.any_of(64u, 1000u, 16384u);
        can.get_bytes = roll_.any_of(2000u, 1u << 30);
        if (List::choose({most_bytes, false}, can) == List::none) can.get_bytes = capabilities{}.get_bytes;
        made.staged_bytes = roll_.any_of(0u, 512u);
        if (roll_.one_in(3)) made.announces_above = roll_.any_of(most_copied, std::size_t{1000});
        made.piece_bytes = roll_.any_of(64u, 1000u);
        if (roll_.one_in(3)) made.room = 1 + roll_(6);
        made.lends = !roll_.one_in(3);
        if (roll_.one_in(4)) made.max_regions = 6 + roll_(6);
        made.lingering_regions = roll_.any_of(0u, 1u, 4u);
        made.world = &world_;
        return made;
    }
    [[nodiscard]] sim_faults some_faults() {
        sim_faults made;
        if (roll_.one_in(2)) made.no_room = roll_.any_of(20'000u, 200'000u);
        if (roll_.one_in(3)) made.no_resources = roll_.any_of(20'000u, 200'000u);
        if (roll_.one_in(2)) made.delayed = roll_.any_of(20'000u, 300'000u);
        return made;
    }

    [[noreturn]] static void wrong(const std::string& what) { throw std::logic_error(what); }

    task<> program(scheduler& on) {
        try {
            co_await all(on);
        } catch (const std::exception& thrown) {
            failure_ = thrown.what();
        }
    }

    task<> all(scheduler& on) {
        const sim_options one = options_of_side();
        sim_options other = options_of_side();
        // What both sides of a link say of it.
        other.offered.revokes_at_once = one.offered.revokes_at_once;
        other.offered.put_before_send = one.offered.put_before_send;
        other.offered.get_alignment = one.offered.get_alignment;
        both nodes(on, one, other);
        side& a = nodes.a;
        side& b = nodes.b;
        mailbox_options options;
        options.unexpected_bytes = roll_.any_of(1u << 18, 4u << 20);
        {
            sim::listener listening = co_await b.domain.listen("b");
            sim::connection near = co_await a.domain.connect("b");
            sim::connection far = co_await listening.accept();
            a.end.emplace(on, std::move(near), options);
            b.end.emplace(on, std::move(far), options);
        }
        co_await sleep_for(std::chrono::seconds(1));
        if (!a.end->is_open() || !b.end->is_open()) wrong("not connected");
        for (side* s : {&a, &b}) {
            for (std::size_t n = 0; n < window_bytes; ++n) s->readable[n] = window_byte(n);
            s->to_read = s->domain.register_memory(s->readable, access_rights::remote_read);
            s->to_write = s->domain.register_memory(s->writable, access_rights::remote_write);
        }
        world_.set_faults(some_faults());

        const unsigned last = end_ == ending::rest ? 2 * steps : static_cast<unsigned>(steps + roll_(steps));
        for (unsigned n = 0; n < last; ++n) {
            const bool here = roll_.one_in(2);
            step(here ? a : b, here ? b : a);
            if (roll_.one_in(3)) co_await sleep_for(duration(roll_(roll_.any_of(100u, 5000u, 50000u))));
            if (roll_.one_in(40)) world_.set_faults(some_faults());
            if (roll_.one_in(40)) a.domain.set_no_room_to(b.domain, roll_.one_in(2));
            if (roll_.one_in(40)) b.domain.hold_messages_to(a.domain, roll_.one_in(2));
            if (roll_.one_in(60)) a.domain.set_exhausted(roll_.one_in(2));
        }
        side& breaks = roll_.one_in(2) ? a : b;
        side& hears = &breaks == &a ? b : a;
        if (end_ == ending::drop) a.domain.drop_links_to(b.domain);
        if (end_ == ending::abort) breaks.end->abort();
        calm(a, b);
        if (end_ == ending::close) {
            static_cast<void>(co_await as_result(timeout(breaks.end->close(), std::chrono::minutes(1))));
            static_cast<void>(co_await as_result(timeout(hears.end->close(), std::chrono::minutes(1))));
        }
        co_await sleep_for(for_ever);
        if (end_ == ending::rest) co_await drain(a, b);
        for (side* s : {&a, &b}) {
            for (operation& o : s->operations) {
                if (o.ended) continue;
                if (end_ != ending::rest || !o.is_receive() || o.asked)
                    wrong(name_of(*s, a, o) + " never ends");
                o.asked = true;
                o.stop.request_stop();
            }
        }
        co_await sleep_for(for_ever);
        for (side* s : {&a, &b}) {
            for (operation& o : s->operations) {
                if (!o.ended) wrong(name_of(*s, a, o) + " was canceled and never ends");
                co_await *o.work;
            }
        }
        for (const auto& [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
            outcomes_are_right(*from, a);
            messages_met_their_receives(*from, *to);
            if (end_ == ending::rest) at_rest(*from, one.offered.revokes_at_once);
        }
        for (side* s : {&a, &b}) {
            for (const operation& o : s->operations) received_ += o.is_receive() && !o.outcome ? 1 : 0;
        }
    }

    void calm(side& a, side& b) {
        world_.set_faults({});
        a.domain.set_no_room_to(b.domain, false);
        b.domain.hold_messages_to(a.domain, false);
        a.domain.set_exhausted(false);
    }

    [[nodiscard]] std::size_t some_bytes() {
        switch (roll_(8)) {
            case 0: return roll_(9);
            case 1: return roll_(most_bytes);
            case 2:
                return roll_.any_of(99u, 100u, 101u, 999u, 1000u, 1001u, 4095u, 4096u, 4097u, 16384u, 16385u);
            case 3:
            case 4: return 200 + roll_(3000);
            default: return 8 + roll_(150);
        }
    }

    void step(side& here, side& there) {
        if (roll_.one_in(8)) {
            // One of the last few operations is canceled.
            if (here.operations.empty()) return;
            const std::size_t back = roll_(std::min<std::size_t>(here.operations.size(), 10));
            operation& o = here.operations[here.operations.size() - 1 - back];
            if (o.ended) return;
            o.asked = true;
            o.stop.request_stop();
            return;
        }
        operation& o = here.operations.emplace_back();
        ++posted_;
        o.tag = roll_(tags);
        o.limited = roll_.one_in(10);
        o.limit = duration(roll_(200'000));
        const std::size_t which = roll_(20);
        if (which < 9) {
            o.what = kind::send;
            o.number = here.sends++;
            o.synchronous = roll_.one_in(5);
            o.bytes = some_bytes();
            make_memory(o, o.bytes);
            std::vector<std::byte> message(o.bytes);
            fill_message(message, &here == first_side(here, there), o);
            o.memory->fill(message);
        } else if (which < 18) {
            o.number = here.receives++;
            o.what = which == 17 ? kind::lent : kind::receive;
            o.wanted = roll_.one_in(5) ? any_tag : tag_match(o.tag);
            o.bytes = roll_.one_in(6) ? some_bytes() : most_bytes;
            make_memory(o, o.what == kind::lent ? 0 : o.bytes);
        } else {
            o.what = which == 18 ? kind::get : kind::put;
            o.bytes = 8 * (1 + roll_(8));
            o.begin = o.what == kind::get ? 8 * roll_((window_bytes - o.bytes) / 8) : here.written;
            if (o.begin + o.bytes > window_bytes) o.what = kind::get, o.begin = 0;
            if (o.what == kind::put) here.written += o.bytes;
            o.memory.emplace(1, o.bytes, 8);
            if (o.what == kind::put) {
                std::vector<std::byte> data(o.bytes);
                for (std::size_t n = 0; n < o.bytes; ++n) data[n] = window_byte(o.begin + n);
                o.memory->fill(data);
            }
        }
        o.work.emplace(run_one(here, there, o, world_));
    }
    [[nodiscard]] static const side* first_side(const side& here, const side& there) noexcept {
        return here.domain.number() < there.domain.number() ? &here : &there;
    }
    [[nodiscard]] static std::byte window_byte(std::size_t at) noexcept {
        return static_cast<std::byte>((at * 13 + 7) & 0xff);
    }
    /// In one piece, or in several with gaps.
    void make_memory(operation& o, std::size_t bytes) {
        const std::size_t pieces = roll_.one_in(4) ? 2 + roll_(10) : 1;
        if (pieces > 1 && bytes >= pieces) {
            o.bytes = bytes / pieces * pieces;
            o.memory.emplace(pieces, bytes / pieces, 4 + roll_(5));
        } else {
            o.memory.emplace(1, bytes, 8);
        }
    }
    /// The first eight bytes, where there are as many, say which message of its side it is.
    static void fill_message(std::span<std::byte> into, bool first, const operation& o) {
        for (std::size_t n = 0; n < into.size(); ++n)
            into[n] = byte_of(first, o.number, o.tag, into.size(), n);
        if (into.size() >= 8) {
            const std::uint64_t number = o.number;
            std::memcpy(into.data(), &number, 8);
        }
    }
    [[nodiscard]] static std::byte byte_of(bool first, std::size_t number, tag_type tag, std::size_t bytes,
                                           std::size_t at) noexcept {
        const std::size_t named = bytes >= 8 ? number : 0;
        return static_cast<std::byte>((named * 31 + tag * 7 + at * 3 + (first ? 0 : 101) + bytes) & 0xff);
    }

    template <class Operation>
    static auto bounded(operation& o, Operation what) {
        return as_result(with_stop(timeout(std::move(what), o.limited ? o.limit : 10 * 24 * for_ever),
                                   o.stop.get_token()));
    }
    static task<> run_one(side& here, side& there, operation& o, sim_world& in) {
        endpoint_type& at = *here.end;
        switch (o.what) {
            case kind::send:
                if (o.synchronous) {
                    const auto r = co_await bounded(o, at.ssend(o.memory->from(), o.tag));
                    o.outcome = r.error();
                } else {
                    const auto r = co_await bounded(o, at.send(o.memory->from(), o.tag));
                    o.outcome = r.error();
                }
                break;
            case kind::receive: {
                auto r = co_await bounded(o, at.recv(o.memory->into(), o.wanted));
                o.outcome = r.error();
                o.info = r.info();
                if (r) {
                    o.got = *r;
                    o.content = o.memory->gathered(std::min(r->bytes, o.bytes));
                }
                break;
            }
            case kind::lent: {
                auto r = co_await bounded(o, at.recv_lent(o.wanted));
                o.outcome = r.error();
                o.info = r.info();
                if (r) {
                    o.got = {r->size(), r->tag(), r->source()};
                    o.content.assign(r->bytes().begin(), r->bytes().end());
                }
                break;
            }
            case kind::get: {
                const auto r = co_await bounded(
                    o, at.rdma_get(there.to_read.remote().part(o.begin, o.bytes), o.memory->pieces[0]));
                o.outcome = r.error();
                if (r) o.content = o.memory->gathered(o.bytes);
                break;
            }
            case kind::put: {
                const auto r = co_await bounded(
                    o, at.rdma_put(o.memory->pieces[0], there.to_write.remote().part(o.begin, o.bytes)));
                o.outcome = r.error();
                if (r)
                    o.content.assign(there.writable.begin() + static_cast<std::ptrdiff_t>(o.begin),
                                     there.writable.begin() + static_cast<std::ptrdiff_t>(o.begin + o.bytes));
                break;
            }
        }
        if (o.memory) {
            in.finished(o.memory->memory);
            if (o.what == kind::send) {
                for (const auto piece : o.memory->pieces)
                    std::fill(piece.begin(), piece.end(), std::byte{0xdd});
            }
            o.at_end = o.memory->memory;
        }
        o.ended = true;
    }

    /// Receives what waits, until no send does.
    task<> drain(side& a, side& b) {
        for (unsigned rounds = 0; rounds < 1000; ++rounds) {
            bool any = false;
            for (side* s : {&a, &b}) {
                if (s->end->connection().mailbox().matching().unexpected() == 0) continue;
                any = true;
                operation& o = s->operations.emplace_back();
                o.what = kind::receive;
                o.number = s->receives++;
                o.wanted = any_tag;
                o.bytes = most_bytes;
                o.memory.emplace(1, o.bytes, 8);
                o.work.emplace(run_one(*s, s == &a ? b : a, o, world_));
            }
            co_await sleep_for(std::chrono::minutes(1));
            if (!any) co_return;
        }
        wrong("messages that wait can't be received");
    }

    [[nodiscard]] static std::string name_of(const side& of, const side& a, const operation& o) {
        static constexpr std::array<const char*, 5> names{"send ", "receive ", "lent receive ", "get ",
                                                          "put "};
        return std::string(names[static_cast<std::size_t>(o.what)]) + std::to_string(o.number) + " of side " +
               (&of == &a ? "a" : "b") + " (" + std::to_string(o.bytes) + " bytes)";
    }

    void outcomes_are_right(const side& here, const side& a) const {
        for (const operation& o : here.operations) {
            const std::string name = name_of(here, a, o);
            if (o.memory && (o.at_end != o.memory->memory || !o.memory->gaps_untouched()))
                wrong(name + ": somebody wrote to its memory after its end, or beside it");
            const bool sends = o.what == kind::send;
            const bool fine =
                !o.outcome || (o.outcome == errc::canceled && o.asked) ||
                (o.outcome == errc::timed_out && o.limited) ||
                (end_ != ending::rest && (o.outcome == errc::closed || o.outcome == errc::peer_lost)) ||
                (o.outcome == errc::no_resources && !sends) ||
                (o.outcome == errc::peer_canceled && o.is_receive()) ||
                (o.outcome == errc::truncated && o.is_receive() &&
                 (o.what == kind::receive && o.info > o.bytes));
            if (!fine) wrong(name + ": " + o.outcome.message());
            if (!o.outcome && !sends && !o.is_receive()) {
                for (std::size_t n = 0; n < o.bytes; ++n) {
                    if (o.content[n] != window_byte(o.begin + n)) wrong(name + ": wrong bytes");
                }
            }
        }
    }

    void messages_met_their_receives(const side& from, const side& to) const {
        struct meeting {
            const operation* message;
            const operation* receive;
        };
        const bool first = &from == first_side(from, to);
        std::vector<const operation*> messages;
        for (const operation& o : from.operations) {
            if (o.what == kind::send) messages.push_back(&o);
        }
        std::vector<const operation*> taken(messages.size(), nullptr);
        std::vector<meeting> met;
        std::size_t nameless = 0;  // received without a number: too short, or truncated
        std::size_t lost = 0;
        std::size_t peer_canceled = 0;
        for (const operation& o : to.operations) {
            if (!o.is_receive()) continue;
            if (o.outcome == errc::truncated) ++nameless;
            if (o.outcome == errc::peer_canceled) ++peer_canceled;
            if (o.outcome == errc::canceled || o.outcome == errc::timed_out ||
                o.outcome == errc::no_resources)
                ++lost;
            if (o.outcome) continue;
            const std::string name = "receive " + std::to_string(o.number);
            if (!o.wanted.accepts(o.got.tag)) wrong(name + " took a wrong tag");
            if (o.what == kind::receive && o.got.bytes > o.bytes) wrong(name + " was truncated in silence");
            std::uint64_t number = 0;
            if (o.content.size() >= 8) std::memcpy(&number, o.content.data(), 8);
            for (std::size_t n = o.content.size() >= 8 ? 8 : 0; n < o.content.size(); ++n) {
                if (o.content[n] !=
                    byte_of(first, static_cast<std::size_t>(number), o.got.tag, o.got.bytes, n))
                    wrong(name + " holds wrong bytes");
            }
            if (o.content.size() < 8) {
                ++nameless;
                continue;
            }
            if (number >= messages.size()) wrong(name + " holds a message that nobody sent");
            const operation& m = *messages[static_cast<std::size_t>(number)];
            if (m.bytes != o.got.bytes || m.tag != o.got.tag) wrong(name + " tells a wrong length or tag");
            if (std::exchange(taken[m.number], &o) != nullptr)
                wrong("send " + std::to_string(m.number) + " was received twice");
            met.push_back({&m, &o});
        }
        for (const meeting& m : met) {
            for (const meeting& n : met) {
                if (m.message->number < n.message->number && n.receive->number < m.receive->number &&
                    n.receive->wanted.accepts(m.message->tag))
                    wrong("send " + std::to_string(m.message->number) + " was overtaken");
            }
        }
        std::size_t given_up = 0;
        std::size_t missing = 0;
        for (const operation* m : messages) {
            if (m->given_up()) {
                ++given_up;
            } else if (taken[m->number] == nullptr) {
                ++missing;
            }
        }
        if (peer_canceled > given_up) wrong("receives ended with peer_canceled, and no send was");
        if (end_ != ending::rest) return;
        if (missing > nameless + lost)
            wrong(std::to_string(missing) + " messages are missing; " + std::to_string(nameless + lost) +
                  " may be");
        std::uint64_t sent = 0;
        for (const operation* m : messages) sent += m->outcome ? 0 : 1;
        if (from.end->counts().messages_sent != sent) wrong("messages_sent is wrong");
    }

    static void at_rest(side& here, bool revokes_at_once) {
        auto& connection = here.end->connection();
        if (!here.end->is_open()) wrong("a link is down: " + connection.reason().message());
        if (connection.mailbox().store().live() != 0) wrong("a message is kept by nobody");
        if (connection.mailbox().matching().unexpected() != 0 ||
            connection.mailbox().matching().posted() != 0)
            wrong("something is matched by nobody");
        const std::size_t most = 2 + (revokes_at_once ? 0 : here.domain.options().lingering_regions);
        if (here.domain.registered() > most) wrong("memory is exposed by nobody");
        const metrics& m = here.end->counts();
        if (m.announced != m.announcements_met + m.announcements_crossed + m.announcements_mispredicted +
                               m.announcements_withdrawn)
            wrong("announcements are not counted rightly");
    }

    dice roll_;
    sim_world world_;
    ending end_ = ending::rest;
    std::string failure_;
    std::size_t posted_ = 0;
    std::size_t received_ = 0;
};

}  // namespace rdmacoro::test
