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

TEST_CASE("an idle connection has answered no probe for the limit when it ends, and is asked within an "
          "eighth of it") {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0);
    for (const int seconds : {1, 2, 10, 60, 3600, 1 << 30}) {
        detail::set_keepalive(fd, std::chrono::seconds(seconds));
        CHECK(option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1);
        const int limit = std::clamp(seconds, 2, 32'767);
        const int eighth = std::max(1, limit / 8);
        CHECK(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) <= eighth);
        const int unanswered = option(fd, IPPROTO_TCP, TCP_KEEPINTVL) * option(fd, IPPROTO_TCP, TCP_KEEPCNT);
        CHECK(unanswered >= limit);
        CHECK(unanswered < limit + eighth);
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
    CHECK(option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 1);
    CHECK(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 10'000);
    detail::set_silence_limit(fd, duration::max());
    CHECK(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 1 << 30);
    ::close(fd);
}

}  // namespace test_transport_detail_keepalive
