#include <rdmacoro/coro/awaitable.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"

#include <memory>
#include <string>

namespace test_coro_awaitable {

using namespace rdmacoro;

namespace {
struct gives_int {
    bool await_ready() const noexcept { return true; }
    void await_suspend(std::coroutine_handle<>) noexcept {}
    int await_resume() const noexcept { return 1; }
};
struct gives_awaiter {
    gives_int operator co_await() && noexcept { return {}; }
};
struct incomplete {
    bool await_ready() const noexcept { return true; }
};
}  // namespace

// Anything with the three functions, or an operator that gives such a thing, can be awaited.
static_assert(awaitable<gives_int>);
static_assert(awaitable<gives_int&>);
static_assert(awaitable<gives_awaiter>);
static_assert(!awaitable<gives_awaiter&>);
static_assert(!awaitable<incomplete>);
static_assert(!awaitable<int>);

// A task is awaited once, as an rvalue.
static_assert(awaitable<task<>>);
static_assert(!awaitable<task<>&>);
static_assert(std::is_same_v<await_result_t<task<std::string>>, std::string>);
static_assert(std::is_same_v<await_result_t<task<int&>>, int&>);
static_assert(std::is_void_v<await_result_t<task<>>>);
static_assert(std::is_void_v<await_result_t<sleep_operation>>);
static_assert(std::is_same_v<await_result_t<channel<int>::receive_operation&>, int>);

// An operation that has begun is not moved.
static_assert(awaitable<started<sleep_operation>&>);
static_assert(!std::move_constructible<started<sleep_operation>>);
static_assert(!detail::adaptable<started<sleep_operation>>);
static_assert(detail::adaptable<started<sleep_operation>&>);
static_assert(!std::move_constructible<started<task<>>>);

TEST_CASE("foreign awaitables run inside tasks and adaptors") {
    scheduler on;
    const int sum = on.run([]() -> task<int> {
        const int plain = co_await gives_int{};
        const int wrapped = co_await gives_awaiter{};
        const auto as_a_result = co_await as_result(gives_awaiter{});
        const int in_time = co_await timeout(gives_awaiter{}, std::chrono::seconds(1));
        const auto [first, second] = co_await when_all(gives_int{}, gives_awaiter{});
        co_return plain + wrapped + *as_a_result + in_time + first + second;
    }());
    CHECK(sum == 6);
}

}  // namespace test_coro_awaitable
