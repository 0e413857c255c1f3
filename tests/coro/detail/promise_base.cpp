#include <rdmacoro/coro/detail/promise_base.hpp>

#include <rdmacoro/coro/task.hpp>

#include "support/catch.hpp"

namespace test_coro_detail_promise_base {

using namespace rdmacoro;

namespace {

/// Notes the environment it is given.
struct bound {
    environment* seen;
    void bind(const environment& env) noexcept { *seen = env; }
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) noexcept {}
    void await_resume() noexcept {}
};

/// An awaiter that can be neither moved nor copied.
struct fixed {
    fixed() = default;
    fixed(const fixed&) = delete;
    const fixed* at = nullptr;
    bool await_ready() noexcept {
        at = this;
        return true;
    }
    void await_suspend(std::coroutine_handle<>) noexcept {}
    const fixed* await_resume() noexcept { return at; }
};

}  // namespace

TEST_CASE("an awaited object is given the coroutine's environment") {
    scheduler on;
    local_stop_source source;
    environment seen;
    auto main = [](environment& into) -> task<> { co_await bound{&into}; }(seen);
    main.bind({&on, source.get_token()});
    on.run(std::move(main));
    CHECK(seen.owner == &on);
    CHECK(seen.stop.is_part_of(source));
}

TEST_CASE("an awaiter is awaited in place") {
    scheduler on;
    on.run([]() -> task<> {
        fixed here;
        const fixed* const awaited = co_await here;
        CHECK(awaited == &here);
    }());
}

}  // namespace test_coro_detail_promise_base
