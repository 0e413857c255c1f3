#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>

#include <rdmacoro/protocol/cooperative_rendezvous.hpp>
#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/rendezvous.hpp"

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace test_protocol_rendezvous_random {

using namespace rdmacoro;
using namespace rdmacoro::test;

// Long programs of sends, receives and cancels over a link that changes its ways all the time.

namespace {

class dice {
public:
    explicit dice(unsigned seed) : source_(seed) {}
    /// 0 to `below` - 1.
    std::size_t operator()(std::size_t below) { return source_() % below; }
    bool one_in(std::size_t n) { return (*this)(n) == 0; }

private:
    std::mt19937 source_;
};

void shake(loopback_lane& lane, dice& roll) {
    constexpr std::size_t any = loopback_lane::unlimited;
    lane.held = roll.one_in(4);
    lane.room = roll.one_in(3) ? roll(3) : any;
    lane.one_sided_room = roll.one_in(3) ? roll(3) : any;
    lane.one_sided_steps = roll.one_in(3) ? roll(4) : any;
    lane.defers_one_sided = !roll.one_in(3);
    lane.helps = !roll.one_in(3);
    lane.exposures = roll.one_in(8) ? roll(20) : any;
}
void calm(loopback_lane& lane) {
    lane.held = false;
    lane.room = lane.one_sided_room = lane.one_sided_steps = lane.exposures = loopback_lane::unlimited;
    lane.helps = true;
}

std::size_t bytes_of_tag(tag_type tag) { return tag % 7 == 0 ? 0 : (tag * 7919) % 3000; }

/// The outcomes at the ends of all messages.
struct outcomes {
    std::size_t sent, sends_canceled, sends_cut, received, receives_canceled, given_up_by_peer, receives_cut;
};

/// The sending end of message `tag`, with memory of its own that goes when it has ended.
template <class Endpoint>
task<> sender(Endpoint& from, tag_type tag, bool synchronous, local_stop_token stop, outcomes& sum) {
    const auto data = pattern(bytes_of_tag(tag) + 4, static_cast<unsigned>(tag));
    const auto part = std::span(data).subspan(tag % 4, bytes_of_tag(tag));
    std::error_code outcome;
    if (synchronous) {
        const auto ended = co_await as_result(with_stop(from.ssend(part, tag), stop));
        if (!ended) outcome = ended.error();
    } else {
        const auto ended = co_await as_result(with_stop(from.send(part, tag), stop));
        if (!ended) outcome = ended.error();
    }
    if (outcome) CHECK((outcome == errc::canceled || outcome == errc::closed || outcome == errc::peer_lost));
    ++(!outcome ? sum.sent : outcome == errc::canceled ? sum.sends_canceled : sum.sends_cut);
}

template <class Endpoint>
task<> receiver(Endpoint& to, tag_type tag, std::size_t pieces, local_stop_token stop, outcomes& sum) {
    const std::size_t bytes = bytes_of_tag(tag);
    scattered into(pieces, bytes / pieces + 1, 4);
    const auto ended = co_await as_result(with_stop(to.recv(into.into(), tag), stop));
    CHECK(into.gaps_untouched());
    ++(ended                                  ? sum.received
       : ended.error() == errc::canceled      ? sum.receives_canceled
       : ended.error() == errc::peer_canceled ? sum.given_up_by_peer
                                              : sum.receives_cut);
    if (ended) {
        const auto data = pattern(bytes + 4, static_cast<unsigned>(tag));
        const auto got = into.gathered(bytes);
        CHECK(ended->bytes == bytes);
        CHECK(std::equal(got.begin(), got.end(), data.begin() + static_cast<std::ptrdiff_t>(tag % 4)));
    } else {
        CHECK((ended.error() == errc::canceled || ended.error() == errc::peer_canceled ||
               ended.error() == errc::no_resources || ended.error() == errc::closed ||
               ended.error() == errc::peer_lost));
    }
}

/// One end of one message.
struct part_of_program {
    template <class Endpoint>
    part_of_program(Endpoint& at, tag_type tag, bool sends, dice& roll, outcomes& sum)
        : stop(),
          work(sends ? sender(at, tag, roll.one_in(2), stop.get_token(), sum)
                     : receiver(at, tag, roll.one_in(2) ? 1 : 1 + roll(50), stop.get_token(), sum)) {}

    local_stop_source stop;
    started<task<>> work;
};

template <class List>
task<> random_program(scheduler& on, unsigned seed, bool breaks, outcomes& sum) {
    dice roll(seed);
    endpoint_pair<List> pair(on);
    co_await pair.open();
    pair.wire->offered.revokes_at_once = !roll.one_in(3);
    pair.wire->offered.get_alignment = roll.one_in(3) ? 4 : 1;
    std::deque<part_of_program> parts;
    tag_type tag = 0;
    for (int step = 0; step < 150; ++step) {
        if (roll.one_in(2)) {
            ++tag;
            const bool there = roll.one_in(2);
            auto& from = there ? pair.a : pair.b;
            auto& to = there ? pair.b : pair.a;
            const bool first = roll.one_in(2);
            parts.emplace_back(first ? from : to, tag, first, roll, sum);
            co_await turns(static_cast<int>(roll(3)));
            parts.emplace_back(first ? to : from, tag, !first, roll, sum);
        }
        if (roll.one_in(3)) {
            shake(pair.from_a(), roll);
            shake(pair.from_b(), roll);
        }
        if (!parts.empty() && roll.one_in(4))
            parts[parts.size() - 1 - roll(std::min<std::size_t>(parts.size(), 12))].stop.request_stop();
        co_await turns(static_cast<int>(roll(4)));
    }
    if (breaks) {
        (roll.one_in(2) ? pair.a : pair.b).abort();
        if (roll.one_in(2)) (roll.one_in(2) ? pair.a : pair.b).abort();
        calm(pair.from_a());
        calm(pair.from_b());
        for (auto& p : parts) co_await p.work;
        // Messages whose receive was canceled: whole, or not finished by a peer that was lost.
        for (auto* end : {&pair.a, &pair.b}) {
            while (end->connection().mailbox().matching().unexpected() != 0)
                static_cast<void>(co_await as_result(end->recv_lent()));
        }
        CHECK(pair.at_rest());
        co_return;
    }
    calm(pair.from_a());
    calm(pair.from_b());
    co_await turns(300);
    for (auto& p : parts) {
        p.stop.request_stop();  // of what waits for an end that was canceled
    }
    for (auto& p : parts) co_await p.work;
    co_await turns(50);
    CHECK(pair.at_rest());
    CHECK(pair.a.is_open());
    for (int n = 0; n < 30; ++n) {  // whatever stream it gets
        ++tag;
        part_of_program receives(pair.b, tag, false, roll, sum);
        part_of_program sends(pair.a, tag, true, roll, sum);
        co_await receives.work;
        co_await sends.work;
    }
    CHECK(pair.b.counts().messages_received >= 30);
    co_await turns(5);
    CHECK(pair.at_rest());
}

}  // namespace

TEMPLATE_TEST_CASE("long programs with cancels end well over a link that keeps changing its ways", "",
                   protocols<get_rendezvous<>>, protocols<put_rendezvous<>>,
                   protocols<cooperative_rendezvous<>>) {
    outcomes sum{};
    for (unsigned seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        virtual_time world;
        world.run(random_program<TestType>(world.on, seed, false, sum));
    }
    // Messages of 34 and 64 ends a program: each of these in most of them.
    CHECK(sum.sent > 3000);
    CHECK(sum.received > 3000);
    CHECK(sum.sends_canceled > 100);
    CHECK(sum.receives_canceled > 100);
    CHECK(sum.given_up_by_peer > 20);
    CHECK(sum.sends_cut == 0);
}

TEMPLATE_TEST_CASE("long programs end when the link breaks, whatever they were doing", "",
                   protocols<get_rendezvous<>>, protocols<put_rendezvous<>>,
                   protocols<cooperative_rendezvous<>>) {
    outcomes sum{};
    for (unsigned seed = 1001; seed <= 1100; ++seed) {
        CAPTURE(seed);
        virtual_time world;
        world.run(random_program<TestType>(world.on, seed, true, sum));
    }
    CHECK(sum.sends_cut > 50);
    CHECK(sum.receives_cut > 50);
    CHECK(sum.sent > 1000);
    CHECK(sum.received > 1000);
}

}  // namespace test_protocol_rendezvous_random
