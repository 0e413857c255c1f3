// Every deadlock of small programs, described: the operation that waits is named, and who must act for it to go on. What must be named
// is found by a model that knows nothing of protocols.

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/protocols.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>
#include <rdmacoro/protocol/reuse_aware_eager.hpp>
#include <rdmacoro/protocol/speculative.hpp>
#include <rdmacoro/protocol/staged_get.hpp>
#include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/transport/sim/explore.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/explored_program.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace test_protocol_described_deadlocks {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// The model's facts about sends: which end only when they are received. The others need credit.
struct send_rules {
    bool long_ones_wait;    ///< whether a long message ends only when it is received
    std::uint32_t credits;  ///< short messages that each side may send before the peer has received one
};

/// Executes a program without any protocol. Messages of one side are received in order; there are exact tags alone, and 'W'.
class model {
public:
    model(const two_sided_program& program, const send_rules& rules) : program_(program), rules_(rules) {
        while (step(0) || step(1)) {}
    }

    [[nodiscard]] std::size_t at(unsigned side) const { return at_[side]; }
    [[nodiscard]] bool ended() const {
        return at_[0] == program_.sides[0].size() && at_[1] == program_.sides[1].size();
    }
    [[nodiscard]] bool waits(unsigned side) const { return at_[side] < program_.sides[side].size(); }
    [[nodiscard]] const program_step& waiting(unsigned side) const { return program_.sides[side][at_[side]]; }

private:
    struct message {
        program_step what;
        bool begun_only;  // its send waits
    };
    static bool accepts(const program_step& receive, const program_step& sent) {
        return receive.what == 'W' || receive.number == sent.number;
    }
    [[nodiscard]] bool synchronous(const program_step& s) const {
        return s.what == 's' || (s.what == 'r' && rules_.long_ones_wait);
    }
    bool step(unsigned side) {
        if (!waits(side)) return false;
        const program_step& now = waiting(side);
        auto& own = sent_[side];
        auto& others = sent_[1 - side];
        if (now.sends()) {
            const bool begins = !begun_[side];
            if (begins) {
                begun_[side] = true;
                own.push_back({now, true});
            }
            if (!synchronous(now) && stored(side) <= rules_.credits) {
                for (message& m : own) m.begun_only = false;
                return end(side);
            }
            return begins;
        }
        const auto found = std::find_if(others.begin(), others.end(),
                                        [&](const message& m) { return accepts(now, m.what); });
        if (found == others.end()) return false;
        const bool sender_waits = found->begun_only;
        others.erase(found);
        if (sender_waits) end(1 - side);
        return end(side);
    }
    /// Messages that were sent and not received.
    [[nodiscard]] std::uint32_t stored(unsigned side) const {
        return static_cast<std::uint32_t>(sent_[side].size());
    }
    bool end(unsigned side) {
        ++at_[side];
        begun_[side] = false;
        return true;
    }

    const two_sided_program& program_;
    send_rules rules_;
    std::array<std::size_t, 2> at_{};
    std::array<bool, 2> begun_{};
    std::array<std::vector<message>, 2> sent_;
};

constexpr std::uint32_t plenty = 1000;  // messages

struct counted {
    std::uint64_t executions = 0;
    std::uint64_t receives = 0;  // that wait
    std::uint64_t sends = 0;
    std::uint64_t short_of_credit = 0;
};

template <protocol_list List>
class described_program {
public:
    described_program(const two_sided_program& what, const send_rules& rules, counted& sum)
        : what_(&what), rules_(rules), sum_(&sum) {}

    task<> operator()(exploration& x) { return run(*what_, rules_, x, *sum_); }

private:
    struct side {
        side(scheduler& on, const sim_options& options) : domain(on, options) {}
        sim::domain domain;
        std::optional<endpoint<sim, List>> end;
        local_stop_source stop;
        std::size_t ended = 0;
        std::array<std::byte, 96> memory{};
    };
    static constexpr std::uint32_t cost = detail::message_cost(8);

    static std::size_t bytes_of(const program_step& s) {
        return s.what == 'e' ? 8 : s.what == 's' ? 24 : s.what == 'r' ? 40 : 96;
    }
    static task<> walk(side& here, const side_program& steps) {
        sim_actor self(here.domain);
        for (const program_step& s : steps) {
            co_await self.step();
            const auto token = here.stop.get_token();
            const std::span<std::byte> memory = std::span(here.memory).first(bytes_of(s));
            bool good = false;
            if (s.what == 's') {
                good = bool(co_await as_result(with_stop(here.end->ssend(memory, s.number), token)));
            } else if (s.sends()) {
                good = bool(co_await as_result(with_stop(here.end->send(memory, s.number), token)));
            } else {
                const tag_match wanted = s.what == 'W' ? any_tag : tag_match(s.number);
                good = bool(co_await as_result(with_stop(here.end->recv(memory, wanted), token)));
            }
            if (!good) co_return;
            ++here.ended;
        }
    }
    static void limit(side& from, side& to, std::uint32_t messages) {
        auto& paying = from.end->connection().credits();
        const std::uint32_t gone = paying.available() - messages * cost;
        if (!paying.take(gone) || !to.end->connection().credits().charge(gone))
            throw std::logic_error("no such credit");
    }

    static void check(exploration& x, const two_sided_program& what, const send_rules& rules,
                      const description& found, counted& sum) {
        const model wanted(what, rules);
        std::vector<const pending_operation*> messages;
        for (const pending_operation& one : found.operations()) {
            if (one.tagged) messages.push_back(&one);
        }
        std::size_t waiting = 0;
        for (const unsigned n : {0u, 1u}) {
            if (!wanted.waits(n)) continue;
            ++waiting;
            const program_step& s = wanted.waiting(n);
            const char* const name = s.what == 's' ? "ssend" : s.sends() ? "send" : "recv";
            const bool credit = s.what == 'e' || (s.what == 'r' && !rules.long_ones_wait);
            const auto named = std::find_if(messages.begin(), messages.end(), [&](const auto* one) {
                if (one->what != name || (s.what != 'W' && one->tag != s.number)) return false;
                if (one->bytes != bytes_of(s) || one->peer.empty()) return false;
                if (!s.sends()) return one->next == next_actor::peer_send;
                return one->next == (credit ? next_actor::credit : next_actor::peer_receive) ||
                       (!credit && one->next == next_actor::credit && rules.credits == 0);
            });
            x.check(named != messages.end(), "side " + std::to_string(n) + ", step " +
                                                 std::to_string(wanted.at(n)) +
                                                 " is not described as it should be:\n" + found.text());
            if (named == messages.end()) return;
            ++(s.sends() ? sum.sends : sum.receives);
            if ((*named)->next == next_actor::credit) ++sum.short_of_credit;
            messages.erase(named);
        }
        x.check(messages.empty(),
                "more is described than waits (" + std::to_string(waiting) + "):\n" + found.text());
    }

    static task<> run(const two_sided_program& what, send_rules rules, exploration& x, counted& sum) {
        scheduler& on = rdmacoro::detail::running_scheduler();
        sim_options options;
        options.offered.eager_bytes = 16;
        options.offered.segment_bytes = 32;
        options.world = &x.world();
        std::optional<side> a(std::in_place, on, options);
        std::optional<side> b(std::in_place, on, options);
        {
            sim::listener listening = co_await b->domain.listen("b");
            sim::connection near = co_await a->domain.connect("b");
            sim::connection far = co_await listening.accept();
            // Where credit is short there is no more to be granted.
            mailbox_options least;
            if (rules.credits < plenty) least.unexpected_bytes = 1;
            a->end.emplace(on, std::move(near), least);
            b->end.emplace(on, std::move(far), least);
        }
        co_await sleep_for(1s);
        if (rules.credits < plenty) {
            limit(*a, *b, rules.credits);
            limit(*b, *a, rules.credits);
        }
        {
            task_group walking;
            x.begin();
            walking.spawn(walk, std::ref(*a), std::cref(what.sides[0]));
            walking.spawn(walk, std::ref(*b), std::cref(what.sides[1]));
            co_await sleep_for(1h);  // until nothing is left to happen
            x.end();
            ++sum.executions;
            check(x, what, rules, on.describe(), sum);
            a->stop.request_stop();
            b->stop.request_stop();
            co_await walking.join();
        }
        const description rest = on.describe();
        x.check(rest.operations().empty(), "described after the end:\n" + rest.text());
        a->end.reset();
        b->end.reset();
    }

    const two_sided_program* what_;
    send_rules rules_;
    counted* sum_;
};

/// All pairs of sides with up to `most` operations together.
std::vector<two_sided_program> all_programs(std::size_t most) {
    const std::vector<std::string> steps{"e1", "e2", "r1", "s1", "R1", "R2", "W1"};
    std::vector<std::vector<std::string>> sides{{""}};
    for (std::size_t n = 1; n <= most; ++n) {
        sides.emplace_back();
        for (const std::string& shorter : sides[n - 1]) {
            for (const std::string& s : steps) sides[n].push_back(shorter + s);
        }
    }
    std::vector<two_sided_program> made;
    for (std::size_t a = 0; a <= most; ++a) {
        for (std::size_t b = 0; a + b <= most; ++b) {
            for (const std::string& of_a : sides[a]) {
                for (const std::string& of_b : sides[b])
                    made.push_back(two_sided_program::parsed(of_a + "/" + of_b));
            }
        }
    }
    return made;
}

template <protocol_list List>
counted describe_deadlocks(const send_rules& rules, std::size_t most, std::size_t every) {
    counted sum;
    std::size_t number = 0;
    for (const two_sided_program& program : all_programs(most)) {
        if (model(program, rules).ended() || number++ % every != 0) continue;
        explore_options few;
        few.most_executions = 20;
        const explore_report report = explore(described_program<List>(program, rules, sum), few);
        if (report.failed) {
            FAIL_CHECK(program.text() << "\n" << report.text());
            break;
        }
    }
    CHECK(sum.executions > 0);
    CHECK(sum.receives > 0);
    CHECK(sum.sends > 0);
    std::printf("%llu executions, %llu receives and %llu sends wait, %llu for credit\n",
                static_cast<unsigned long long>(sum.executions),
                static_cast<unsigned long long>(sum.receives), static_cast<unsigned long long>(sum.sends),
                static_cast<unsigned long long>(sum.short_of_credit));
    return sum;
}

/// All programs of up to four operations; where each instruction is watched, one of 41 of four.
template <protocol_list List>
counted describe_all(const send_rules& rules) {
    if (counts_allocations) return describe_deadlocks<List>(rules, 4, 1);
    describe_deadlocks<List>(rules, 3, 1);
    return describe_deadlocks<List>(rules, 4, 41);
}

using by_pieces = protocols<eager<up_to<16>>, segmented<>>;
using by_get = protocols<eager<up_to<16>>, get_rendezvous<>>;
using by_put = protocols<eager<up_to<16>>, put_rendezvous<>>;
using by_staging = protocols<eager<up_to<16>>, staged_get<>, get_rendezvous<>>;
using by_speculation = protocols<eager<up_to<16>>, speculative<get_rendezvous<>>>;
using by_reuse = protocols<reuse_aware_eager<up_to<16>>, segmented<>>;

}  // namespace

TEST_CASE("deadlocks over pieces name what waits, and for whom", "[describe]") {
    describe_all<by_pieces>({false, plenty});
}
TEST_CASE("deadlocks over a rendezvous by get name what waits, and for whom", "[describe]") {
    describe_all<by_get>({true, plenty});
}
TEST_CASE("deadlocks over a rendezvous by put name what waits, and for whom", "[describe]") {
    describe_all<by_put>({true, plenty});
}
TEST_CASE("deadlocks over staged messages name what waits, and for whom", "[describe]") {
    describe_all<by_staging>({false, plenty});
}
TEST_CASE("deadlocks over a speculative rendezvous name what waits, and for whom", "[describe]") {
    describe_all<by_speculation>({true, plenty});
}
TEST_CASE("deadlocks over messages that are sent from where they lie name what waits, and for whom",
          "[describe]") {
    describe_all<by_reuse>({false, plenty});
}
TEST_CASE("deadlocks without credit name the credit", "[describe]") {
    CHECK(describe_all<by_get>({true, 0}).short_of_credit > 0);
    CHECK(describe_all<by_pieces>({false, 0}).short_of_credit > 0);
}

}  // namespace test_protocol_described_deadlocks
