#include <rdmacoro/coro/detail/child.hpp>

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/yield.hpp>

#include "support/catch.hpp"

#include <stdexcept>

namespace test_coro_detail_child {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

struct parent final : child_owner {
    int failed = 0;
    int ended = 0;
    void child_failed(std::exception_ptr) noexcept override { ++failed; }
    std::coroutine_handle<> child_ended() noexcept override {
        ++ended;
        return std::noop_coroutine();
    }
};

child add(child_owner&, int& sum, int steps) {
    for (int n = 0; n < steps; ++n) {
        ++sum;
        co_await yield();
    }
}
child fail(child_owner&) {
    throw std::runtime_error("reason");
    co_return;
}

}  // namespace

TEST_CASE("a child begins now or with the next batch, and notifies its owner when it has ended") {
    scheduler on;
    parent of;
    int now = 0;
    int soon = 0;
    on.run([](parent& p, int& first, int& second) -> task<> {
        scheduler& running = running_scheduler();
        add(p, first, 1).begin_now({&running, {}});
        CHECK(first == 1);
        add(p, second, 2).begin_soon({&running, {}});
        CHECK(second == 0);
        while (p.ended < 2) co_await yield();
    }(of, now, soon));
    CHECK(soon == 2);
    CHECK(of.failed == 0);
}

TEST_CASE("a child's exception reaches its owner before its end does") {
    scheduler on;
    parent of;
    fail(of).begin_soon({&on, {}});
    on.run_until([&] { return of.ended == 1; });
    CHECK(of.failed == 1);
}

}  // namespace test_coro_detail_child
