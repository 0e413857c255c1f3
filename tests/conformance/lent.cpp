#include "conformance.hpp"

#include <optional>

namespace test_conformance_lent {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

const std::size_t sizes[] = {0, 1, 48, 49, 1008, 1009, 4000, 32768, 32769, 300000, std::size_t{5} << 20};

task<> lends_all_sizes(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes : sizes) {
        const auto data = pattern(bytes, bytes);
        for (const bool synchronous : {false, true}) {
            auto receiving = start(p.b.recv_lent(6));
            auto sending = start(synchronous ? p.a.ssend(data, 6) : p.a.send(data, 6));
            const message expected = co_await receiving;
            co_await sending;
            CHECK(expected.size() == bytes);
            CHECK(expected.tag() == 6);
            CHECK(is_pattern(expected.bytes(), bytes));

            auto again = start(synchronous ? p.a.ssend(data, 6) : p.a.send(data, 6));
            co_await p.b.probe(6);
            const message unexpected = co_await p.b.recv_lent(6);
            co_await again;
            CHECK(unexpected.size() == bytes);
            CHECK(is_pattern(unexpected.bytes(), bytes));
        }
    }
}
CONFORMANCE_CASE("lent messages of all sizes are read where they lie", every_transport) {
    conform(over, lends_all_sizes);
}

task<> outlives_endpoint(two_domains& w) {
    std::vector<message> kept;
    {
        auto p = co_await w.connected();
        for (const std::size_t bytes : sizes) {
            const auto data = pattern(bytes, 1);
            for (const bool expected : {true, false}) {
                if (expected) {
                    auto receiving = start(p.b.recv_lent());
                    co_await p.a.send(data);
                    kept.push_back(co_await receiving);
                } else {
                    auto sending = start(p.a.send(data));
                    co_await p.b.probe();
                    kept.push_back(co_await p.b.recv_lent());
                    co_await sending;
                }
            }
        }
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
        CHECK(kept[i].size() == sizes[i / 2]);
        CHECK(is_pattern(kept[i].bytes(), 1));
    }
    // Given back in another order than lent.
    kept.erase(kept.begin());
    while (!kept.empty()) kept.pop_back();
}
CONFORMANCE_CASE("lent messages outlive their endpoint", every_transport) {
    conform(over, outlives_endpoint);
}

task<> holding_many(two_domains& w) {
    auto p = co_await w.connected();
    // More than any transport lends of its own buffers: further messages are copied, and none is held up.
    std::vector<message> kept;
    constexpr std::size_t count = 300;
    auto sender = [](peer& from) -> task<> {
        for (std::size_t n = 0; n < count; ++n) {
            const auto data = pattern(4000, n);
            co_await from.send(data);
        }
    };
    task_group group;
    group.spawn(sender, std::ref(p.a));
    for (std::size_t n = 0; n < count; ++n) kept.push_back(co_await p.b.recv_lent());
    co_await group.join();
    for (std::size_t n = 0; n < count; ++n) CHECK(is_pattern(kept[n].bytes(), n));
    // Given back, they are lent again.
    for (std::size_t n = 0; n < count; n += 2) kept[n].release();
    kept.clear();
    auto receiving = start(p.b.recv_lent());
    const auto data = pattern(4000, 9);
    co_await p.a.send(data);
    const message again = co_await receiving;
    CHECK(is_pattern(again.bytes(), 9));
}
CONFORMANCE_CASE("holding hundreds of lent messages does not stop the others", every_transport) {
    conform(over, holding_many);
}

task<> too_long_to_lend(two_domains& w) {
    mailbox_options small;
    small.lent_bytes = 10000;
    auto p = co_await w.connected({}, small);
    const auto data = pattern(3 << 20, 1);
    auto receiving = start(p.b.recv_lent(1));
    co_await p.a.send(data, 1);
    const auto refused = co_await as_result(receiving);
    CHECK(refused.error() == errc::truncated);
    CHECK(refused.info() == data.size());
    const auto fits = pattern(10000, 1);
    auto next = start(p.b.recv_lent(1));
    co_await p.a.send(fits, 1);
    {
        const auto got = co_await next;
        CHECK(got.size() == 10000);
    }
}
CONFORMANCE_CASE("a message above lent_bytes ends a lent receive truncated and the link goes on",
                 every_transport) {
    conform(over, too_long_to_lend);
}

}  // namespace

}  // namespace test_conformance_lent
