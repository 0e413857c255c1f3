#include <rdmacoro/transport/detail/close_elsewhere.hpp>

#include <rdmacoro/transport/shm/handshake.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/held.hpp"
#include "support/lingering_socket.hpp"
#include "support/user_namespace.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_transport_detail_close_elsewhere {

using namespace rdmacoro;
using namespace std::chrono_literals;
using detail::shm::unique_fd;

namespace {

std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

/// False after 20 s.
template <class Done>
bool until(Done done) {
    for (const auto limit = now() + 20s; !done(); ::usleep(1000)) {
        if (now() > limit) return false;
    }
    return true;
}
bool all_closed() {
    return until([] { return detail::closing_elsewhere() == 0; });
}

struct listening_socket {
    detail::shm::socket_name name{"close-elsewhere-" + std::to_string(::getpid())};
    unique_fd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    std::vector<unique_fd> clients;

    listening_socket() {
        REQUIRE(bind_again(socket) == 0);
        REQUIRE(::listen(socket.get(), 10) == 0);
        for (int n = 0; n < 3; ++n) {
            clients.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
            REQUIRE(::connect(clients.back().get(), name.raw(), name.length()) == 0);
        }
    }
    [[nodiscard]] int bind_again(const unique_fd& other) const {
        return ::bind(other.get(), name.raw(), name.length());
    }
    [[nodiscard]] bool clients_ended() const {
        char none = 0;
        for (const unique_fd& client : clients) {
            const ssize_t got = ::recv(client.get(), &none, 1, MSG_DONTWAIT);
            if (got > 0 || (got < 0 && errno == EAGAIN)) return false;
        }
        return true;
    }
};

}  // namespace

TEST_CASE("a socket that takes long to close is closed by a thread of its own") {
    const std::size_t open = test::open_descriptors();
    std::vector<unique_fd> kept;
    unique_fd slow = test::lingering_socket(kept);
    const auto began = now();
    detail::close_elsewhere(slow.release());
    CHECK(now() - began < 1s);
    CHECK(detail::closing_elsewhere() == 1);
    CHECK(all_closed());
    CHECK(now() - began > 1s);
    kept.clear();
    CHECK(test::open_descriptors() == open);
}

TEST_CASE("the end of a listening socket ends the clients in its queue, and its name is free at once") {
    listening_socket listening;
    detail::close_listener(listening.socket.release());
    CHECK(detail::closing_elsewhere() == 0);
    CHECK(listening.clients_ended());
    const unique_fd next(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    CHECK(listening.bind_again(next) == 0);
}

TEST_CASE("where many sockets are not closed yet a listening socket is closed with its clients by one thread "
          "more") {
    std::vector<unique_fd> kept;
    for (std::size_t n = 0; n < detail::most_closing; ++n)
        detail::close_elsewhere(test::lingering_socket(kept).release());
    listening_socket listening;
    CHECK(detail::closing_elsewhere() == detail::most_closing);
    detail::close_listener(listening.socket.release());
    const unique_fd next(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    CHECK(until([&] { return listening.bind_again(next) == 0; }));
    CHECK(until([&] { return listening.clients_ended(); }));
    CHECK(all_closed());
}

TEST_CASE("an own socket is told from none") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    CHECK(detail::is_own_user(ends[0]));
    ::close(ends[0]);
    ::close(ends[1]);
    CHECK_FALSE(detail::is_own_user(ends[0]));
}

TEST_CASE("where a user namespace shows other users under this user's number no socket is this user's") {
    struct user {
        uid_t number;
        bool told_apart;
    };
    const user as = GENERATE(user{65534, false}, user{0, true}, user{1234, true});
    test::child_process child([as](const std::string&) {
        if (!test::enter_user_namespace_as(as.number)) ::_exit(77);
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || ::geteuid() != as.number) ::_exit(2);
        ::_exit(detail::is_own_user(ends[0]) == as.told_apart &&
                        detail::is_indistinct_user() != as.told_apart &&
                        detail::is_this_user(as.number) == as.told_apart
                    ? 0
                    : 3);
    });
    child.tell("go");
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) SKIP_TEST("this system gives no user namespace");
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("user 65534 is told from others where the kernel has them all") {
    if (::geteuid() != 0) SKIP_TEST("needs root, to become another user");
    test::child_process child([](const std::string&) {
        if (::setuid(65534) != 0) ::_exit(2);
        ::_exit(detail::is_this_user(65534) && !detail::is_this_user(0) ? 0 : 3);
    });
    child.tell("go");
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace test_transport_detail_close_elsewhere
