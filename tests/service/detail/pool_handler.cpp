#include <rdmacoro/service/detail/pool_handler.hpp>

#include "support/catch.hpp"

#include <string>

namespace test_service_detail_pool_handler {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {
struct right {
    task<int> operator()(pool_context&, std::string) const { co_return 1; }
};
struct no_constant {
    task<int> operator()(pool_context&, std::string) { co_return 1; }
};
struct other_context {
    task<int> operator()(call_context&, std::string) const { co_return 1; }
};
}  // namespace

static_assert(handles_on_pool<right, int, std::string>);
static_assert(!handles_on_pool<no_constant, int, std::string>);
static_assert(!handles_on_pool<other_context, int, std::string>);
static_assert(!handles_on_pool<right, long, std::string>);
static_assert(!handles_on_pool<right, stream<int>, std::string>);

TEST_CASE("a handler on a pool has the facts of its method") {
    const rdmacoro::scheduler_pool pool(1);
    using m = method<"some.method", int(std::string)>;
    const pool_handler<m, right> made(pool, right());
    CHECK(made.facts.number == m::number);
    CHECK(pool.size() == 1);
    CHECK(pool.running() == 0);
}

}  // namespace test_service_detail_pool_handler
