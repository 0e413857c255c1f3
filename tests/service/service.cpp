#include <rdmacoro/service/service.hpp>

#include "support/calls_pair.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct slow {
    static constexpr method<"slow.wait", int(int)> wait{};
};

struct mixed {
    static constexpr method<"one.a", void()> a{};
    static constexpr method<"two.a", void()> b{};
};

}  // namespace

TEMPLATE_LIST_TEST_CASE("beyond its limit a service lets callers wait, and other services go on", "",
                        every_kind) {
    run_pair<TestType>([](auto& client, auto& server, shop& there) -> task<> {
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
        CHECK(there.store.running() == 0);
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
