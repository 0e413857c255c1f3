#include <rdmacoro/transport/detail/link_actors.hpp>

#include "support/catch.hpp"

namespace test_transport_detail_link_actors {

using namespace rdmacoro;

namespace {

struct offers {
    bool one_sided_offloaded;
};
struct ordinary_link {
    bool offloaded;
    [[nodiscard]] offers capabilities() const noexcept { return {offloaded}; }
};
struct link_that_tells : ordinary_link {
    [[nodiscard]] next_actor gives_room() const noexcept { return next_actor::peer_poll; }
    [[nodiscard]] next_actor moves_bytes() const noexcept { return next_actor::this_scheduler; }
};

}  // namespace

TEST_CASE("a link's actors are those that it names, or those that follow from its capabilities") {
    CHECK(detail::transfers_of(ordinary_link{true}) == next_actor::device);
    CHECK(detail::transfers_of(ordinary_link{false}) == next_actor::peer_poll);
    CHECK(detail::room_of(ordinary_link{true}) == next_actor::device);
    CHECK(detail::room_of(ordinary_link{false}) == next_actor::network);
    CHECK(detail::transfers_of(link_that_tells{{true}}) == next_actor::this_scheduler);
    CHECK(detail::room_of(link_that_tells{{false}}) == next_actor::peer_poll);
}

}  // namespace test_transport_detail_link_actors
