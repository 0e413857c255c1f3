#include <rdmacoro/transport/detail/watcher.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
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

/// Takes twice the time that one look may take.
struct slow : detail::fd_handler {
    std::vector<int>* order = nullptr;
    int number = 0;
    slow() {
        ready = [](fd_handler& self, std::uint32_t) noexcept {
            const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
            while (std::chrono::steady_clock::now() < until) {}
            auto& own = static_cast<slow&>(self);
            if (own.order != nullptr) own.order->push_back(own.number);
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
    CHECK(watching.look(more) != 0);
    CHECK(more);
    const auto left_out = [](const counter& handler) { return handler.called == 0; };
    for (int look = 0; look < 40 && std::any_of(handlers.begin(), handlers.end(), left_out); ++look)
        CHECK(watching.look(more) != 0);
    CHECK(std::none_of(handlers.begin(), handlers.end(), left_out));
}

TEST_CASE("handlers that take long are called one in a look, each in its turn") {
    detail::watcher watching;
    std::vector<int> order;
    std::vector<std::unique_ptr<pipe_pair>> pipes;
    std::vector<slow> handlers(20);
    for (slow& handler : handlers) {
        handler.order = &order;
        handler.number = static_cast<int>(pipes.size());
        pipes.push_back(std::make_unique<pipe_pair>());
        pipes.back()->fill();
        REQUIRE(watching.watch(handler, pipes.back()->ends[0], EPOLLIN));
    }
    for (int look = 0; look < 20; ++look) {
        bool more = false;
        CHECK(watching.look(more) == 1);
        CHECK((more || look >= 16));
    }
    REQUIRE(order.size() == 20);
    for (int n = 0; n < 20; ++n) CHECK(order[static_cast<std::size_t>(n)] == n);
}

TEST_CASE("a handler that waits for its turn is not called for what it does not watch any more") {
    detail::watcher watching;
    pipe_pair pipes[3];
    slow first;
    counter unwatched;
    counter changed;
    detail::fd_handler* const all[] = {&first, &unwatched, &changed};
    for (std::size_t n = 0; n < 3; ++n) {
        pipes[n].fill();
        REQUIRE(watching.watch(*all[n], pipes[n].ends[0], EPOLLIN));
    }
    bool more = false;
    REQUIRE(watching.look(more) == 1);
    REQUIRE(more);
    watching.unwatch(first);
    watching.unwatch(unwatched);
    REQUIRE(watching.watch(changed, pipes[2].ends[0], EPOLLPRI));
    CHECK(watching.look(more) == 0);
    CHECK(unwatched.called + changed.called == 0);
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
