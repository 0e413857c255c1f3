#include <rdmacoro/transport/tcp/options.hpp>

#include "support/catch.hpp"

namespace test_transport_tcp_options {

using namespace rdmacoro;

static_assert(has(tcp_feature::all, tcp_feature::multishot_receive));
static_assert(!has(tcp_feature::all - tcp_feature::multishot_receive, tcp_feature::multishot_receive));
static_assert(has(tcp_feature::single_issuer | tcp_feature::deferred_task_work,
                  tcp_feature::deferred_task_work));
static_assert(!has(tcp_feature::single_issuer, tcp_feature::single_issuer | tcp_feature::deferred_task_work));
static_assert(has(tcp_feature::none, tcp_feature::none));

TEST_CASE("the default options use every feature and limit every wait") {
    const tcp_options options;
    CHECK(options.features == tcp_feature::all);
    CHECK(options.handshake_timeout > duration{});
    CHECK(options.peer_timeout > duration{});
    CHECK(options.most_waiting > 0);
}

}  // namespace test_transport_tcp_options
