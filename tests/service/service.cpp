#include <rdmacoro/service/service.hpp>

#include "support/calls_pair.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>

namespace test_service_service {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct slow {
    static constexpr method<"slow.wait", int(int)> wait{};
};

struct quick_methods {
    static constexpr method<"quick.twice", std::uint64_t(std::uint64_t)> twice{};
    static constexpr method<"quick.text", std::string(std::string_view, std::uint32_t)> text{};
    static constexpr method<"quick.row", std::vector<float>(std::uint32_t)> row{};
    static constexpr method<"quick.pad", std::array<std::uint64_t, 100>(std::uint64_t)> pad{};
    static constexpr method<"quick.set", void(std::uint64_t)> set{};
    static constexpr method<"quick.note", one_way(std::uint64_t)> note{};
    static constexpr method<"quick.fail", std::uint64_t(int)> fail{};
    static constexpr method<"quick.left", std::int64_t()> left{};
    static constexpr method<"quick.wait", void()> wait{};
    static constexpr method<"quick.missing", std::uint64_t(std::uint64_t)> missing{};
};
struct quick_otherwise {
    static constexpr method<"quick.twice", std::uint64_t(std::uint32_t)> twice{};
};

/// A service of functions, and one coroutine.
struct quick_shop {
    service store;
    event go;
    std::uint64_t set = 0;
    std::uint64_t notes = 0;
    std::size_t running = 0;  // seen by a function

    explicit quick_shop(const service_options& options = {}) : store(options) {
        store.on(quick_methods::twice, [this](call_context&, std::uint64_t n) {
            running = store.running();
            return 2 * n;
        });
        store.on(quick_methods::text, [](call_context&, std::string_view text, std::uint32_t times) {
            std::string all;
            for (; times != 0; --times) all += text;
            return all;
        });
        store.on(quick_methods::row,
                 [](call_context&, std::uint32_t n) { return std::vector<float>(n, 0.5F); });
        store.on(quick_methods::pad, [](call_context&, std::uint64_t n) {
            std::array<std::uint64_t, 100> all{};
            all.fill(n);
            return all;
        });
        store.on(quick_methods::set, [this](call_context&, std::uint64_t n) { set = n; });
        store.on(quick_methods::note, [this](call_context&, std::uint64_t n) { notes += n; });
        store.on(quick_methods::fail, [](call_context&, int how) -> std::uint64_t {
            if (how == 0) throw error(errc::access_denied, "not you");
            if (how == 1)
                throw std::system_error(std::make_error_code(std::errc::no_space_on_device), "the disk");
            if (how == 2) throw std::runtime_error("something else");
            throw 7;
        });
        store.on(quick_methods::left, [](call_context& c) -> std::int64_t {
            const auto left = c.remaining();
            return left ? std::chrono::duration_cast<std::chrono::milliseconds>(*left).count() : -1;
        });
        store.on(quick_methods::wait, [this](call_context&) -> task<> { co_await go.wait(); });
    }
};

struct mixed {
    static constexpr method<"one.a", void()> a{};
    static constexpr method<"two.a", void()> b{};
};

}  // namespace

CALLS_CASE("beyond its limit a service lets callers wait, and other services go on") {
    run_pair(over, [](any_calls& client, any_calls& server, shop& there, calls_link) -> task<> {
        service two({.running = 2});
        event go;
        std::size_t most = 0;
        two.on(slow::wait, [&](call_context&, int n) -> task<int> {
            most = std::max(most, two.running());
            co_await go.wait();
            co_return n;
        });
        server.serve(two);
        task_group callers;
        int sum = 0;
        for (int i = 0; i < 50; ++i) {
            callers.spawn([&client, &sum, i]() -> task<> { sum += co_await client.call(slow::wait, i); });
        }
        for (int i = 0; i < 200; ++i) {
            const auto got = co_await client.call(kv::add, 1U, 2U);
            CHECK(got == 3);
        }
        CHECK(two.running() == 2);
        CHECK(sum == 0);
        go.set();
        co_await callers.join();
        CHECK(sum == 49 * 50 / 2);
        CHECK(most == 2);
        while (there.store.running() != 0) co_await yield();
    });
}

CALLS_CASE("a handler that is a function answers with any result, and with any error") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        quick_shop there;
        server.serve(there.store);
        // The first call waits for its service, and is served by another way than the others.
        for (int round = 0; round < 3; ++round) {
            const std::uint64_t twice = co_await client.call(quick_methods::twice, 21U);
            CHECK(twice == 42);
            CHECK(there.running == 1);
            CHECK(there.store.running() == 0);
            CHECK(there.store.bytes() == 0);
            const std::string text = co_await client.call(quick_methods::text, "ab", 2U);
            CHECK(text == "abab");
            const std::string long_text =
                co_await client.call(quick_methods::text, std::string(1000, 'x'), 1000U);
            CHECK(long_text.size() == 1000000);
            const std::vector<float> row = co_await client.call(quick_methods::row, 100000U);
            CHECK(row.size() == 100000);
            const auto pad = co_await client.call(quick_methods::pad, 9U);
            CHECK(pad[99] == 9);
            co_await client.call(quick_methods::set, 5U);
            CHECK(there.set == 5);
            const std::int64_t unlimited = co_await client.call(quick_methods::left);
            CHECK(unlimited == -1);
            const std::int64_t left = co_await timeout(client.call(quick_methods::left), 10s);
            CHECK(left > 1000);
            CHECK(left <= 10000);
            for (int how = 0; how < 4; ++how) {
                std::error_code code;
                std::string said;
                try {
                    static_cast<void>(co_await client.call(quick_methods::fail, how));
                } catch (const error& failed) {
                    code = failed.code();
                    said = failed.what();
                }
                if (how == 0) CHECK(code == errc::access_denied);
                if (how == 0) CHECK_THAT(said, Catch::Contains("quick.fail") && Catch::Contains("not you"));
                if (how == 1) CHECK(code == std::errc::no_space_on_device);
                if (how == 2) CHECK(code == call_errc::handler_failed);
                if (how == 2) CHECK_THAT(said, Catch::Contains("something else"));
                if (how == 3) CHECK(code == call_errc::handler_failed);
            }
            const auto missing = co_await as_result(client.call(quick_methods::missing, 1U));
            CHECK(missing.error() == call_errc::unknown_method);
            const auto mismatch = co_await as_result(client.call(quick_otherwise::twice, 1U));
            CHECK(mismatch.error() == call_errc::signature_mismatch);
        }
        for (std::uint64_t n = 0; n < 100; ++n) co_await client.cast(quick_methods::note, n);
        while (there.notes != 99 * 100 / 2) co_await yield();
        co_await server.drain();
    });
}

CALLS_CASE("a function's requests that are cut off, or longer, end as malformed, and others go on") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        quick_shop there;
        server.serve(there.store);
        {
            const std::uint64_t twice = co_await client.call(quick_methods::twice, 1U);
            CHECK(twice == 2);
        }
        auto& raw = link.a;
        const detail::request_head head{quick_methods::twice.number, quick_methods::twice.signature, 0};
        std::vector<std::byte> request(sizeof head + 16);
        std::memcpy(request.data(), &head, sizeof head);
        std::size_t values = 0;
        for (std::size_t length = 0; length <= request.size(); ++length) {
            const std::uint64_t own = (std::uint64_t{1} << 42) + length;
            co_await raw.send(
                std::span<const std::byte>(request).first(length),
                detail::call_tag(detail::call_kind::request, own, quick_methods::twice.service));
            const message got = co_await raw.recv_lent(detail::call_tag(detail::call_kind::answer, own));
            detail::answer_head answered{};
            REQUIRE(got.size() >= sizeof answered);
            std::memcpy(&answered, got.bytes().data(), sizeof answered);
            if (answered.outcome == static_cast<std::uint32_t>(detail::outcome_kind::value)) {
                ++values;
                CHECK(length == sizeof head + 8);
            } else {
                CHECK(answered.outcome == static_cast<std::uint32_t>(detail::outcome_kind::call_error));
                CHECK(answered.code == static_cast<int>(call_errc::malformed_request));
            }
        }
        CHECK(values == 1);
        const std::uint64_t twice = co_await client.call(quick_methods::twice, 4U);
        CHECK(twice == 8);
    });
}

CALLS_CASE("functions count for their service's limits, and wait for them") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        quick_shop there({.running = 1});
        server.serve(there.store);
        co_await client.call(quick_methods::set, 1U);
        auto holding = start(client.call(quick_methods::wait));
        while (there.store.running() != 1) co_await yield();
        auto waiting = start(client.call(quick_methods::set, 2U));
        auto canceled = start(timeout(client.call(quick_methods::set, 3U), 5ms));
        const auto late = co_await as_result(canceled);
        CHECK(late.error() == errc::timed_out);
        for (int i = 0; i < 100; ++i) {
            const std::uint64_t other = co_await client.call(kv::add_now, 1U, 2U);
            CHECK(other == 3);
        }
        CHECK(there.set == 1);
        CHECK_FALSE(waiting.done());
        there.go.set();
        co_await holding;
        co_await waiting;
        CHECK(there.set == 2);
        while (there.store.running() != 0) co_await yield();
        CHECK(there.store.bytes() == 0);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
    });
}

CALLS_CASE("however many requests of functions there are, other coroutines have their turns") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service counting;
        std::uint64_t served = 0;
        counting.on(quick_methods::note, [&served](call_context&, std::uint64_t) { ++served; });
        server.serve(counting);
        co_await client.cast(quick_methods::note, 0U);  // the first
        while (served == 0) co_await yield();
        // They lie here before the first is served.
        constexpr std::uint64_t many = 3000;
        task_group senders;
        for (std::uint64_t n = 0; n < many; ++n)
            senders.spawn([&client, n]() -> task<> { co_await client.cast(quick_methods::note, n); });
        std::uint64_t most = 0;
        std::uint64_t turns = 0;
        std::uint64_t before = served;
        while (served != many + 1) {
            co_await yield();
            most = std::max(most, served - before);
            before = served;
            ++turns;
        }
        CHECK(most <= 33);
        CHECK(turns >= many / 33);
        co_await senders.join();
    });
}

TEST_CASE("misuse of services is refused with an error") {
    CHECK_THROWS_AS(service({.running = 0}), error);
    CHECK_THROWS_AS(service({.bytes = 0}), error);
    service one;
    one.on(mixed::a, [](call_context&) -> task<> { co_return; });
    CHECK_THROWS_AS(one.on(mixed::a, [](call_context&) -> task<> { co_return; }), error);
    CHECK_THROWS_AS(one.on(mixed::b, [](call_context&) -> task<> { co_return; }), error);
}

}  // namespace test_service_service
