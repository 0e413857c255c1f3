#include <rdmacoro/transport/detail/connect_info_exchange.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include <poll.h>
#include <unistd.h>

namespace test_transport_detail_connect_info_exchange {

using namespace rdmacoro;

namespace {

constexpr std::size_t info_bytes = 8;
using exchange = detail::connect_info_exchange<info_bytes>;
using step = exchange::step;

struct descriptor {
    int fd = -1;
    explicit descriptor(int which) : fd(which) {}
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
    ~descriptor() { hang_up(); }
    void hang_up() {
        if (fd >= 0) ::close(std::exchange(fd, -1));
    }
};

struct two_sockets {
    descriptor here{-1};
    descriptor there{-1};
    two_sockets() {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
        here.fd = ends[0];
        there.fd = ends[1];
    }
};

void write_info(exchange& by, const char* text) { std::memcpy(by.own_connect_info(), text, info_bytes); }
bool is_info(const exchange& of, const char* text) {
    return std::memcmp(of.connect_info(), text, info_bytes) == 0;
}

detail::inet_endpoint on_loopback() {
    const auto any = detail::inet_address::parse("net", "127.0.0.1:0", "");
    return detail::inet_resolved::ask(any, AI_NUMERICHOST).endpoints.at(0);
}

/// Goes on whenever the socket has an event.
step next(exchange& of, int fd) {
    step now = of.go_on(fd);
    for (int n = 0; now == step::wait && n < 100; ++n) {
        pollfd wanted{fd, POLLIN, 0};
        if ((of.wanted() & EPOLLOUT) != 0) wanted.events |= POLLOUT;
        if (::poll(&wanted, 1, 2000) <= 0) break;
        now = of.go_on(fd);
    }
    return now;
}

}  // namespace

TEST_CASE("two sides exchange their connect_info, and then a byte each") {
    two_sockets sockets;
    exchange here;
    exchange there;
    write_info(here, "info one");
    write_info(there, "info two");
    CHECK((here.wanted() & EPOLLOUT) != 0);
    CHECK(here.go_on(sockets.here.fd) == step::wait);
    CHECK((here.wanted() & EPOLLOUT) == 0);
    REQUIRE(there.go_on(sockets.there.fd) == step::connect_info);
    CHECK(is_info(there, "info one"));
    REQUIRE(there.answer(sockets.there.fd, std::byte{7}));
    CHECK(there.go_on(sockets.there.fd) == step::wait);
    REQUIRE(here.go_on(sockets.here.fd) == step::connect_info);
    CHECK(is_info(here, "info two"));
    REQUIRE(here.answer(sockets.here.fd, std::byte{9}));
    CHECK(here.go_on(sockets.here.fd) == step::done);
    CHECK(here.answered() == std::byte{7});
    CHECK(there.go_on(sockets.there.fd) == step::done);
    CHECK(there.answered() == std::byte{9});
}

TEST_CASE("a connect_info may arrive in pieces, and is reported once and whole") {
    two_sockets sockets;
    exchange here;
    const char* const text = "in parts!";
    for (std::size_t i = 0; i < info_bytes; ++i) {
        CHECK(here.go_on(sockets.here.fd) == step::wait);
        REQUIRE(::send(sockets.there.fd, text + i, 1, 0) == 1);
    }
    REQUIRE(here.go_on(sockets.here.fd) == step::connect_info);
    CHECK(is_info(here, text));
    REQUIRE(here.answer(sockets.here.fd, std::byte{1}));
    CHECK(here.go_on(sockets.here.fd) == step::wait);
    REQUIRE(::send(sockets.there.fd, text + info_bytes, 1, 0) == 1);
    CHECK(here.go_on(sockets.here.fd) == step::done);
    CHECK(here.answered() == std::byte{'!'});
}

TEST_CASE("a peer that hangs up before it has sent everything is lost") {
    const std::size_t sent = GENERATE(std::size_t{0}, std::size_t{3}, info_bytes);
    two_sockets sockets;
    exchange here;
    REQUIRE(here.go_on(sockets.here.fd) == step::wait);
    if (sent != 0) REQUIRE(::send(sockets.there.fd, "01234567", sent, 0) == static_cast<ssize_t>(sent));
    char own[info_bytes];
    REQUIRE(::recv(sockets.there.fd, own, sizeof own, 0) == info_bytes);
    sockets.there.hang_up();
    step now = here.go_on(sockets.here.fd);
    if (sent == info_bytes) {
        REQUIRE(now == step::connect_info);
        CHECK_FALSE(here.answer(sockets.here.fd, std::byte{1}));
    } else {
        CHECK(now == step::failed);
    }
    CHECK(here.failure().code == errc::peer_lost);
}

TEST_CASE("connect_info are exchanged over TCP between the connecting and the accepting side") {
    descriptor listening(-1);
    REQUIRE(detail::listen_for_exchange(on_loopback(), 4, listening.fd) == nullptr);
    int refused = -1;
    const descriptor client(
        detail::connect_for_exchange(detail::inet_endpoint::local(listening.fd), refused));
    REQUIRE(client.fd >= 0);
    CHECK(refused == 0);
    descriptor server(-1);
    pollfd wanted{listening.fd, POLLIN, 0};
    REQUIRE(::poll(&wanted, 1, 5000) == 1);
    CHECK(detail::accept_exchange(listening.fd, [&](int fd) { server.fd = fd; }) == 0);
    REQUIRE(server.fd >= 0);
    detail::set_exchange_options(server.fd);
    exchange here;
    exchange there;
    here.connects();
    write_info(here, "from one");
    write_info(there, "from two");
    static_cast<void>(here.go_on(client.fd));
    REQUIRE(next(there, server.fd) == step::connect_info);
    CHECK(is_info(there, "from one"));
    REQUIRE(there.answer(server.fd, std::byte{1}));
    REQUIRE(next(here, client.fd) == step::connect_info);
    CHECK(is_info(here, "from two"));
    REQUIRE(here.answer(client.fd, std::byte{1}));
    CHECK(next(here, client.fd) == step::done);
    CHECK(next(there, server.fd) == step::done);
}

TEST_CASE("connections that take long to begin are taken one in a call") {
    descriptor listening(-1);
    REQUIRE(detail::listen_for_exchange(on_loopback(), 4, listening.fd) == nullptr);
    const detail::inet_endpoint at = detail::inet_endpoint::local(listening.fd);
    int refused = -1;
    const descriptor one(detail::connect_for_exchange(at, refused));
    const descriptor two(detail::connect_for_exchange(at, refused));
    for (const descriptor* client : {&one, &two}) {
        pollfd connected{client->fd, POLLOUT, 0};
        REQUIRE(::poll(&connected, 1, 5000) == 1);
    }
    unsigned taken = 0;
    for (unsigned calls = 1; calls <= 3; ++calls) {
        CHECK(detail::accept_exchange(listening.fd, [&](int fd) {
                  const descriptor ends(fd);
                  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
                  while (std::chrono::steady_clock::now() < until) {}
                  ++taken;
              }) == 0);
        CHECK(taken == std::min(calls, 2u));
    }
}

TEST_CASE("without a listener the connection is refused, at once or at the first step") {
    descriptor bound(detail::open_exchange_socket(on_loopback()));
    const detail::inet_endpoint any = on_loopback();
    REQUIRE(::bind(bound.fd, any.get(), any.bytes) == 0);
    int refused = 0;
    const descriptor client(detail::connect_for_exchange(detail::inet_endpoint::local(bound.fd), refused));
    if (refused != 0) {
        CHECK(refused == ECONNREFUSED);
        CHECK(client.fd == -1);
        return;
    }
    exchange here;
    here.connects();
    CHECK(next(here, client.fd) == step::failed);
    CHECK(here.failure().code == errc::connection_refused);
    CHECK(here.failure().system == ECONNREFUSED);
}

TEST_CASE("a socket that is connected to itself was refused") {
    // As the system does by itself where the port is the local one that it chooses.
    detail::inet_endpoint own = on_loopback();
    const descriptor one(detail::open_exchange_socket(own));
    REQUIRE(::bind(one.fd, own.get(), own.bytes) == 0);
    own = detail::inet_endpoint::local(one.fd);
    const int begun = ::connect(one.fd, own.get(), own.bytes);
    REQUIRE((begun == 0 || errno == EINPROGRESS));
    pollfd wanted{one.fd, POLLOUT, 0};
    REQUIRE(::poll(&wanted, 1, 2000) == 1);
    REQUIRE(detail::inet_endpoint::peer(one.fd) == own);
    CHECK(detail::connect_error(one.fd) == ECONNREFUSED);
}

TEST_CASE("a port in use fails the step that binds") {
    descriptor first(-1);
    REQUIRE(detail::listen_for_exchange(on_loopback(), 4, first.fd) == nullptr);
    descriptor second(-1);
    const char* failed = detail::listen_for_exchange(detail::inet_endpoint::local(first.fd), 4, second.fd);
    const int why = errno;
    REQUIRE(failed != nullptr);
    CHECK(std::string(failed) == "bind");
    CHECK(why == EADDRINUSE);
}

}  // namespace test_transport_detail_connect_info_exchange
