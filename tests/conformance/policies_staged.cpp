#include "support/policy_cases.hpp"

#include <rdmacoro/protocol/staged_get.hpp>

#include <deque>

namespace test_conformance_policies_staged {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

CONFORMANCE_CASE(
    "eager, staged and got by size: everything arrives, whatever it is sent from and received into",
    every_transport) {
    conform_all(over, list_name::staged);
}
CONFORMANCE_CASE("eager, staged and got by size: both ends give up while the other is at work",
                 every_real_transport) {
    cancel_across_threads(over, list_name::staged);
}

/// Messages that are still unexpected when their sender closes.
task<> closes_with_messages_left(two_domains& w) {
    auto p = co_await w.connected_with(list_name::staged);
    constexpr std::size_t count = 2 * rdmacoro::detail::most_staged;
    std::deque<std::vector<std::byte>> data;
    std::deque<started<any_operation<void>>> sending;
    for (std::size_t n = 0; n < count; ++n) {
        data.push_back(pattern(n * 127 % 16384, n));
        sending.emplace_back(p.a.send(data.back(), 1));
    }
    co_await yield();
    co_await p.a.close();
    for (auto& each : sending) co_await each;
    std::vector<std::byte> into(16384);
    for (std::size_t n = 0; n < count; ++n) {
        CAPTURE(n);
        const received got = co_await p.b.recv(into, 1);
        CHECK(got.bytes == data[n].size());
        CHECK(is_pattern(std::span(into).first(got.bytes), n));
    }
    const auto none = co_await as_result(p.b.recv(into, 1));
    CHECK(none.error() == errc::closed);
    nothing_left(w, p);
}

CONFORMANCE_CASE("staged: what is left when its sender closes can still be received", every_transport) {
    conform(over, closes_with_messages_left);
}

/// A receive that only the last of more messages is for than there are blocks.
task<> receives_the_last(two_domains& w) {
    auto p = co_await w.connected_with(list_name::staged);
    constexpr std::size_t count = 2 * rdmacoro::detail::most_staged;
    constexpr std::size_t bytes = 4096;
    const std::vector<std::byte> data = pattern(bytes, 3);
    std::deque<started<any_operation<void>>> sending;
    for (std::size_t n = 0; n < count; ++n) sending.emplace_back(p.a.send(data, n));
    // Until the blocks are in use: the last ones wait.
    while (p.a.connection().counts().staged_sent < rdmacoro::detail::most_staged) co_await yield();
    for (int n = 0; n < 100; ++n) co_await yield();
    CHECK(p.a.connection().counts().staged_sent == rdmacoro::detail::most_staged);
    std::vector<std::byte> into(bytes);
    const received last = co_await timeout(p.b.recv(into, count - 1), std::chrono::seconds(20));
    CHECK(last.bytes == bytes);
    CHECK(is_pattern(into, 3));
    for (std::size_t n = 0; n + 1 < count; ++n) {
        const received got = co_await p.b.recv(into, n);
        CHECK(got.bytes == bytes);
    }
    for (auto& each : sending) co_await each;
    co_await p.a.close();
    nothing_left(w, p);
}

CONFORMANCE_CASE("staged: a receive ends that waits for the last of more messages than there are blocks",
                 every_transport) {
    conform(over, receives_the_last);
}

}  // namespace

}  // namespace test_conformance_policies_staged
