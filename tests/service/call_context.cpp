#include <rdmacoro/service/call_context.hpp>

#include "support/calls_pair.hpp"

namespace test_service_call_context {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct timed {
    static constexpr method<"timed.left", std::int64_t()> left{};
    static constexpr method<"timed.forever", void()> forever{};
};

struct moved {
    static constexpr method<"bulk.sum", std::uint64_t(remote_region)> sum{};
};

}  // namespace

TEMPLATE_LIST_TEST_CASE("the time that is left travels, and stops the handler when it is over", "",
                        every_kind) {
    run_pair<TestType>([](auto& client, auto& server, shop&) -> task<> {
        service timing;
        std::size_t stopped = 0;
        timing.on(timed::left, [](call_context& c) -> task<std::int64_t> {
            const auto left = c.remaining();
            co_return left ? std::chrono::duration_cast<std::chrono::milliseconds>(*left).count() : -1;
        });
        timing.on(timed::forever, [&](call_context& c) -> task<> {
            const auto ended = co_await as_result(sleep_for(1h));
            CHECK(ended.error() == errc::canceled);
            CHECK(*c.remaining() == duration::zero());
            ++stopped;
        });
        server.serve(timing);
        {
            const auto got = co_await client.call(timed::left);
            CHECK(got == -1);
        }
        const std::int64_t left = co_await timeout(client.call(timed::left), 10s);
        CHECK(left > 1000);
        CHECK(left <= 10000);
        const auto late = co_await as_result(timeout(client.call(timed::forever), 20ms));
        CHECK((late.error() == errc::timed_out || late.error() == call_errc::expired));
        while (stopped == 0) co_await yield();
        while (timing.running() != 0) co_await yield();
    });
}

TEMPLATE_LIST_TEST_CASE("a handler gets from its caller's memory while the call lasts", "", every_kind) {
    run_pair<TestType>([](auto& client, auto& server, shop&, auto& domain) -> task<> {
        service loads;
        std::vector<std::uint64_t> numbers(100000, 3);
        loads.on(moved::sum, [](call_context& c, remote_region from) -> task<std::uint64_t> {
            std::vector<std::uint64_t> here(from.length / sizeof(std::uint64_t));
            co_await c.get(from, std::as_writable_bytes(std::span(here)));
            co_return std::accumulate(here.begin(), here.end(), std::uint64_t{0});
        });
        server.serve(loads);
        const auto memory =
            domain.register_memory(std::as_writable_bytes(std::span(numbers)), access_rights::remote_read);
        {
            const auto got = co_await client.call(moved::sum, memory.remote());
            CHECK(got == 300000);
        }
    });
}

}  // namespace test_service_call_context
