#include <rdmacoro/transport/verbs_rc/slots.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"

namespace test_transport_verbs_rc_slots {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// How often a receiver was not ready, as the device counted it; empty: it counts no such thing. Over iWARP that ends the link,
/// which the tests look at, too.
std::vector<std::uint64_t> not_ready(const std::string& device) {
    std::vector<std::uint64_t> seen;
    for (const char* counter : {"rcvd_rnr_err", "send_rnr_err", "rnr_nak_retry_err"}) {
        const std::string path = "/sys/class/infiniband/" + device + "/ports/1/hw_counters/" + counter;
        if (FILE* file = std::fopen(path.c_str(), "r")) {
            unsigned long long value = 0;
            if (std::fscanf(file, "%llu", &value) == 1) seen.push_back(value);
            std::fclose(file);
        }
    }
    return seen;
}

/// Compares the counters with those read `before`, on a device that has them.
void check_always_ready(const verbs_way& way, const std::string& device,
                        const std::vector<std::uint64_t>& before) {
    if (way.rxe) REQUIRE(before.size() == 2);
    if (!way.siw && before.empty()) SKIP_TEST(device + " does not count receivers that were not ready");
    CHECK(not_ready(device) == before);
}

}  // namespace

TEST_CASE(
    "a sender whose messages are not taken has no credit, and all arrive in order once they are taken") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    const std::vector<std::uint64_t> before = not_ready(w.server.device_name());
    b.sink.refuse_all = true;
    recording_completion none;
    std::uint64_t posted = 0;
    // The peer's slots, less those that control frames need.
    for (int quiet = 0; quiet < 2000; ++quiet) {
        while (a.link->post(header_of(posted), {}, none) == post_result::done) {
            ++posted;
            quiet = 0;
        }
        w.on.turn();
    }
    CHECK(posted <= way.options.credits);
    CHECK(posted >= way.options.credits - 8);
    CHECK(b.sink.count == 0);
    CHECK(a.sink.writables == 0);
    // The other way is not blocked by it.
    post_for_sure(w, b, 4711);
    w.until([&] { return a.sink.count == 1; });
    b.sink.refuse_all = false;
    w.until([&] { return a.sink.writables != 0 && b.sink.count == posted; });
    constexpr std::uint64_t all = 5000;
    while (posted < all) post_for_sure(w, a, posted++);
    w.until([&] { return b.sink.count == all; });
    for (std::uint64_t n = 0; n < all; ++n) {
        if (b.sink.messages[n].number != n)
            FAIL_CHECK("message " << n << " is " << b.sink.messages[n].number);
    }
    CHECK(a.sink.downs + b.sink.downs == 0);
    check_always_ready(way, w.server.device_name(), before);
}

TEST_CASE("both ends flood each other, and no message ever meets a receiver that is not ready") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options few = way.options;
    few.credits = 8;
    few.send_depth = 32;
    verbs_world w(few, few);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    const std::vector<std::uint64_t> before = not_ready(w.server.device_name());
    a.sink.count_only = b.sink.count_only = true;
    constexpr std::uint64_t all = 3000;
    const auto data = pattern(1000);
    recording_completion none;
    std::uint64_t from_a = 0;
    std::uint64_t from_b = 0;
    w.until([&] {
        while (from_a < all && a.link->post(header_of(from_a), std::span(data), none) == post_result::done)
            ++from_a;
        while (from_b < all && b.link->post(header_of(from_b), {}, none) == post_result::done) ++from_b;
        return a.sink.count == all && b.sink.count == all;
    });
    CHECK(a.sink.downs + b.sink.downs == 0);
    check_always_ready(way, w.server.device_name(), before);
}

TEST_CASE("lent messages stay readable; without a spare slot the sink copies, and the link stays up") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options few = way.options;
    few.spare_slots = 5;
    verbs_world w(way.options, few);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    b.sink.keep_with = [&] { return b.link->keep(); };
    constexpr std::uint64_t all = 200;
    for (std::uint64_t n = 0; n < all; ++n) {
        post_for_sure(w, a, n, pattern(500, static_cast<unsigned>(n)));
        w.until([&] { return b.sink.count == n + 1; });
    }
    REQUIRE(b.sink.kept.size() == 5);
    for (std::uint64_t n = 0; n < all; ++n) {
        const auto expected = pattern(500, static_cast<unsigned>(n));
        if (n < 5) {
            const auto bytes = b.sink.kept[n].bytes();
            CHECK(std::equal(bytes.begin(), bytes.end(), expected.begin(), expected.end()));
        } else {
            CHECK(b.sink.messages[n].payload == expected);
        }
    }
    // Given back, also after the link, they serve again.
    b.sink.kept.pop_back();
    post_for_sure(w, a, all, pattern(10));
    w.until([&] { return b.sink.count == all + 1; });
    CHECK(b.sink.kept.size() == 5);
    b.link.reset();
    w.until([&] { return a.sink.downs == 1; });
    CHECK(b.sink.kept.front().bytes().size() == 500);
    b.sink.kept.clear();
}

}  // namespace test_transport_verbs_rc_slots
