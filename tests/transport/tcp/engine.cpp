#include <rdmacoro/transport/tcp/engine.hpp>

#include "support/catch.hpp"

#include <vector>

#include <sys/socket.h>
#include <unistd.h>

namespace test_transport_tcp_engine {

using namespace rdmacoro;
using namespace rdmacoro::detail;

TEST_CASE("an engine owns its sockets until they are abandoned and the kernel has let go of them") {
    scheduler on;
    tcp_engine engine(on, {});
    engine.enable();
    engine.enable();
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    tcp_session& one = engine.add_socket(fds[0]);
    tcp_session& other = engine.add_socket(fds[1]);
    CHECK(engine.sockets() == 2);
    CHECK(&one.engine() == &engine);
    one.abandon();
    other.abandon();
    for (int n = 0; n < 1000 && engine.sockets() != 0; ++n) engine.poll();
    CHECK(engine.sockets() == 0);
    CHECK(::write(fds[0], "", 1) < 0);  // closed
}

TEST_CASE("the table of regions is the engine's own, and an idle poll moves nothing") {
    scheduler on;
    tcp_engine engine(on, {});
    engine.enable();
    std::vector<std::byte> memory(10);
    const remote_region made = engine.regions().add(memory, access_rights::remote_read);
    CHECK(engine.regions().registered() == 1);
    engine.deregister(made.key);
    CHECK(engine.regions().registered() == 0);
    CHECK_FALSE(engine.poll());
    engine.arm();
    CHECK_FALSE(engine.poll());
    engine.disarm();
    CHECK(engine.chunks().in_use() == 0);
}

}  // namespace test_transport_tcp_engine
