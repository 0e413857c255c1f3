#include <rdmacoro/transport/tcp/connection.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

namespace test_transport_tcp_connection {

using namespace rdmacoro;
using namespace rdmacoro::test;

static_assert(std::movable<tcp_connection> && !std::copyable<tcp_connection>);

TEST_CASE("a connection that no link takes closes when it goes, and what its peer sent is not lost before") {
    tcp_world w;
    tcp_listener listener = w.listen();
    auto made = w.connect(listener);
    tcp_end a;
    a.link = std::make_unique<recorded_link>(std::move(made.client), a.sink);
    const auto data = pattern(100);
    REQUIRE(a.link->post_copied(header_of(1), const_buffers(std::span<const std::byte>(data))) ==
            post_result::done);
    w.turns(20);
    {
        tcp_end b;
        tcp_connection moved = std::move(made.server);
        b.link = std::make_unique<recorded_link>(std::move(moved), b.sink);
        w.until([&] { return b.sink.count == 1; });
    }
    w.until([&] { return a.sink.downs == 1; });
    CHECK(a.sink.reason == errc::peer_lost);

    auto other = w.connect(listener);
    tcp_end c;
    c.link = std::make_unique<recorded_link>(std::move(other.client), c.sink);
    other.server = {};
    w.until([&] { return c.sink.downs == 1; });
    CHECK(c.sink.reason == errc::peer_lost);
}

}  // namespace test_transport_tcp_connection
