#include "support/policy_cases.hpp"

namespace test_conformance_policies_speculative {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Receives whose buffers are announced to the sender before it sends.
task<> announced(two_domains& w) {
    auto p = co_await w.connected_with(list_name::speculative_get);
    std::uint64_t used = 0;
    for (const std::size_t bytes : {std::size_t{100000}, std::size_t{1} << 20}) {
        for (const auto from : laid_out::all) {
            for (const auto to : laid_out::all) {
                for (const bool synchronous : {false, true}) {
                    CAPTURE(bytes, from, to, synchronous);
                    laid_out data(bytes, from);
                    laid_out into(bytes, to);
                    if (data.size() > into.size()) continue;
                    data.fill(bytes);
                    auto receiving = start(p.b.recv(into.into(), 1));
                    co_await p.b.send({}, 2);
                    co_await p.a.recv({}, 2);  // the announcement comes before it
                    const std::uint64_t before = p.a.counts().announcements_used;
                    // Not in one expression: g++ 12 without optimization destroys the other branch's temporary, too.
                    if (synchronous) {
                        co_await p.a.ssend(data.from(), 1);
                    } else {
                        co_await p.a.send(data.from(), 1);
                    }
                    const received got = co_await receiving;
                    CHECK(got.bytes == data.size());
                    CHECK(into.holds(bytes, data.size()));
                    if (p.a.counts().announcements_used != before) ++used;
                }
            }
        }
    }
    CHECK(used > 0);
    CHECK(p.b.counts().announcements_met == used);
    nothing_left(w, p);
}
CONFORMANCE_CASE("speculative: messages go into announced buffers, whatever their layout", every_transport) {
    conform(over, announced);
}

/// The longer of two receives is announced, and meets a shorter message.
task<> announced_in_vain(two_domains& w) {
    auto p = co_await w.connected_with(list_name::speculative_get);
    std::vector<std::byte> into(300000);
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{8}, std::size_t{70000}, std::size_t{299999}}) {
        const auto data = pattern(bytes, bytes);
        for (const bool synchronous : {false, true}) {
            CAPTURE(bytes, synchronous);
            auto receiving = start(p.b.recv(into, 1));
            co_await p.b.send({}, 2);
            co_await p.a.recv({}, 2);
            if (synchronous) {
                co_await p.a.ssend(data, 1);
            } else {
                co_await p.a.send(data, 1);
            }
            const received got = co_await receiving;
            CHECK(got.bytes == bytes);
            CHECK(is_pattern(std::span(into).first(bytes), bytes));
            std::fill(into.begin(), into.end(), std::byte{0});
        }
    }
    // Longer than the buffer that was announced.
    const auto data = pattern(into.size() + 1, 1);
    auto receiving = start(p.b.recv(into, 1));
    co_await p.b.send({}, 2);
    co_await p.a.recv({}, 2);
    co_await p.a.send(data, 1);
    const auto got = co_await as_result(receiving);
    CHECK(got.error() == errc::truncated);
    CHECK(got.info() == data.size());
    co_await still_good(w, p);
}
CONFORMANCE_CASE("speculative: an announced buffer meets messages of any length", every_transport) {
    conform(over, announced_in_vain);
}

CONFORMANCE_CASE("speculative: everything arrives, whatever it is sent from and received into",
                 every_transport) {
    conform_all(over, list_name::speculative_get);
}
CONFORMANCE_CASE("speculative: a message of 64 MiB and 3 bytes", every_real_transport) {
    conform(over, list_name::speculative_get, carries_huge_message);
}
CONFORMANCE_CASE("speculative: both ends give up while the other is at work", every_real_transport) {
    cancel_across_threads(over, list_name::speculative_get);
}

}  // namespace

}  // namespace test_conformance_policies_speculative
