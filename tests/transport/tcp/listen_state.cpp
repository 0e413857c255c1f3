#include <rdmacoro/transport/tcp/listen_state.hpp>

#include <rdmacoro/transport/tcp/engine.hpp>

#include "support/catch.hpp"

#include <string>

#include <netdb.h>
#include <unistd.h>

namespace test_transport_tcp_listen_state {

using namespace rdmacoro;
using namespace rdmacoro::detail;

TEST_CASE("a listening socket gets a port, and a second one on it is refused by its address") {
    const inet_address any = inet_address::parse("tcp", "127.0.0.1:0", "");
    const int fd = open_tcp_listener(any, inet_resolved::ask(any, AI_NUMERICHOST).endpoints.at(0), 4);
    REQUIRE(fd >= 0);
    const std::string text = inet_endpoint::local(fd).text();
    const inet_address same = inet_address::parse("tcp", text, "");
    try {
        ::close(open_tcp_listener(same, inet_resolved::ask(same, AI_NUMERICHOST).endpoints.at(0), 4));
        FAIL("two sockets listen on one port");
    } catch (const error& refused) {
        CHECK(refused.code() == errc::address_in_use);
        CHECK_THAT(std::string(refused.what()), test::contains(text));
    }
    ::close(fd);
}

TEST_CASE("a listener without clients has nothing to give, and knows its address") {
    scheduler on;
    tcp_engine engine(on, {});
    engine.enable();
    const inet_address any = inet_address::parse("tcp", "127.0.0.1:0", "");
    {
        tcp_listen_state state(
            engine, open_tcp_listener(any, inet_resolved::ask(any, AI_NUMERICHOST).endpoints.at(0), 4));
        CHECK(state.take() == nullptr);
        CHECK_THAT(state.address().text(), test::contains("127.0.0.1:"));
        CHECK(&state.owner() == &on);
        CHECK(engine.sockets() == 1);
    }
    for (int n = 0; n < 1000 && engine.sockets() != 0; ++n) engine.poll();
    CHECK(engine.sockets() == 0);
}

}  // namespace test_transport_tcp_listen_state
