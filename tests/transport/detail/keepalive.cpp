#include <rdmacoro/transport/detail/keepalive.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace test_transport_detail_keepalive {

using namespace rdmacoro;

namespace {

int option(int fd, int level, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    CHECK(::getsockopt(fd, level, name, &value, &bytes) == 0);
    return value;
}

}  // namespace

TEST_CASE("an idle connection is probed so that the last unanswered probe comes at the limit") {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    for (const int seconds : {1, 2, 10, 60, 3600, 1 << 30}) {
        detail::set_keepalive(fd, std::chrono::seconds(seconds));
        CHECK(option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
        const int whole = option(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
                          option(fd, IPPROTO_TCP, TCP_KEEPINTVL) * option(fd, IPPROTO_TCP, TCP_KEEPCNT);
        CHECK(whole <= std::max(2, seconds));
        if (seconds <= 32'767) CHECK(whole >= seconds - seconds / 8);
        CHECK(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 0);
    }
    ::close(fd);
}

TEST_CASE(
    "what a silent connection last said may stay unacknowledged until the limit, and its probes unanswered") {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    detail::set_silence_limit(fd, std::chrono::seconds(10));
    CHECK(option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 5);
    CHECK(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 10'000);
    detail::set_silence_limit(fd, duration::max());
    CHECK(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 1 << 30);
    ::close(fd);
}

}  // namespace test_transport_detail_keepalive
