#include <rdmacoro/coro/detail/described_step.hpp>

#include "support/catch.hpp"

namespace test_coro_detail_described_step {

using namespace rdmacoro;

TEST_CASE("a step is described with its peer as long as its object lives", "[describe]") {
    scheduler here;
    static constexpr rdmacoro::detail::wait_facts facts{"open", "not answered", next_actor::peer_poll};
    {
        const rdmacoro::detail::described_step step(here, facts, "shm://x");
        const description all = here.describe();
        REQUIRE(all.operations().size() == 1);
        CHECK(all.operations()[0].text() ==
              "open, peer shm://x: not answered; the peer's scheduler must run");
    }
    CHECK(here.describe().operations().empty());
}

}  // namespace test_coro_detail_described_step
