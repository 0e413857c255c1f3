#include <rdmacoro/coro/result.hpp>

#include "support/catch.hpp"

#include <memory>

namespace test_coro_result {

using namespace rdmacoro;

TEST_CASE("a result holds a value") {
    result<int> got = 3;
    CHECK(got.has_value());
    CHECK(static_cast<bool>(got));
    CHECK(*got == 3);
    CHECK(got.value() == 3);
    CHECK_FALSE(got.error());
}

TEST_CASE("a result holds an error and throws it when asked for the value") {
    result<int> got = errc::closed;
    CHECK_FALSE(got.has_value());
    CHECK(got.error() == errc::closed);
    try {
        static_cast<void>(got.value());
        FAIL("did not throw");
    } catch (const error& thrown) {
        CHECK(thrown.code() == errc::closed);
    }
}

TEST_CASE("the number of an error travels from the result into the exception") {
    result<int> got(make_error_code(errc::truncated), 77);
    CHECK(got.info() == 77);
    try {
        static_cast<void>(got.value());
        FAIL("did not throw");
    } catch (const error& thrown) {
        CHECK(thrown.info() == 77);
    }
    result<> nothing(make_error_code(errc::truncated), 78);
    try {
        nothing.value();
        FAIL("did not throw");
    } catch (const error& thrown) {
        CHECK(thrown.info() == 78);
    }
}

TEST_CASE("a result of something that only moves gives it away") {
    result<std::unique_ptr<int>> got = std::make_unique<int>(4);
    CHECK(**got == 4);
    std::unique_ptr<int> taken = *std::move(got);
    CHECK(*taken == 4);
}

TEST_CASE("a result of nothing is good unless it holds an error") {
    result<> good;
    CHECK(good.has_value());
    good.value();
    result<> bad = errc::canceled;
    CHECK_FALSE(bad);
    CHECK(bad.error() == errc::canceled);
    CHECK_THROWS_AS(bad.value(), error);
}

}  // namespace test_coro_result
