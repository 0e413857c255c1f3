#include <rdmacoro/transport/tcp/listen_state.hpp>

#include <rdmacoro/transport/tcp/engine.hpp>

#include "support/catch.hpp"

#include <string>

#include <netdb.h>
#include <sys/socket.h>
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

namespace {
struct recording_waiter final : accept_waiter<tcp_session> {
    unsigned calls = 0;
    errc why = errc::ok;
    void arrived(tcp_session* which, errc reason) noexcept override {
        ++calls;
        if (which == nullptr) why = reason;
    }
};
}  // namespace

TEST_CASE("a listening socket that was shut down ends what waits for clients, and asks for none any more") {
    scheduler on;
    tcp_engine engine(on, {});
    engine.enable();
    const inet_address any = inet_address::parse("tcp", "127.0.0.1:0", "");
    {
        const int fd = open_tcp_listener(any, inet_resolved::ask(any, AI_NUMERICHOST).endpoints.at(0), 4);
        tcp_listen_state state(engine, fd);
        recording_waiter waiting[2];
        for (recording_waiter& each : waiting) state.wait(each);
        engine.poll();
        REQUIRE(::shutdown(fd, SHUT_RDWR) == 0);  // as ss -K does
        for (int n = 0; n < 1000 && waiting[1].calls == 0; ++n) engine.poll();
        for (recording_waiter& each : waiting) {
            CHECK(each.calls == 1);
            CHECK(each.why == errc::closed);
            static_cast<list_node<accept_tag>&>(each).unlink();
        }
        CHECK(state.take() == nullptr);
        recording_waiter later;
        state.wait(later);
        CHECK(later.calls == 1);
        static_cast<list_node<accept_tag>&>(later).unlink();
        const std::uint64_t before = engine.system_calls();
        for (int n = 0; n < 1000; ++n) engine.poll();
        CHECK(engine.system_calls() == before);
    }
    for (int n = 0; n < 1000 && engine.sockets() != 0; ++n) engine.poll();
    CHECK(engine.sockets() == 0);
}

}  // namespace test_transport_tcp_listen_state
