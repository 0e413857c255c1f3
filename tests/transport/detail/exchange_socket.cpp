#include <rdmacoro/transport/detail/exchange_socket.hpp>

#include <rdmacoro/transport/detail/exchange_listener.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <cstring>
#include <string>

namespace test_transport_detail_exchange_socket {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

constexpr std::size_t info_bytes = 8;

detail::inet_endpoint on_loopback() {
    const auto any = detail::inet_address::parse("net", "127.0.0.1:0", "");
    return detail::inet_resolved::ask(any, AI_NUMERICHOST).endpoints.at(0);
}

/// Opens by an exchange, as sessions do.
struct session : private detail::fd_handler {
    session(detail::polled_watcher& by, std::string own, bool welcomes = true)
        : socket(by, *this), info(std::move(own)), welcome(welcomes) {
        fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
            auto& of = static_cast<session&>(self);
            if (of.socket.exchanges()) {
                of.socket.go_on(of);
            } else {
                of.hung_up = true;
                of.socket.unwatch();
            }
        };
    }
    void open(int fd) {
        REQUIRE(socket.open(fd, peer) == nullptr);
        std::memcpy(socket.exchange().own_connect_info(), info.data(), info_bytes);
        REQUIRE(socket.watch() == nullptr);
    }
    bool take_connect_info() noexcept {
        theirs.assign(reinterpret_cast<const char*>(socket.exchange().connect_info()), info_bytes);
        if (!welcome) {
            socket.close();
            return false;
        }
        return socket.answer(std::byte{7});
    }
    void exchanged(std::byte from_peer) noexcept { answer = std::to_integer<int>(from_peer); }
    void exchange_failed(const detail::exchange_failure& how) noexcept {
        failed = how.code;
        socket.close();
    }

    detail::exchange_socket<info_bytes> socket;
    detail::inet_endpoint peer{};
    std::string info;
    bool welcome;
    std::string theirs;
    int answer = 0;
    errc failed = errc::ok;
    bool hung_up = false;
};
static_assert(detail::exchanging_session<session>);

/// Two sessions over TCP, the second accepted by a listener.
struct two_sessions {
    explicit two_sessions(bool welcomes = true)
        : client(watching, "info one"), server(watching, "info two", welcomes) {
        detail::exchange_listener listening(on, watching, this, [](void* self, int fd) noexcept {
            static_cast<two_sessions*>(self)->server.open(fd);
        });
        REQUIRE(listening.listen(on_loopback(), 4) == nullptr);
        int refused = -1;
        const detail::inet_endpoint at = listening.address();
        const int fd = detail::connect_for_exchange(at, refused);
        REQUIRE(fd >= 0);
        client.peer = at;
        client.open(fd);
        client.socket.exchange().connects();
        until([&] { return server.socket.is_open() || !server.theirs.empty(); });
    }
    template <class Done>
    void until(Done done) {
        for (int n = 0; n < 1'000'000 && !done(); ++n) watching.look();
        REQUIRE(done());
    }

    scheduler on{impatient{}};
    detail::polled_watcher watching;
    session client;
    session server;
};

}  // namespace

TEST_CASE("two sessions exchange connect_info and answers over a listener, and notice each other's end") {
    two_sessions both;
    both.until([&] { return both.client.answer != 0 && both.server.answer != 0; });
    CHECK(both.client.theirs == "info two");
    CHECK(both.server.theirs == "info one");
    CHECK(both.client.answer == 7);
    CHECK(both.server.answer == 7);
    CHECK(both.server.peer.bytes != 0);
    CHECK_FALSE(both.client.socket.exchanges());
    CHECK(both.client.socket.is_open());
    both.client.socket.close();
    CHECK_FALSE(both.client.socket.is_open());
    both.until([&] { return both.server.hung_up; });
}

TEST_CASE("a session that refuses the connect_info may close its socket, and the other fails") {
    two_sessions both(false);
    both.until([&] { return both.client.failed != errc::ok; });
    CHECK(both.client.failed == errc::peer_lost);
    CHECK(both.server.theirs == "info one");
    CHECK(both.server.answer == 0);
    CHECK_FALSE(both.server.socket.is_open());
}

TEST_CASE("without a descriptor nothing is opened") {
    detail::polled_watcher watching;
    session none(watching, "info one");
    const char* const step = none.socket.open(-1, none.peer);
    REQUIRE(step != nullptr);
    CHECK(std::string(step) == "open a socket");
    CHECK_FALSE(none.socket.exchanges());
}

}  // namespace test_transport_detail_exchange_socket
