#include <rdmacoro/transport/ofi/counters.hpp>

#include "ofi/pair.hpp"
#include "support/counting_new.hpp"

// The providers' own counters against the toolkit's.

namespace test_transport_ofi_counters {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

ofi_options counted(const std::string& provider) {
    ofi_options o = ofi_here(provider);
    o.counters = true;
    return o;
}

ofi_provider_counts told(ofi_any_domain& by) {
    const std::optional<ofi_provider_counts> now = by.provider_counts();
    REQUIRE(now.has_value());
    return *now;
}

/// Until the provider has ended all that the toolkit has handed it.
void until_told(ofi_world& w, ofi_any_domain& by) {
    w.until([&] {
        const ofi_provider_counts now = told(by);
        return now.sent + now.gets + now.puts + now.errors >= by.counts().posts;
    });
}

constexpr ofi_profile uncounted = [] {
    ofi_profile p = provider::tcp;
    p.counters = false;
    return p;
}();

}  // namespace

TEST_CASE("a provider's counters are the toolkit's counts") {
    const std::string provider =
        GENERATE(as<std::string>{}, "tcp", "shm", "gni", "cxi", "efa", "sockets", "udp");
    CAPTURE(provider);
    ofi_world w(counted(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    constexpr std::uint64_t messages = 40;
    const auto longest = pattern(a.link->capabilities().max_message);
    for (std::uint64_t n = 0; n < messages; ++n) {
        post_for_sure(w, a, n, std::span(longest).first(n % 2 == 0 ? 8 : longest.size()));
        w.until([&] { return b.sink.count == n + 1; });
    }
    auto there = pattern(1 << 16, 1);
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    recording_completion over;
    constexpr unsigned gets = 3;
    constexpr unsigned puts = 2;
    for (unsigned n = 0; n < gets + puts; ++n) {
        const post_result posted =
            n < gets ? a.link->get(open.remote(), here, over) : a.link->put(here, open.remote(), over);
        REQUIRE(posted == post_result::posted);
        w.until([&] { return over.calls == n + 1; });
        REQUIRE_FALSE(over.outcome);
    }
    until_told(w, w.client);
    until_told(w, w.server);
    const bool served = !a.link->capabilities().ends_on_refusal;
    for (ofi_any_domain* one : {&w.client, &w.server}) {
        const ofi_provider_counts now = told(*one);
        const ofi_counts own = one->counts();
        // Where the owner of the memory moves the data, a get of the one side is a put of the other.
        const bool moves = served == (one == &w.server);
        CAPTURE(moves, own.messages, own.control_frames, own.posts);
        CHECK(now.sent == own.messages + own.control_frames);
        CHECK(now.received == own.received + own.strangers);
        CHECK(now.gets == (!moves ? 0 : served ? puts : gets));
        CHECK(now.puts == (!moves ? 0 : served ? gets : puts));
        CHECK(now.errors == 0);
    }
    CHECK(told(w.client).sent >= messages);
}

TEST_CASE("counters go on when the endpoint is given up for another") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    if (!counts_allocations && provider == "shm")
        SKIP_TEST("under AddressSanitizer libfabric's shm crashes at times, sending to an endpoint that was "
                  "given up");
    CAPTURE(provider);
    ofi_world w(counted(provider));
    ofi_provider_counts before;
    {
        ofi_end a;
        ofi_end b;
        w.link(a, b);
        for (std::uint64_t n = 0; n < 10; ++n) post_for_sure(w, a, n, pattern(8));
        w.until([&] { return b.sink.count == 10; });
        until_told(w, w.client);
        before = told(w.client);
        std::vector<std::byte> there(std::size_t{8} << 20);
        std::vector<std::byte> here(there.size());
        const region open = w.server.register_memory(there, access_rights::all);
        recording_completion got;
        REQUIRE(a.link->get(open.remote(), here, got) == post_result::posted);
        CHECK_FALSE(a.link->revoke(got));  // the other side stands still meanwhile
        CHECK(w.client.counts().reopened == 1);
    }
    const ofi_provider_counts between = told(w.client);
    CHECK(between.sent >= before.sent);
    CHECK(between.received >= before.received);
    w.until([&] { return w.client.connections() == 0; });
    const ofi_counts own_before = w.client.counts();
    const ofi_provider_counts told_before = told(w.client);
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    for (std::uint64_t n = 0; n < 10; ++n) post_for_sure(w, a, n, pattern(8));
    w.until([&] { return b.sink.count == 10; });
    w.until(
        [&] { return told(w.client).sent - told_before.sent == w.client.counts().posts - own_before.posts; });
    CHECK(told(w.client).sent >= before.sent + 10);
}

TEST_CASE("messages that the provider matches are counted with the others") {
    ofi_world w(counted("tcp"));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    static_cast<void>(a.link->matching());
    static_cast<void>(b.link->matching());
    const auto data = pattern(100);
    recording_completion none;
    for (std::uint64_t tag = 0; tag < 20; ++tag) {
        w.until([&] {
            return a.link->post_tagged(tag, 0, const_buffers(std::span<const std::byte>(data)), none) ==
                   post_result::done;
        });
    }
    until_told(w, w.client);
    const ofi_counts own = w.client.counts();
    CHECK(told(w.client).sent == own.messages + own.control_frames);
    CHECK(own.messages >= 20);
}

TEST_CASE("nothing is counted unless options ask for it, and a provider that can't count is refused by the "
          "field's name") {
    ofi_world w(ofi_here("tcp"));
    CHECK_FALSE(w.client.provider_counts().has_value());
    scheduler on;
    try {
        ofi_domain<uncounted> domain(on, counted("tcp"));
        FAIL("opened");
    } catch (const error& why) {
        const std::string text = why.what();
        CAPTURE(text);
        CHECK(why.code() == errc::unsupported);
        CHECK(text.find("tcp;ofi_rxm: counters: options ask for them") != std::string::npos);
    }
    ofi_domain<uncounted> without(on, ofi_here("tcp"));
    CHECK_FALSE(without.provider_counts().has_value());
}

}  // namespace test_transport_ofi_counters
