#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"

namespace test_transport_verbs_rc_engine {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE(
    "a short message is one work request and one doorbell, without copy into a slot and without completion") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    constexpr std::uint64_t rounds = 320;
    const auto data = pattern(8);
    const verbs_counts before = a.link->counts();
    const verbs_counts before_of_b = b.link->counts();
    for (std::uint64_t n = 0; n < rounds; ++n) {
        post_for_sure(w, a, n, data);
        w.until([&] { return b.sink.count == n + 1; });
        post_for_sure(w, b, n, data);
        w.until([&] { return a.sink.count == n + 1; });
    }
    for (const verbs_counts& d : {more(a.link->counts(), before), more(b.link->counts(), before_of_b)}) {
        CHECK(d.messages == rounds);
        // Each message carries the credit for the one it answers.
        CHECK(d.control_frames == 0);
        CHECK(d.work_requests == rounds);
        CHECK(d.posts == rounds);
        CHECK(d.inlined == rounds);
        CHECK(d.staged == 0);
        CHECK(d.signalled == rounds / (way.options.send_depth / 4));
    }
    CHECK(b.sink.messages.back().payload == data);
}

TEST_CASE("messages posted in one turn share a doorbell, but for the first four") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    w.turns(10);
    const verbs_counts before = a.link->counts();
    recording_completion none;
    for (std::uint64_t n = 0; n < 11; ++n) REQUIRE(a.link->post(header_of(n), {}, none) == post_result::done);
    CHECK(more(a.link->counts(), before).posts == 4);
    w.until([&] { return b.sink.count == 11; });
    const verbs_counts d = more(a.link->counts(), before);
    CHECK(d.posts == 5);
    CHECK(d.work_requests == 11);
    for (std::uint64_t n = 0; n < 11; ++n) CHECK(b.sink.messages[n].number == n);
}

TEST_CASE("a message longer than what work requests carry is copied once, into a slot") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    const capabilities& link = a.link->capabilities();
    const verbs_counts before = a.link->counts();
    constexpr std::uint64_t rounds = 200;
    for (std::uint64_t n = 0; n < rounds; ++n) {
        const auto data =
            pattern(n % 2 == 0 ? link.max_message : link.inline_bytes + 1, static_cast<unsigned>(n));
        post_for_sure(w, a, n, data);
        w.until([&] { return b.sink.count == n + 1; });
        CHECK(b.sink.messages.back().payload == data);
    }
    const verbs_counts d = more(a.link->counts(), before);
    CHECK(d.messages == rounds);
    CHECK(d.staged == rounds);
    CHECK(d.inlined == 0);
    CHECK(d.work_requests == rounds + d.control_frames);
    CHECK(d.signalled <= rounds / 8 + 1);
}

TEST_CASE("a get or put of registered memory is one work request and one completion, and no copy") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    auto there = pattern(60000, 1);
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    const verbs_counts before = a.link->counts();
    recording_completion got;
    REQUIRE(a.link->get(open.remote(), here, got) == post_result::posted);
    CHECK(more(a.link->counts(), before).posts == 1);  // at once: the caller may compute before it polls
    w.until([&] { return got.calls != 0; });
    CHECK_FALSE(got.outcome);
    CHECK(here == there);
    verbs_counts d = more(a.link->counts(), before);
    CHECK(d.gets == 1);
    CHECK(d.work_requests == 1);
    CHECK(d.posts == 1);
    CHECK(d.signalled == 1);
    CHECK(d.staged + d.inlined == 0);

    here = pattern(here.size(), 2);
    recording_completion put;
    REQUIRE(a.link->put(here, open.remote(), put) == post_result::posted);
    w.until([&] { return put.calls != 0; });
    CHECK_FALSE(put.outcome);
    CHECK(there == here);
    d = more(a.link->counts(), before);
    CHECK(d.puts == 1);
    CHECK(d.staged + d.inlined == 0);
    // Over iWARP a frame follows, and the peer's answer to it is the proof that the data is there.
    CHECK(d.work_requests == 2 + d.control_frames);
    CHECK(d.control_frames <= 1);
}

}  // namespace test_transport_verbs_rc_engine
