#include "verbs/pair.hpp"

#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/pattern.hpp"

#include <array>

using namespace rdmacoro;
using namespace rdmacoro::test;

// Devices without a shared receive queue: here sharing is switched off.

namespace {

verbs_options unshared(const verbs_way& way) {
    verbs_options o = way.options;
    o.share_receives = false;
    return o;
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
