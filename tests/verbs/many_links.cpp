#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace test_verbs_many_links {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("a thousand links of one domain are busy at once, and one more is refused") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    verbs_options o = way.options;
    o.credits = 8;
    o.slot_bytes = 4096;
    o.send_depth = 32;
    o.most_links = 1000;
    o.connect_by = verbs_connect::rdma_cm;  // which takes no descriptor for a link
    verbs_world w(o);
    CHECK_THAT(w.client.describe(), contains("160 KiB locked for each link"));
    const std::size_t before = locked_memory();
    std::vector<std::unique_ptr<verbs_end>> a;
    std::vector<std::unique_ptr<verbs_end>> b;
    for (unsigned n = 0; n < o.most_links; ++n) {
        a.push_back(std::make_unique<verbs_end>());
        b.push_back(std::make_unique<verbs_end>());
        w.link(*a.back(), *b.back());
    }
    // What the kernel counts is what the domains tell of their links: of both ends, as both are here.
    const std::size_t locked = locked_memory() - before;
    const std::size_t told = 2 * o.most_links * (std::size_t{160} << 10);
    CAPTURE(locked, told);
    CHECK(locked > told * 9 / 10);
    if (way.rxe) CHECK(locked < told * 11 / 10);  // adapters lock their queues, too
    const refusal seen = refused([&] { static_cast<void>(w.connect()); });
    CHECK(seen.code == errc::no_resources);
    CHECK_THAT(seen.text, contains("most_links"));
    recording_completion none;
    for (auto& end : a) REQUIRE(end->link->post(header_of(1), {}, none) == post_result::done);
    for (auto& end : b) REQUIRE(end->link->post(header_of(2), {}, none) == post_result::done);
    std::size_t at = 0;
    w.until([&] {
        while (at < a.size() && a[at]->sink.count == 1 && b[at]->sink.count == 1) ++at;
        return at == a.size();
    });
    for (std::size_t n = 0; n < a.size(); ++n) CHECK(a[n]->sink.downs + b[n]->sink.downs == 0);
}

}  // namespace test_verbs_many_links
