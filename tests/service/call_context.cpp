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
    static constexpr method<"bulk.again", void(remote_region)> again{};
};

/// A handler that gets until it may no longer, or for seconds.
struct gets_again {
    static constexpr std::size_t most = 1000;
    service loads;
    std::size_t done = 0;
    std::error_code ended;

    gets_again() {
        loads.on(moved::again, [this](call_context& c, remote_region from) -> task<> {
            std::vector<std::byte> here(from.length);
            done = 0;
            ended = {};
            for (; done < most; ++done) {
                const auto got = co_await as_result(c.get(from, here));
                if (!got) ended = got.error();
                got.value();
            }
        });
    }
};

}  // namespace

CALLS_CASE("the time that is left travels, and stops the handler when it is over") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
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
        CHECK(late.error() == errc::timed_out);
        while (stopped == 0) co_await yield();
        while (timing.running() != 0) co_await yield();
    });
}

CALLS_CASE("a handler gets from its caller's memory while the call lasts") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service loads;
        std::vector<std::uint64_t> numbers(100000, 3);
        loads.on(moved::sum, [](call_context& c, remote_region from) -> task<std::uint64_t> {
            std::vector<std::uint64_t> here(from.length / sizeof(std::uint64_t));
            co_await c.get(from, std::as_writable_bytes(std::span(here)));
            co_return std::accumulate(here.begin(), here.end(), std::uint64_t{0});
        });
        server.serve(loads);
        const auto memory = link.domain.register_memory(std::as_writable_bytes(std::span(numbers)),
                                                        access_rights::remote_read);
        {
            const auto got = co_await client.call(moved::sum, memory.remote());
            CHECK(got == 300000);
        }
    });
}

CALLS_CASE("a handler's get is canceled at the call's deadline, and when its caller leaves") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        std::vector<std::byte> bulk(32 << 20);
        gets_again serves;
        server.serve(serves.loads);
        const auto memory = link.domain.register_memory(bulk, access_rights::remote_read);
        // A slow machine needs more time for the first one.
        for (auto limit = 20ms; serves.done == 0 && limit < 20s; limit *= 2) {
            const auto late = co_await as_result(timeout(client.call(moved::again, memory.remote()), limit));
            CHECK(late.error() == errc::timed_out);
            while (serves.loads.running() != 0) co_await yield();
        }
        CHECK(serves.done >= 1);
        CHECK(serves.ended == errc::canceled);

        serves.done = 0;
        local_stop_source stop;
        auto calling = start(with_stop(client.call(moved::again, memory.remote()), stop.get_token()));
        while (serves.done == 0) co_await yield();
        CHECK_FALSE(calling.done());
        CHECK(serves.loads.running() == 1);
        CHECK(!serves.ended);
        stop.request_stop();
        const auto left = co_await as_result(calling);
        CHECK(left.error() == errc::canceled);
        while (serves.loads.running() != 0) co_await yield();
        CHECK(serves.ended == errc::canceled);
    });
}

}  // namespace test_service_call_context
