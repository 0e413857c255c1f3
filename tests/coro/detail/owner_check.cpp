#include <rdmacoro/coro/detail/owner_check.hpp>

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

#include <optional>
#include <string>
#include <thread>

namespace test_coro_detail_owner_check {

using namespace rdmacoro;
using rdmacoro::detail::require_alive;
using rdmacoro::detail::require_current;
using rdmacoro::detail::require_thread_of;
using rdmacoro::detail::this_thread;

// How processes end by it: faults/wrong_owner.cpp.
TEST_CASE("threads have different numbers, each one all the time") {
    const int here = this_thread();
    int there = 0;
    std::thread([&] { there = this_thread(); }).join();
    CHECK(here != there);
    CHECK(here == this_thread());
}

TEST_CASE("the running scheduler passes, and any other is named with how to reach it") {
    scheduler one;
    scheduler other;
    one.run([](scheduler& self, scheduler& that) -> task<> {
        CHECK_NOTHROW(require_current(self, "try"));
        std::string said;
        try {
            require_current(that, "try");
        } catch (const error& refused) {
            CHECK(refused.code() == errc::invalid_argument);
            said = refused.what();
        }
        CHECK_THAT(said, test::contains("try: it belongs to scheduler ") &&
                             test::contains("(which does not run now)") &&
                             test::contains("(on thread " + std::to_string(this_thread()) + ")") &&
                             test::contains("thread_channel"));
        co_return;
    }(one, other));
    CHECK_THROWS_AS(require_current(one, "outside"), error);
}

TEST_CASE("a scheduler that runs nowhere, or here, has the right thread") {
    scheduler one;
    require_thread_of(nullptr);
    require_thread_of(&one);
    one.run([](scheduler& self) -> task<> {
        require_thread_of(&self);
        co_return;
    }(one));
}

TEST_CASE("what is destroyed after its scheduler ends the process with a message that names it") {
    scheduler one;
    require_alive(&one, "a thing");
    const test::death seen = test::dies([] {
        std::optional<scheduler> gone(std::in_place);
        const scheduler* const at = &*gone;
        gone.reset();
        require_alive(at, "a thing");
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("a thing was destroyed after its scheduler"));
}

}  // namespace test_coro_detail_owner_check
