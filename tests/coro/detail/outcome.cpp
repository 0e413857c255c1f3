#include <rdmacoro/coro/detail/outcome.hpp>

#include <rdmacoro/coro/error.hpp>

#include "support/catch.hpp"

#include <memory>
#include <stdexcept>

namespace test_coro_detail_outcome {

using namespace rdmacoro;
using namespace rdmacoro::detail;

TEST_CASE("an outcome gives its value") {
    outcome<std::unique_ptr<int>> ended;
    ended.set(std::make_unique<int>(4));
    CHECK(*ended.take() == 4);
    int number = 1;
    outcome<int&> reference;
    reference.set(number);
    CHECK(&reference.take() == &number);
    outcome<void> nothing;
    nothing.take();
}

TEST_CASE("an outcome throws its exception, once") {
    outcome<void> ended;
    ended.fail(std::make_exception_ptr(std::runtime_error("reason")));
    CHECK(static_cast<bool>(ended.failure()));
    CHECK_THROWS_AS(ended.take(), std::runtime_error);
    CHECK_FALSE(static_cast<bool>(ended.failure()));
}

TEST_CASE("a cancellation is told from other exceptions") {
    CHECK(is_canceled(canceled_exception()));
    CHECK_FALSE(is_canceled(std::make_exception_ptr(error(errc::closed))));
    CHECK_FALSE(is_canceled(std::make_exception_ptr(std::runtime_error("canceled"))));
    CHECK_FALSE(is_canceled(std::make_exception_ptr(1)));
}

}  // namespace test_coro_detail_outcome
