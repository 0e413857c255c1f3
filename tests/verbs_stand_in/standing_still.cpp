#include "support/verbs_stand_in/pair.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace test_verbs_stand_in_standing_still {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace stand_in = verbs_stand_in;

namespace {

/// Links, each with a get under way that the device does not carry out.
template <std::size_t Count>
struct getting_links {
    getting_links(stand_in::world& w, stand_in::stalled how) : memory(8), into(8) {
        open = w.server.register_memory(memory, access_rights::all);
        for (std::size_t n = 0; n < Count; ++n) {
            w.link(ends[n], others[n]);
            stand_in::stall(*ends[n].link->queue_pair(), how);
            REQUIRE(ends[n].link->get(open.remote(), into, got[n]) == post_result::posted);
        }
    }
    [[nodiscard]] std::size_t down() const {
        return static_cast<std::size_t>(
            std::count_if(ends.begin(), ends.end(), [](const auto& one) { return one.sink.downs == 1; }));
    }

    std::vector<std::byte> memory;
    std::vector<std::byte> into;
    region open;
    std::array<recording_completion, Count> got;
    std::array<stand_in::end, Count> ends;
    std::array<stand_in::end, Count> others;
};

}  // namespace

TEST_CASE("links with gets under way on a device that is taken away end without a wait for it") {
    stand_in::world w(stand_in::by_tcp());
    getting_links<10> all(w, stand_in::stalled::flushes_nothing);
    const stand_in::without_device gone;
    const std::uint64_t before = w.client.counts().polls;
    std::uint64_t turns = 0;
    for (; all.down() != all.ends.size() && turns < 10'000; ++turns) w.turns(1);
    CHECK(all.down() == all.ends.size());
    // To wait is to poll.
    CHECK(w.client.counts().polls - before <= 4 * (turns + all.ends.size()));
    for (const recording_completion& one : all.got) {
        CHECK(one.calls == 1);
        CHECK(one.outcome == errc::peer_lost);
    }
}

TEST_CASE("a get that is canceled on a device that was taken away is not waited for") {
    stand_in::world w(stand_in::by_tcp());
    getting_links<1> one(w, stand_in::stalled::flushes_nothing);
    // The link stays until its user takes this message.
    one.ends[0].sink.refuse_all = true;
    post_for_sure(w, one.others[0], 1);
    w.until([&] { return one.ends[0].sink.offers != 0; });
    const stand_in::without_device gone;
    recording_completion none;
    w.until([&] { return one.ends[0].link->post(header_of(1), {}, none) == post_result::failed; });
    const std::uint64_t before = w.client.counts().polls;
    static_cast<void>(one.ends[0].link->revoke(one.got[0]));
    CHECK(w.client.counts().polls - before <= 4);
    CHECK(one.ends[0].sink.downs == 0);
    one.ends[0].sink.refuse_all = false;
    w.until([&] { return one.ends[0].sink.downs == 1; });
    CHECK(one.ends[0].sink.messages.size() == 1);
    CHECK(one.got[0].calls == 0);
}

TEST_CASE("links that are closed together on a device that flushes nothing wait once for it") {
    stand_in::world w(stand_in::by_tcp());
    getting_links<40> all(w, stand_in::stalled::flushes_nothing);
    const auto begun = std::chrono::steady_clock::now();
    for (stand_in::end& one : all.ends) one.link->close(make_error_code(errc::closed));
    const auto took = std::chrono::steady_clock::now() - begun;
    CHECK(took >= 250ms);
    CHECK(took < 5s);  // 250 ms for each would be ten
    CHECK(all.down() == all.ends.size());
    for (const recording_completion& one : all.got) CHECK(one.outcome == errc::closed);
    CHECK(w.client.counts().late_closes == all.ends.size());
}

TEST_CASE(
    "links that are closed one after the other on a device that flushes nothing may wait for it again") {
    stand_in::world w(stand_in::by_tcp());
    getting_links<2> both(w, stand_in::stalled::flushes_nothing);
    for (stand_in::end& one : both.ends) {
        const auto begun = std::chrono::steady_clock::now();
        one.link->close(make_error_code(errc::closed));
        CHECK(std::chrono::steady_clock::now() - begun >= 250ms);
        w.turns(1);
    }
}

TEST_CASE(
    "of a link that ends as a get is canceled on a device that stands still that get alone is canceled") {
    const stand_in::stalled how = GENERATE(stand_in::stalled::flushes, stand_in::stalled::flushes_nothing);
    stand_in::world w(stand_in::by_tcp());
    getting_links<1> one(w, how);
    recording_completion other;
    REQUIRE(one.ends[0].link->get(one.open.remote(), one.into, other) == post_result::posted);
    static_cast<void>(one.ends[0].link->revoke(one.got[0]));
    w.until([&] { return one.ends[0].sink.downs == 1; });
    CHECK(one.ends[0].sink.reason == errc::peer_lost);
    CHECK(other.outcome == errc::peer_lost);
    CHECK(one.got[0].calls == 0);
}

TEST_CASE("messages of a link whose queue pair had to be destroyed take no slots from other links while they "
          "wait") {
    stand_in::world w(stand_in::by_tcp());
    getting_links<1> one(w, stand_in::stalled::flushes_nothing);
    stand_in::end& a = one.ends[0];
    stand_in::end& b = one.others[0];
    recording_completion none;
    const auto fill = [&](stand_in::end& from) {
        std::uint64_t posted = 0;
        while (from.link->post(header_of(posted), {}, none) == post_result::done) ++posted;
        return posted;
    };
    a.sink.refuse_all = true;
    const std::uint64_t waiting = fill(b);
    REQUIRE(waiting >= 32);
    w.turns(10);
    REQUIRE(a.sink.offers != 0);
    stand_in::fail(*a.link->queue_pair(), stand_in::report::event);
    w.until([&] { return a.link->post(header_of(1), {}, none) == post_result::failed; });
    w.turns(100);  // the end of its last receive is reported
    static_cast<void>(a.link->revoke(one.got[0]));
    CHECK(a.link->queue_pair() == nullptr);

    stand_in::end c;
    stand_in::end d;
    w.link(c, d);
    const std::size_t before = stand_in::times_not_ready();
    const std::uint64_t sent = fill(d);
    CHECK(stand_in::times_not_ready() == before);
    w.until([&] { return c.sink.count == sent; });
    CHECK(a.sink.downs == 0);
    a.sink.refuse_all = false;
    w.until([&] { return a.sink.downs == 1; });
    CHECK(a.sink.count == waiting);
    for (stand_in::end* each : {&a, &b, &c, &d}) each->link.reset();
    w.until_all_gone();
    CHECK(w.client.counts().lost_receives == 0);
}

}  // namespace test_verbs_stand_in_standing_still
