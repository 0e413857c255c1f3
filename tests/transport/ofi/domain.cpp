#include <rdmacoro/transport/ofi/domain.hpp>

#include <rdmacoro/transport/detail/poll_pace.hpp>

#include "ofi/pair.hpp"
#include "support/counting_new.hpp"

#include <atomic>
#include <chrono>
#include <thread>

namespace test_transport_ofi_domain {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("two schedulers that park at every wait lose no wake-up, where the provider has a descriptor") {
    CHECK(rounds_with_sleep<ofi_fabric>(ofi_here("tcp")));
}

TEST_CASE("where the provider has no descriptor a scheduler yields, and nothing is lost") {
    CHECK_FALSE(rounds_with_sleep<ofi_fabric>(ofi_here("shm")));
}

TEST_CASE("a domain that may not park is polled") {
    ofi_options o = ofi_here("tcp");
    o.may_park = false;
    CHECK_FALSE(rounds_with_sleep<ofi_fabric>(o));
}

TEST_CASE("a domain whose links are idle asks the provider for completions once in some microseconds, and "
          "not in each turn") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t before = w.server.counts().polls;
    // What was under way just now may be polled for, and the time last seen may be a little old.
    constexpr std::uint64_t first =
        2 * (detail::poll_pace::polls_when_hot + detail::poll_pace::polls_after_post);
    const auto most = [&] {
        const auto passed = std::chrono::steady_clock::now() - begin;
        return first + static_cast<std::uint64_t>(passed / detail::poll_pace::least_rest);
    };
    std::uint64_t turns = 0;
    const auto limit = begin + std::chrono::seconds(20);
    while ((turns < 4 * most() || turns < 100'000) && std::chrono::steady_clock::now() < limit) {
        w.turns(100);
        turns += 100;
    }
    const std::uint64_t polls = w.server.counts().polls - before;
    CAPTURE(turns);
    if (counts_allocations)
        CHECK(turns >= 4 * most());  // else this shows nothing: under a sanitizer turns take too long
    CHECK(polls > 0);
    CHECK(polls <= most());
    // A message is found all the same.
    REQUIRE(a.link->post_copied(header_of(7), {}) == post_result::done);
    w.until([&] { return b.sink.count == 1; });
}

TEST_CASE("links that are down, and which their owners keep, leave a domain at rest") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a, b, idle_a, idle_b;
    w.link(a, b);
    w.link(idle_a, idle_b);
    std::vector<std::byte> memory(64);
    region kept = b.link->expose(memory, access_rights::remote_read);
    a.link.reset();
    w.until([&] { return b.sink.downs == 1; });
    const auto settled = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (std::chrono::steady_clock::now() < settled) w.turns(100);
    const auto begin = std::chrono::steady_clock::now();
    const std::uint64_t before = w.server.counts().polls;
    const auto most = [&] {
        const auto passed = std::chrono::steady_clock::now() - begin;
        return 100 + static_cast<std::uint64_t>(passed / detail::poll_pace::least_rest);
    };
    std::uint64_t turns = 0;
    // Under a sanitizer turns take too long to show it.
    const auto limit = begin + (counts_allocations ? std::chrono::seconds(20) : std::chrono::seconds(1));
    while ((turns < 4 * most() || turns < 100'000) && std::chrono::steady_clock::now() < limit) {
        w.turns(100);
        turns += 100;
    }
    CHECK(w.server.counts().polls - before <= most());
    // It leaves with its owner and its last region, in any order.
    const bool region_first = GENERATE(true, false);
    if (region_first) kept = {};
    b.link.reset();
    if (!region_first) {
        w.turns(1000);
        CHECK(w.server.connections() == 2);
        kept = {};
    }
    w.until([&] { return w.server.connections() == 1; });
}

}  // namespace test_transport_ofi_domain
