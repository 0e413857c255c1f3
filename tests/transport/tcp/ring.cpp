#include <rdmacoro/transport/tcp/ring.hpp>

#include "support/catch.hpp"

#include <string>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace test_transport_tcp_ring {

using namespace rdmacoro;
using rdmacoro::detail::tcp_completion_handler;
using rdmacoro::detail::tcp_ring;

namespace {

struct recorder final : tcp_completion_handler {
    struct entry {
        std::uint64_t user_data;
        int outcome;
    };
    std::vector<entry> entries;
    void completed(std::uint64_t user_data, int outcome, unsigned) noexcept override {
        entries.push_back({user_data, outcome});
    }
};

bool readable(int fd) {
    pollfd asked{fd, POLLIN, 0};
    return ::poll(&asked, 1, 0) == 1;
}

}  // namespace

TEST_CASE("requests complete with their user data, more of them than fit at a time, too") {
    recorder seen;
    tcp_ring ring(seen, GENERATE(tcp_feature::all, tcp_feature::none));
    ring.enable();
    CHECK_FALSE(ring.has_completions());
    const std::uint64_t count = 2 * tcp_ring::submissions;
    for (std::uint64_t n = 0; n < count; ++n) {
        io_uring_sqe& request = ring.request();
        io_uring_prep_nop(&request);
        request.user_data = n;
    }
    CHECK(ring.wants_enter());
    while (seen.entries.size() < count) {
        ring.enter();
        ring.reap();
    }
    for (std::uint64_t n = 0; n < count; ++n) {
        CHECK(seen.entries[n].user_data == n);
        CHECK(seen.entries[n].outcome == 0);
    }
}

TEST_CASE("the descriptor for waking becomes readable only while it is armed") {
    recorder seen;
    tcp_ring ring(seen, tcp_feature::all);
    ring.enable();
    const auto nop = [&] {
        io_uring_prep_nop(&ring.request());
        ring.enter();
        ring.reap();
    };
    nop();
    CHECK_FALSE(readable(ring.wake_fd()));
    ring.arm();
    nop();
    CHECK(readable(ring.wake_fd()));
    ring.disarm();
    ring.arm();
    CHECK_FALSE(readable(ring.wake_fd()));
}

TEST_CASE("a ring says what it uses of the kernel") {
    recorder seen;
    const tcp_ring least(seen, tcp_feature::none);
    CHECK_THAT(least.describe(), test::contains("cooperative task work"));
    CHECK_FALSE(least.multishot());
    tcp_ring all(seen, tcp_feature::all);
    CHECK_THAT(all.describe(), test::contains("io_uring"));
    if (all.multishot()) {
        CHECK(all.may_multishot());
        all.give_up_multishot();
        CHECK_FALSE(all.may_multishot());
        CHECK_THAT(all.describe(), test::contains("poll before receive"));
    }
}

}  // namespace test_transport_tcp_ring
