#include <rdmacoro/transport/verbs_rc/link.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"

namespace test_transport_verbs_rc_link {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("fetch-and-add and compare-and-swap change the peer's number and return its value before") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    alignas(8) std::uint64_t numbers[2] = {100, 7};
    const region open =
        w.server.register_memory(std::as_writable_bytes(std::span(numbers)), access_rights::all);
    const remote_region first = open.remote().part(0, 8);
    std::uint64_t was = 1;
    recording_completion added;
    REQUIRE(a.link->fetch_add(first, 5, was, added) == post_result::posted);
    w.until([&] { return added.calls == 1; });
    if (way.rxe) REQUIRE(a.link->capabilities().atomics);
    if (!a.link->capabilities().atomics) {
        CHECK(added.outcome == errc::unsupported);
        CHECK(numbers[0] == 100);
        return;
    }
    CHECK_FALSE(added.outcome);
    CHECK(was == 100);
    CHECK(numbers[0] == 105);
    recording_completion swapped;
    REQUIRE(a.link->compare_swap(first, 105, 9, was, swapped) == post_result::posted);
    w.until([&] { return swapped.calls == 1; });
    CHECK_FALSE(swapped.outcome);
    CHECK(was == 105);
    CHECK(numbers[0] == 9);
    recording_completion not_swapped;
    REQUIRE(a.link->compare_swap(first, 105, 10, was, not_swapped) == post_result::posted);
    w.until([&] { return not_swapped.calls == 1; });
    CHECK(was == 9);
    CHECK(numbers[0] == 9);
    CHECK(numbers[1] == 7);
}

TEST_CASE("an atomic on memory that is not 8 aligned bytes is refused here, and the link stays up") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    if (!a.link->capabilities().atomics) SKIP_TEST("the device has no atomics");
    alignas(8) std::uint64_t numbers[2] = {1, 2};
    const region open =
        w.server.register_memory(std::as_writable_bytes(std::span(numbers)), access_rights::all);
    for (const remote_region& wrong : {open.remote().part(4, 8), open.remote().part(0, 4), open.remote()}) {
        std::uint64_t was = 0;
        recording_completion added;
        REQUIRE(a.link->fetch_add(wrong, 5, was, added) == post_result::posted);
        w.until([&] { return added.calls == 1; });
        CHECK(added.outcome == errc::invalid_argument);
    }
    CHECK(numbers[0] == 1);
    post_for_sure(w, a, 1);
    w.until([&] { return b.sink.count == 1; });
}

TEST_CASE("atomics of two links at a time lose nothing") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    verbs_end c;
    verbs_end d;
    w.link(a, b);
    w.link(c, d);
    if (!a.link->capabilities().atomics) SKIP_TEST("the device has no atomics");
    alignas(8) std::uint64_t sum = 0;
    const region open =
        w.server.register_memory(std::as_writable_bytes(std::span(&sum, 1)), access_rights::all);
    constexpr std::size_t rounds = 100;
    std::vector<recording_completion> added(2 * rounds);
    std::vector<std::uint64_t> was(2 * rounds);
    for (std::size_t n = 0; n < rounds; ++n) {
        for (const std::size_t which : {2 * n, 2 * n + 1}) {
            verbs_recorded_link& link = which % 2 == 0 ? *a.link : *c.link;
            w.until([&] {
                return link.fetch_add(open.remote(), 3, was[which], added[which]) == post_result::posted;
            });
        }
    }
    w.until(
        [&] { return std::all_of(added.begin(), added.end(), [](const auto& x) { return x.calls == 1; }); });
    for (const recording_completion& x : added) CHECK_FALSE(x.outcome);
    CHECK(sum == 3 * 2 * rounds);
    std::sort(was.begin(), was.end());
    for (std::size_t n = 0; n < was.size(); ++n) CHECK(was[n] == 3 * n);
}

}  // namespace test_transport_verbs_rc_link
