#include <rdmacoro/transport/tcp/ring.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/tcp_pair.hpp"

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

TEST_CASE("where there is no memory for its buffers a ring goes without them, and leaves nothing open") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted here");
    const std::size_t bytes =
        GENERATE(tcp_ring::buffers * tcp_ring::buffer_bytes, tcp_ring::buffers * sizeof(io_uring_buf));
    recorder seen;
    const std::size_t open = test::open_descriptors();
    {
        const test::failing_allocations none(bytes, bytes);
        try {
            tcp_ring ring(seen, tcp_feature::all);
            CHECK_FALSE(ring.multishot());
            CHECK_THAT(ring.describe(), test::contains("poll before receive"));
        } catch (const std::exception& why) {
            FAIL_CHECK(why.what());
        }
    }
    CHECK(test::open_descriptors() == open);
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
