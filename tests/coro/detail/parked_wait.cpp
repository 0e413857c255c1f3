#include <rdmacoro/coro/detail/parked_wait.hpp>

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>

#include "support/catch.hpp"

namespace test_coro_detail_parked_wait {

using namespace rdmacoro;

TEST_CASE("a wait that ended at once is not listed, one that waits is, until its object is gone",
          "[describe]") {
    scheduler here;
    here.run([](scheduler& on) -> task<> {
        event flag(true);
        {
            auto at_once = start(flag.wait());
            CHECK(on.parked_waits().empty());
            co_await at_once;
        }
        flag.reset();
        {
            auto waits = start(flag.wait());
            REQUIRE_FALSE(on.parked_waits().empty());
            CHECK_FALSE(on.parked_waits().front()->operation()->done());
            flag.set();
            CHECK(on.parked_waits().front()->operation()->done());
            CHECK(on.describe().operations().empty());
            co_await waits;
        }
        CHECK(on.parked_waits().empty());
    }(here));
}

}  // namespace test_coro_detail_parked_wait
