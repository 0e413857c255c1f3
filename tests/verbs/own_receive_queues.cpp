#include "verbs/between.hpp"
#include "verbs/pair.hpp"

#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/pattern.hpp"

#include <array>
#include <cerrno>

namespace test_verbs_own_receive_queues {

using namespace rdmacoro;
using namespace rdmacoro::test;

// Devices without a shared receive queue: here sharing is switched off.

namespace {

verbs_options unshared(const verbs_way& way) {
    verbs_options o = way.options;
    o.share_receives = false;
    return o;
}

/// Messages both ways over a link of its own.
void talks(verbs_world& w) {
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    for (std::uint64_t n = 0; n < 100; ++n) {
        post_for_sure(w, a, n, pattern(n % 2 == 0 ? 3000 : 20));
        post_for_sure(w, b, n);
    }
    w.until([&] { return a.sink.count == 100 && b.sink.count >= 100; });
}

}  // namespace

TEST_CASE(
    "links with receive queues of their own carry messages both ways, as many as there are credits at once") {
    FOR_EACH_VERBS_DEVICE(way);
    for (const bool both : {true, false}) {
        CAPTURE(both);
        verbs_world w(unshared(way), both ? unshared(way) : way.options);
        CHECK_THAT(w.client.describe(), contains("a receive queue for each link"));
        std::array<verbs_end, 3> a;
        std::array<verbs_end, 3> b;
        for (std::size_t n = 0; n < a.size(); ++n) w.link(a[n], b[n]);
        constexpr std::uint64_t all = 400;
        std::array<std::uint64_t, 6> sent{};
        w.until([&] {
            bool over = true;
            for (std::size_t n = 0; n < a.size(); ++n) {
                for (verbs_end* end : {&a[n], &b[n]}) {
                    std::uint64_t& count = sent[2 * n + (end == &a[n] ? 0u : 1u)];
                    recording_completion none;
                    const auto data = pattern(count % 3 == 0 ? 3000 : 20);
                    while (count < all &&
                           end->link->post(header_of(count), std::span(data), none) == post_result::done &&
                           ++count % 3 != 0) {}
                }
                over = over && a[n].sink.count == all && b[n].sink.count == all;
            }
            return over;
        });
        for (std::size_t n = 0; n < a.size(); ++n) CHECK(a[n].sink.downs + b[n].sink.downs == 0);
    }
}

TEST_CASE("a receive queue of a link's own is given back with all of its slots, however the link ends") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options o = unshared(way);
    o.most_links = 4;
    verbs_world w(o);
    for (int n = 0; n < 24; ++n) {
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        for (std::uint64_t m = 0; m < 40; ++m) post_for_sure(w, a, m);
        if (n % 3 == 0) w.until([&] { return b.sink.count >= 40; });
        if (n % 2 == 0) {
            a.link.reset();
        } else {
            b.link.reset();
        }
        a.link.reset();
        b.link.reset();
        w.until_all_gone();
    }
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    const auto before = b.sink.count;
    for (std::uint64_t m = 0; m < 500; ++m) post_for_sure(w, a, m);
    w.until([&] { return b.sink.count == before + 500; });
}

TEST_CASE("a lent message of a link with a receive queue of its own stays readable when the link is gone") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(unshared(way));
    w.on.run([](verbs_world* both) -> task<> {
        auto listening = co_await listen<verbs_rc>(both->server, "*:0");
        auto accepting = start(listening.accept());
        endpoint<verbs_rc> a = co_await connect<verbs_rc>(both->client, listening.address());
        endpoint<verbs_rc> b = co_await accepting;
        const auto data = pattern(2000, std::uint64_t{3});
        co_await a.send(data, 1);
        message kept = co_await b.recv_lent();
        co_await a.close();
        b = {};
        CHECK(is_pattern(kept.bytes(), 3));
    }(&w));
}

TEST_CASE("a link with a receive queue of its own leaves when its receives are flushed, on a device that "
          "reports the end of none") {
    // siw does not flush what was posted after it ended the connection, as adapters do.
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    const between hooks;
    // Not one of Linux's devices in software. They report no last receive, and neither does an adapter of a queue that is not shared.
    between::device = [](ibv_device_attr& of) { of.vendor_id = of.vendor_part_id = 0x1234; };
    verbs_world w(unshared(way));
    constexpr int rounds = 6;
    for (int n = 0; n < rounds; ++n) {
        CAPTURE(n);
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        b.sink.refuse_all = n == 2;  // messages lie there unread
        for (std::uint64_t m = 0; m < 30; ++m) post_for_sure(w, a, m, pattern(n % 2 == 0 ? 3000 : 8));
        (n % 3 == 0 ? a : b).link.reset();
        a.link.reset();
        b.link.reset();
        w.until_all_gone();
        CHECK(w.client.counts().late_closes == 0);
        CHECK(w.server.counts().late_closes == 0);
    }
}

TEST_CASE(
    "a device that cannot create a shared receive queue, or says that it has none, gives each link its own") {
    FOR_EACH_VERBS_DEVICE(way);
    SECTION("none in its attributes") {
        const between hooks;
        between::device = [](ibv_device_attr& of) { of.max_srq = of.max_srq_wr = 0; };
        between::creating_shared = [](const ibv_pd&) { return EINVAL; };
        verbs_world w(way.options);
        CHECK_THAT(w.client.describe(), contains("a receive queue for each link"));
        talks(w);
    }
    for (const int why : {ENOSYS, EOPNOTSUPP}) {
        CAPTURE(why);
        static int reason = 0;
        static int tried = 0;
        reason = why;
        tried = 0;
        const between hooks;
        between::creating_shared = [](const ibv_pd&) {
            ++tried;
            return reason;
        };
        verbs_world w(way.options);
        CHECK(tried == (way.iwarp ? 0 : 2));
        CHECK_THAT(w.client.describe(), contains("a receive queue for each link"));
        talks(w);
    }
    if (way.iwarp) return;
    // Any other reason is an error of its own.
    const between hooks;
    between::creating_shared = [](const ibv_pd&) { return ENOMEM; };
    scheduler on;
    const refusal seen = refused([&] { const verbs_domain tried_in_vain(on, way.options); });
    CHECK(seen.code == errc::no_resources);
    CHECK_THAT(seen.text, contains("shared receive queue"));
}

}  // namespace test_verbs_own_receive_queues
