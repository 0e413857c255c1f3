#include <rdmacoro/transport/tcp/domain.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <algorithm>
#include <chrono>
#include <deque>

namespace test_transport_tcp_at_rest {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

tcp_options any_rung() {
    tcp_options options;
    options.features = GENERATE(tcp_feature::all, tcp_feature::all - tcp_feature::multishot_receive,
                                tcp_feature::all - tcp_feature::deferred_task_work, tcp_feature::none);
    return options;
}

/// There and back, so often that both links are hot.
void converse(tcp_pair& p, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
        const auto at_b = p.b.sink.count;
        REQUIRE(p.a.link->post_copied(header_of(i), pattern(8)) == post_result::done);
        p.until([&] { return p.b.sink.count == at_b + 1; });
        const auto at_a = p.a.sink.count;
        REQUIRE(p.b.link->post_copied(header_of(i), pattern(8)) == post_result::done);
        p.until([&] { return p.a.sink.count == at_a + 1; });
    }
}

std::uint64_t calls(const tcp_world& world) {
    return world.client.system_calls() + world.server.system_calls();
}

}  // namespace

TEST_CASE("a link that has been quiet for a while costs a turn no system call, and still receives") {
    tcp_pair p(any_rung());
    for (unsigned round = 0; round < 3; ++round) {
        converse(p, 20);
        p.turns(2 * detail::tcp_engine::cold_after);
        const std::uint64_t before = calls(p);
        p.turns(10'000);
        CHECK(calls(p) == before);
    }
}

TEST_CASE("a link that was hot and has been quiet for a while holds no chunk") {
    tcp_pair p(any_rung());
    converse(p, 20);
    CHECK(p.client.chunks() + p.server.chunks() != 0);  // while it is hot
    p.turns(2 * detail::tcp_engine::cold_after);
    CHECK(p.client.chunks() == 0);
    CHECK(p.server.chunks() == 0);
}

TEST_CASE("a link that receives often is tried in each turn") {
    tcp_pair p;
    converse(p, 20);
    const std::uint64_t before = p.client.system_calls();
    p.turns(32);
    CHECK(p.client.system_calls() >= before + 32);
}

TEST_CASE("a thousand messages a second cost a few system calls each, not one for each turn") {
    tcp_pair p;
    converse(p, 5);
    p.turns(2 * detail::tcp_engine::cold_after);
    const std::uint64_t before = calls(p);
    constexpr unsigned messages = 100;
    std::uint64_t turns = 0;
    for (unsigned i = 0; i < messages; ++i) {
        const auto at_b = p.b.sink.count;
        REQUIRE(p.a.link->post_copied(header_of(i), pattern(8)) == post_result::done);
        const time_point next = p.on.now() + std::chrono::milliseconds(1);
        for (; p.b.sink.count == at_b || p.on.now() < next; ++turns) p.turns(1);
    }
    CHECK(turns > 20 * messages);  // else nothing was there to be spared
    CHECK(calls(p) - before <= 10 * messages);
}

TEST_CASE("a hot link that nothing is taken from gives its place to others, and goes on when it can") {
    tcp_options one;
    one.most_polled = 1;
    tcp_pair p(one);
    converse(p, 20);
    p.b.sink.refuse_all = true;
    REQUIRE(p.a.link->post_copied(header_of(1), pattern(8)) == post_result::done);
    p.until([&] { return p.b.sink.offers > 0; });
    p.turns(2 * detail::tcp_engine::cold_after);
    const auto before = p.b.sink.count;
    p.b.sink.refuse_all = false;
    REQUIRE(p.a.link->post_copied(header_of(2), pattern(8)) == post_result::done);
    p.until([&] { return p.b.sink.count == before + 2; });
}

TEST_CASE(
    "an idle link costs no system call while links that nothing is taken from hold the domain's buffers") {
    tcp_world w;
    tcp_listener listener = w.listen();
    struct refused {
        raw_peer peer;
        tcp_end end;
        std::size_t sent = 0;
    };
    std::deque<refused> refusing;
    detail::tcp_greeting greeting;
    greeting.nonce = 4711;
    for (unsigned n = 0; n < 30; ++n) {
        refused& one = refusing.emplace_back(refused{raw_peer::to(listener.address()), {}});
        one.peer.send(w, greeting.store());
        one.end.link = std::make_unique<recorded_link>(w.on.run(listener.accept()), one.end.sink);
        static_cast<void>(one.peer.receive(w, detail::tcp_greeting::wire_bytes));
    }
    // After a long message a link takes less than a buffer at a time out of these.
    const auto first = message_frame(0, pattern(300'000));
    for (refused& one : refusing) {
        one.peer.send(w, first);
        w.until([&] { return one.end.sink.count == 1; });
        one.end.sink.refuse_all = true;
    }
    w.turns(2 * detail::tcp_engine::cold_after);  // all wait in the kernel
    std::vector<std::byte> bytes;
    constexpr std::uint64_t messages = 3;
    for (std::uint64_t n = 1; n < messages; ++n) {
        const auto one = message_frame(n, pattern(300'000));
        bytes.insert(bytes.end(), one.begin(), one.end());
    }
    for (refused& one : refusing) {
        while (one.sent != bytes.size() && one.peer.try_send(bytes, one.sent)) {}
    }
    w.until([&] {
        return std::all_of(refusing.begin(), refusing.end(),
                           [](const refused& one) { return one.end.sink.offers != 0; });
    });

    auto made = w.connect(listener);
    tcp_end from;
    tcp_end idle;
    from.link = std::make_unique<recorded_link>(std::move(made.client), from.sink);
    idle.link = std::make_unique<recorded_link>(std::move(made.server), idle.sink);
    for (std::uint64_t n = 1; n < 4; ++n) {
        REQUIRE(from.link->post_copied(header_of(n), pattern(8)) == post_result::done);
        w.until([&] { return idle.sink.count == n; });
        w.turns(2 * detail::tcp_engine::cold_after);
        const std::uint64_t before = w.server.system_calls();
        w.turns(10'000);
        CHECK(w.server.system_calls() == before);
    }

    for (refused& one : refusing) {
        one.end.sink.refuse_all = false;
        one.peer.send(w, std::span(bytes).subspan(one.sent));
        w.until([&] { return one.end.sink.count == messages; });
        CHECK(one.end.sink.messages.back().payload == pattern(300'000));
    }
}

}  // namespace test_transport_tcp_at_rest
