#include <rdmacoro/transport/tcp/address.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

namespace test_transport_tcp_address {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("addresses of tcp are those of no other scheme") {
    CHECK(detail::parse_tcp_address("tcp://node7:65535").host == "node7");
    CHECK(detail::parse_tcp_address("127.0.0.1:7471").port == "7471");
    try {
        static_cast<void>(detail::parse_tcp_address("verbs://host:1"));
        FAIL("parsed");
    } catch (const error& e) {
        CHECK(e.code() == errc::address_invalid);
        CHECK_THAT(std::string(e.what()),
                   contains("not a tcp:// address") && contains("such as 127.0.0.1:7471"));
    }
}

TEST_CASE("a host's name is looked up without holding up the scheduler") {
    tcp_world world;
    tcp_listener listener = world.listen("localhost:0");
    const std::string address = listener.address();
    const std::string port = address.substr(address.rfind(':') + 1);
    bool accepted = false;
    tcp_connection server;
    const auto accept = [](tcp_listener& from, tcp_connection& into, bool& done) -> task<> {
        into = co_await from.accept();
        done = true;
    };
    task<> accepting = accept(listener, server, accepted);
    accepting.bind({&world.on, {}});
    detail::ready_node root;
    root.waiter = accepting.handle();
    world.on.make_ready(root);
    tcp_connection client = world.on.run(world.client.connect("tcp://localhost:" + port));
    world.until([&] { return accepting.handle().done(); });
    CHECK(client);
    CHECK(server);
}

TEST_CASE("a host that does not exist is refused by name") {
    tcp_world world;
    try {
        static_cast<void>(world.on.run(world.client.connect("no-such-host.invalid:5")));
        FAIL("connected");
    } catch (const error& e) {
        CHECK(e.code() == errc::address_invalid);
        CHECK_THAT(std::string(e.what()), contains("no-such-host.invalid:5"));
    }
}

TEST_CASE("a look-up that is canceled is forgotten, whenever its answer comes") {
    for (unsigned turns = 0; turns < 20; ++turns) {
        tcp_world world;
        local_stop_source stop;
        bool ended = false;
        const auto connect = [](tcp_world& w, bool& over) -> task<> {
            try {
                static_cast<void>(co_await w.client.connect("localhost:1"));
            } catch (const error& e) {
                over = e.code() == errc::canceled || e.code() == errc::connection_refused;
            }
        };
        task<> asking = connect(world, ended);
        asking.bind({&world.on, stop.get_token()});
        detail::ready_node root;
        root.waiter = asking.handle();
        world.on.make_ready(root);
        world.turns(turns);
        stop.request_stop();
        world.until([&] { return asking.handle().done(); });
        CHECK(ended);
    }
}

TEST_CASE("IPv6 works as IPv4 does") {
    tcp_world world;
    tcp_listener listener;
    try {
        listener = world.listen("[::1]:0");
    } catch (const error&) {
        SKIP_TEST("no IPv6 on this machine");
    }
    CHECK_THAT(listener.address(), contains("[::1]:"));
    auto made = world.connect(listener);
    tcp_end a;
    tcp_end b;
    a.link = std::make_unique<recorded_link>(std::move(made.client), a.sink);
    b.link = std::make_unique<recorded_link>(std::move(made.server), b.sink);
    CHECK(a.link->peer_name() == listener.address());
    REQUIRE(a.link->post_copied(header_of(1), pattern(10)) == post_result::done);
    world.until([&] { return b.sink.count == 1; });
}

}  // namespace test_transport_tcp_address
