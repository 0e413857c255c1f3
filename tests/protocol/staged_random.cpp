// Long programs of staged messages over a link that keeps changing its ways.

#include <rdmacoro/protocol/staged_get.hpp>

#include "support/catch.hpp"
#include "support/staged.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>

namespace test_protocol_staged_random {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace rdmacoro::test::staged;

namespace {

class dice {
public:
    explicit dice(unsigned seed) : source_(seed) {}
    std::size_t operator()(std::size_t below) { return source_() % below; }
    bool one_in(std::size_t n) { return (*this)(n) == 0; }

private:
    std::mt19937 source_;
};

std::size_t bytes_of_tag(tag_type tag) { return tag % 7 == 0 ? 0 : (tag * 7919) % 3000; }

/// How the receives of all programs have ended.
struct endings {
    unsigned received = 0;
    unsigned canceled = 0;
    unsigned closed = 0;
};

task<> sends(pair_type::endpoint_type& from, tag_type tag) {
    const auto data = pattern(bytes_of_tag(tag), static_cast<unsigned>(tag));
    co_await from.send(data, tag);
}
task<> receives(pair_type::endpoint_type& to, tag_type tag, std::size_t pieces, local_stop_token stop,
                const tag_type& sent, endings& all, unsigned& got) {
    const std::size_t bytes = bytes_of_tag(tag);
    scattered into(pieces, bytes / pieces + 1, 4);
    const auto ended = co_await as_result(with_stop(to.recv(into.into(), tag), stop));
    CHECK(into.gaps_untouched());
    if (ended) {
        CHECK(into.gathered(bytes) == pattern(bytes, static_cast<unsigned>(tag)));
        ++got;
        ++all.received;
    } else if (ended.error() == errc::canceled) {
        ++all.canceled;
    } else {
        CHECK((ended.error() == errc::closed && tag > sent));
        ++all.closed;
    }
}

task<> random_program(scheduler& on, unsigned seed, endings& all) {
    constexpr std::size_t any = loopback_lane::unlimited;
    dice roll(seed);
    pair_type pair(on);
    co_await pair.open();
    pair.wire->offered.revokes_at_once = !roll.one_in(3);
    pair.wire->offered.get_alignment = roll.one_in(3) ? 4 : 1;
    std::deque<started<task<>>> sending;
    std::deque<started<task<>>> receiving;
    std::deque<local_stop_source> stops;
    unsigned got = 0;
    tag_type sent = 0;
    tag_type wanted = 0;
    for (int step = 0; step < 200; ++step) {
        if (roll.one_in(2)) sending.emplace_back(sends(pair.a, ++sent));
        if (roll.one_in(2)) {
            stops.emplace_back();
            receiving.emplace_back(receives(pair.b, ++wanted, roll.one_in(2) ? 1 : 1 + roll(50),
                                            stops.back().get_token(), sent, all, got));
        }
        if (roll.one_in(3)) {
            for (loopback_lane* lane : {&pair.from_a(), &pair.from_b()}) {
                lane->held = roll.one_in(4);
                lane->room = roll.one_in(3) ? roll(3) : any;
                lane->one_sided_room = roll.one_in(3) ? roll(3) : any;
                lane->one_sided_steps = roll.one_in(3) ? roll(4) : any;
                lane->defers_one_sided = !roll.one_in(3);
            }
        }
        if (!stops.empty() && roll.one_in(4))
            stops[stops.size() - 1 - roll(std::min<std::size_t>(stops.size(), 12))].request_stop();
        co_await turns(static_cast<int>(roll(4)));
    }
    auto closing = start(pair.a.close());  // wherever everything is
    co_await turns(static_cast<int>(roll(20)));
    for (loopback_lane* lane : {&pair.from_a(), &pair.from_b()}) {
        lane->held = false;
        lane->room = lane->one_sided_room = lane->one_sided_steps = any;
    }
    while (wanted < sent) {  // those that are left
        stops.emplace_back();
        receiving.emplace_back(receives(pair.b, ++wanted, 1, stops.back().get_token(), sent, all, got));
        co_await turns(static_cast<int>(roll(3)));
    }
    for (auto& s : sending) co_await s;
    for (std::size_t n = static_cast<std::size_t>(sent); n < receiving.size(); ++n) stops[n].request_stop();
    co_await closing;
    std::vector<std::byte> into(3000);
    while (pair.b.connection().mailbox().matching().unexpected() != 0)
        co_await pair.b.recv(into);  // canceled before
    for (auto& r : receiving) {
        if (!r.done()) stops[static_cast<std::size_t>(&r - &receiving.front())].request_stop();
        co_await r;
    }
    CHECK(pair.a.counts().messages_sent == sent);
    CHECK(got != 0);
    CHECK(pair.at_rest());
}

}  // namespace

TEST_CASE("long programs of staged messages with cancels lose nothing, and close wherever they are") {
    endings all;
    for (unsigned seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        virtual_time world;
        world.run(random_program(world.on, seed, all));
    }
    CHECK(all.received > 10'000);
    CHECK(all.canceled > 1000);
    CHECK(all.closed > 50);
}

}  // namespace test_protocol_staged_random
