#include <rdmacoro/transport/detail/watcher.hpp>

#include "support/catch.hpp"

#include <cerrno>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace test_transport_detail_watcher {

using namespace rdmacoro;

namespace {

struct pipe_pair {
    int ends[2];
    pipe_pair() { REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0); }
    pipe_pair(const pipe_pair&) = delete;
    pipe_pair& operator=(const pipe_pair&) = delete;
    ~pipe_pair() {
        ::close(ends[0]);
        ::close(ends[1]);
    }
    void fill() const { REQUIRE(::write(ends[1], "x", 1) == 1); }
};

struct counter : detail::fd_handler {
    int called = 0;
    detail::watcher* of = nullptr;
    counter* ends = nullptr;  // unwatched by this handler
    counter() {
        ready = [](fd_handler& self, std::uint32_t) noexcept {
            auto& own = static_cast<counter&>(self);
            ++own.called;
            if (own.ends != nullptr) own.of->unwatch(*own.ends);
        };
    }
};

}  // namespace

TEST_CASE("a handler is called as long as its descriptor is ready, until it is unwatched") {
    detail::watcher watching;
    pipe_pair pipe;
    counter handler;
    bool more = true;
    REQUIRE(watching.watch(handler, pipe.ends[0], EPOLLIN));
    CHECK(watching.look(more) == 0);
    CHECK_FALSE(more);
    pipe.fill();
    CHECK(watching.look(more) == 1);
    CHECK(watching.look(more) == 1);
    CHECK(handler.called == 2);
    REQUIRE(watching.watch(handler, pipe.ends[0], EPOLLPRI));  // other events of the same
    CHECK(watching.look(more) == 0);
    watching.unwatch(handler);
    watching.unwatch(handler);
    CHECK(handler.watched == -1);
}

TEST_CASE("a handler that another handler unwatches is not called in the same round") {
    detail::watcher watching;
    pipe_pair one;
    pipe_pair two;
    counter a;
    counter b;
    a.of = b.of = &watching;
    a.ends = &b;
    b.ends = &a;
    REQUIRE(watching.watch(a, one.ends[0], EPOLLIN));
    REQUIRE(watching.watch(b, two.ends[0], EPOLLIN));
    one.fill();
    two.fill();
    bool more = false;
    CHECK(watching.look(more) == 1);
    CHECK(a.called + b.called == 1);
}

TEST_CASE("a full round reports that there may be more, which the next round calls") {
    detail::watcher watching;
    std::vector<std::unique_ptr<pipe_pair>> pipes;
    std::vector<counter> handlers(20);
    for (counter& handler : handlers) {
        pipes.push_back(std::make_unique<pipe_pair>());
        pipes.back()->fill();
        REQUIRE(watching.watch(handler, pipes.back()->ends[0], EPOLLIN));
    }
    bool more = false;
    unsigned called = watching.look(more);
    CHECK(more);
    called += watching.look(more);
    CHECK(called >= handlers.size());
}

TEST_CASE("a descriptor that only wakes calls nothing, and an invalid one is refused") {
    detail::watcher watching;
    pipe_pair pipe;
    detail::fd_handler wakes;
    REQUIRE(watching.watch(wakes, pipe.ends[0], EPOLLIN));
    pipe.fill();
    bool more = false;
    CHECK(watching.look(more) == 0);
    detail::fd_handler none;
    CHECK_FALSE(watching.watch(none, -1, EPOLLIN));
    CHECK(errno == EBADF);
}

TEST_CASE("a domain looks seldom, and often while an event is awaited") {
    detail::polled_watcher watching;
    time_point now{std::chrono::hours(1)};
    const auto polls_until_due = [&](bool soon) {
        watching.look();
        static_cast<void>(watching.due(soon, now));
        watching.look();
        unsigned polls = 1;
        while (!watching.due(soon, now)) ++polls;
        return polls;
    };
    const unsigned seldom = polls_until_due(false);
    const unsigned often = polls_until_due(true);
    CHECK(often < seldom);
    {
        detail::awaited_event opening(watching);
        CHECK(polls_until_due(false) == seldom);
        opening.begin();
        opening.begin();
        CHECK(polls_until_due(false) == often);
        opening.end();
        CHECK(polls_until_due(false) == seldom);
        opening.begin();
    }
    CHECK(polls_until_due(false) == seldom);
    watching.look();
    watching.look_next();
    CHECK(watching.due(false, now));
}

TEST_CASE("a domain with long turns looks by the clock") {
    detail::polled_watcher watching;
    time_point now{std::chrono::hours(1)};
    CHECK(watching.due(false, now));
    watching.look();
    unsigned looks = 0;
    constexpr unsigned turns = 20;
    for (unsigned n = 0; n < turns; ++n) {
        now += std::chrono::milliseconds(5);
        if (!watching.due(false, now)) continue;
        ++looks;
        watching.look();
    }
    CHECK(looks == turns);
}

TEST_CASE("a round that may have left descriptors out is followed by another") {
    detail::polled_watcher watching;
    std::vector<std::unique_ptr<pipe_pair>> pipes;
    std::vector<counter> handlers(20);
    for (counter& handler : handlers) {
        pipes.push_back(std::make_unique<pipe_pair>());
        pipes.back()->fill();
        REQUIRE(watching.watch(handler, pipes.back()->ends[0], EPOLLIN));
    }
    CHECK(watching.look());
    CHECK(watching.due(false, {}));
    for (counter& handler : handlers) watching.unwatch(handler);
    CHECK_FALSE(watching.look());
}

}  // namespace test_transport_detail_watcher
