#include <rdmacoro/transport/ofi/engine.hpp>

#include "ofi/pair.hpp"

#include "support/counting_new.hpp"

namespace test_transport_ofi_engine {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("a short message is one call of the provider, injected, and its credit travels with the answer") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    constexpr std::uint64_t rounds = 300;
    const auto data = pattern(8);
    const ofi_counts before = a.link->counts();
    const ofi_counts before_of_b = b.link->counts();
    for (std::uint64_t n = 0; n < rounds; ++n) {
        post_for_sure(w, a, n, data);
        w.until([&] { return b.sink.count == n + 1; });
        post_for_sure(w, b, n, data);
        w.until([&] { return a.sink.count == n + 1; });
    }
    for (const ofi_counts& d : {more(a.link->counts(), before), more(b.link->counts(), before_of_b)}) {
        CHECK(d.messages == rounds);
        CHECK(d.control_frames == 0);
        CHECK(d.posts == rounds);
        CHECK(d.injected == rounds);
        CHECK(d.staged == 0);
    }
    CHECK(b.sink.messages.back().payload == data);
}

TEST_CASE("a message too long to be injected is copied once, into a slot, and is one call") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    const capabilities& link = a.link->capabilities();
    const ofi_counts before = a.link->counts();
    constexpr std::uint64_t rounds = 200;
    for (std::uint64_t n = 0; n < rounds; ++n) {
        const auto data =
            pattern(n % 2 == 0 ? link.max_message : link.inline_bytes + 1, static_cast<unsigned>(n));
        post_for_sure(w, a, n, data);
        w.until([&] { return b.sink.count == n + 1; });
        CHECK(b.sink.messages.back().payload == data);
    }
    const ofi_counts d = more(a.link->counts(), before);
    CHECK(d.messages == rounds);
    CHECK(d.staged == rounds);
    CHECK(d.injected == 0);
    CHECK(d.posts == rounds + d.control_frames);
}

TEST_CASE("a get or put is one call of the provider, on the side that moves the data, and no copy") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    const bool served = !a.link->capabilities().ends_on_refusal;
    auto there = pattern(100000, 1);
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    const ofi_counts before = a.link->counts();
    const ofi_counts before_of_b = b.link->counts();
    recording_completion got;
    REQUIRE(a.link->get(open.remote(), here, got) == post_result::posted);
    w.until([&] { return got.calls != 0; });
    CHECK_FALSE(got.outcome);
    CHECK(here == there);
    here = pattern(here.size(), 2);
    recording_completion put;
    REQUIRE(a.link->put(here, open.remote(), put) == post_result::posted);
    w.until([&] { return put.calls != 0; });
    CHECK_FALSE(put.outcome);
    CHECK(there == here);
    const ofi_counts d = more(a.link->counts(), before);
    const ofi_counts of_b = more(b.link->counts(), before_of_b);
    CHECK(d.gets == 1);
    CHECK(d.puts == 1);
    CHECK(d.staged + d.bounced == 0);
    // Where the owner serves: a request and an answer each, and the owner's call.
    CHECK(d.posts == 2);
    CHECK(d.control_frames == (served ? 2 : 0));
    CHECK(of_b.served == (served ? 2 : 0));
    CHECK(of_b.posts == (served ? 4 : 0));
}

TEST_CASE("messages, gets and puts allocate nothing once a link has moved some") {
    if (!counts_allocations) SKIP_TEST("a sanitizer allocates by itself");
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    a.sink.count_only = b.sink.count_only = true;
    w.link(a, b);
    std::vector<std::byte> there(50000);
    std::vector<std::byte> here(50000);
    const auto data = pattern(1000);
    const region open = w.server.register_memory(there, access_rights::all);
    unsigned refused = 0;  // the test's own macros allocate
    const auto rounds = [&](std::uint64_t count) {
        for (std::uint64_t n = 0; n < count; ++n) {
            const std::uint64_t before = b.sink.count;
            post_for_sure(w, a, n, data);
            w.until([&] { return b.sink.count == before + 1; });
            recording_completion over;
            refused += a.link->get(open.remote(), here, over) != post_result::posted;
            w.until([&] { return over.calls == 1; });
            refused += a.link->put(here, open.remote(), over) != post_result::posted;
            w.until([&] { return over.calls == 2; });
        }
    };
    rounds(20);
    const std::size_t before = allocations();
    rounds(100);
    const std::size_t after = allocations();
    CHECK(refused == 0);
    CHECK(after == before);
}

}  // namespace test_transport_ofi_engine
