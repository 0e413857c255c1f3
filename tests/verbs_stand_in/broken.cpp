#include "support/verbs_stand_in/pair.hpp"

#include "support/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace test_verbs_stand_in_broken {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace stand_in = verbs_stand_in;

// A queue pair that enters its error state by itself: the device flushes what is posted to it, and no event reports that.

TEST_CASE("a link whose queue pair broke unreported goes down by the first message that is flushed") {
    stand_in::world w(stand_in::by_tcp());
    stand_in::end a;
    stand_in::end b;
    w.link(a, b);
    stand_in::fail(*a.link->queue_pair(), stand_in::report::none);
    w.turns(10);
    CHECK(a.sink.downs == 0);
    recording_completion none;
    REQUIRE(a.link->post(header_of(1), {}, none) == post_result::done);
    w.turns(100);
    CHECK(a.sink.downs == 1);
    CHECK(a.sink.reason == errc::peer_lost);
    w.until([&] { return b.sink.downs == 1; });
}

TEST_CASE("a link whose queue pair broke unreported goes down though nothing is sent over it") {
    verbs_options o = stand_in::by_tcp();
    o.keepalive = 10ms;
    verbs_options silent = o;
    silent.keepalive = 0ms;
    stand_in::world w(o, silent);
    stand_in::end a;
    stand_in::end b;
    w.link(a, b);
    stand_in::fail(*a.link->queue_pair(), stand_in::report::none);
    const std::uint64_t before = a.link->counts().work_requests;
    w.until([&] { return a.sink.downs == 1 || a.link->counts().work_requests > before + 10; });
    CHECK(a.sink.downs == 1);
    CHECK(a.sink.reason == errc::peer_lost);
}

TEST_CASE("a link whose messages are flushed goes down for the error that comes after them") {
    stand_in::world w(stand_in::by_tcp());
    stand_in::end a;
    stand_in::end b;
    w.link(a, b);
    stand_in::fail(*a.link->queue_pair(), stand_in::report::none);
    recording_completion none;
    REQUIRE(a.link->post(header_of(1), {}, none) == post_result::done);
    stand_in::fail_receive(*a.link->queue_pair(), IBV_WC_LOC_LEN_ERR);
    w.until([&] { return a.sink.downs == 1; });
    CHECK(a.sink.reason == errc::protocol_violation);
}

TEST_CASE("a get that is flushed on a queue pair that broke unreported ends with its link") {
    stand_in::world w(stand_in::by_tcp());
    std::vector<std::byte> memory(8);
    std::vector<std::byte> into(8);
    const region open = w.server.register_memory(memory, access_rights::all);
    stand_in::end a;
    stand_in::end b;
    w.link(a, b);
    stand_in::fail(*a.link->queue_pair(), stand_in::report::none);
    recording_completion got;
    REQUIRE(a.link->get(open.remote(), into, got) == post_result::posted);
    w.turns(100);
    CHECK(got.outcome == errc::peer_lost);
    CHECK(a.sink.downs == 1);
    CHECK(a.sink.reason == errc::peer_lost);
}

}  // namespace test_verbs_stand_in_broken
