#include <rdmacoro/service/detail/gate_way.hpp>

#include <rdmacoro/transport/shm.hpp>

#include "support/catch.hpp"

namespace test_service_detail_gate_way {

using namespace rdmacoro;

static_assert(!detail::gate_way<endpoint<rdmacoro::shm>>::by_id);
static_assert(!detail::gate_way<calls<rdmacoro::shm>>::by_id);
static_assert(detail::gate_way<node<rdmacoro::shm>>::by_id);
static_assert(detail::gate_way<node_calls<rdmacoro::shm>>::by_id);

TEST_CASE("a gate finds scheduler and peers through a node, and through its calls") {
    scheduler on;
    on.run([](scheduler& here) -> task<> {
        node<rdmacoro::shm> one(1);
        node_calls<rdmacoro::shm> peers(one);
        CHECK(&detail::gate_way<node<rdmacoro::shm>>::owner(one) == &here);
        CHECK(&detail::gate_way<node_calls<rdmacoro::shm>>::owner(peers) == &here);
        CHECK(detail::gate_way<node<rdmacoro::shm>>::peer(one, 9).id() == 9);
        CHECK(detail::gate_way<node_calls<rdmacoro::shm>>::peer(peers, 9).id() == 9);
        co_return;
    }(on));
}

}  // namespace test_service_detail_gate_way
