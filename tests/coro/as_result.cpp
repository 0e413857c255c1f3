#include <rdmacoro/coro/as_result.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <memory>
#include <stdexcept>

namespace test_coro_as_result {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<std::unique_ptr<int>> boxed(int n) {
    if (n < 0) throw error(make_error_code(errc::truncated), 12);
    if (n == 0) throw std::system_error(std::make_error_code(std::errc::no_such_device));
    if (n == 1) throw std::logic_error("not an error of an operation");
    co_return std::make_unique<int>(n);
}

task<> nothing(bool fail) {
    if (fail) detail::throw_error(errc::closed);
    co_return;
}

}  // namespace

TEST_CASE("the value of a task becomes a result") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto got = co_await as_result(boxed(5));
        REQUIRE(got.has_value());
        CHECK(**got == 5);
        const auto none = co_await as_result(nothing(false));
        CHECK(none.has_value());
    }());
}

TEST_CASE("errors that a task throws become results, with their numbers") {
    test::virtual_time world;
    world.run([]() -> task<> {
        const auto ours = co_await as_result(boxed(-1));
        CHECK(ours.error() == errc::truncated);
        CHECK(ours.info() == 12);
        const auto system = co_await as_result(boxed(0));
        CHECK(system.error() == std::errc::no_such_device);
        const auto none = co_await as_result(nothing(true));
        CHECK(none.error() == errc::closed);
    }());
}

TEST_CASE("other exceptions pass through") {
    test::virtual_time world;
    CHECK_THROWS_AS(world.run([]() -> task<> { static_cast<void>(co_await as_result(boxed(1))); }()),
                    std::logic_error);
}

TEST_CASE("the outcome of an operation becomes a result") {
    test::virtual_time world;
    world.run([]() -> task<> {
        const auto slept = co_await as_result(sleep_for(1s));
        CHECK(slept.has_value());
        local_stop_source stop;
        stop.request_stop();
        const auto canceled = co_await as_result(with_stop(sleep_for(1s), stop.get_token()));
        CHECK(canceled.error() == errc::canceled);
        const auto inside = co_await with_stop(as_result(sleep_for(1s)), stop.get_token());
        CHECK(inside.error() == errc::canceled);
    }());
}

TEST_CASE("as_result awaits an lvalue where it is") {
    test::virtual_time world;
    world.run([]() -> task<> {
        channel<int> values(1);
        auto operation = values.receive();
        REQUIRE(values.try_send(3));
        const auto got = co_await as_result(operation);
        CHECK(got.has_value());
        CHECK(operation.done());
    }());
}

}  // namespace test_coro_as_result
