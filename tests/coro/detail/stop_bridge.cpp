#include <rdmacoro/coro/detail/stop_bridge.hpp>

#include "support/catch.hpp"

#include <stop_token>
#include <thread>

namespace test_coro_detail_stop_bridge {

using namespace rdmacoro;
using namespace rdmacoro::detail;

TEST_CASE("a stop by another thread reaches the scheduler's own source in a later turn") {
    scheduler on;
    std::stop_source outside;
    local_stop_source inside;
    stop_bridge bridge;
    bridge.connect(on, outside.get_token(), inside);
    std::thread([&] { outside.request_stop(); }).join();
    CHECK_FALSE(inside.stop_requested());
    on.run_until([&] { return inside.stop_requested(); });
}

TEST_CASE("a token stopped before connecting stops in a later turn, too") {
    scheduler on;
    std::stop_source outside;
    outside.request_stop();
    local_stop_source inside;
    stop_bridge bridge;
    bridge.connect(on, outside.get_token(), inside);
    CHECK_FALSE(inside.stop_requested());
    on.turn();
    CHECK(inside.stop_requested());
}

TEST_CASE("after disconnecting no stop arrives, not even one that was posted") {
    scheduler on;
    std::stop_source outside;
    local_stop_source inside;
    {
        stop_bridge bridge;
        bridge.connect(on, outside.get_token(), inside);
        outside.request_stop();
        bridge.disconnect();
        bridge.disconnect();
    }
    on.turn();
    CHECK_FALSE(inside.stop_requested());
    stop_bridge unconnected;
    unconnected.connect(on, std::stop_token(), inside);
    unconnected.disconnect();
}

}  // namespace test_coro_detail_stop_bridge
