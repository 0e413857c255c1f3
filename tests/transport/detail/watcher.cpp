#include <rdmacoro/transport/detail/watcher.hpp>

#include "support/catch.hpp"

#include <memory>
#include <vector>

#include <fcntl.h>

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
    void say() const { REQUIRE(::write(ends[1], "x", 1) == 1); }
};

struct counter : detail::fd_handler {
    int called = 0;
    detail::watcher* of = nullptr;
    counter* ends = nullptr;  // is unwatched by this one's call
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
    pipe.say();
    CHECK(watching.look(more) == 1);
    CHECK(watching.look(more) == 1);
    CHECK(handler.called == 2);
    REQUIRE(watching.watch(handler, pipe.ends[0], EPOLLPRI));  // other events of the same
    CHECK(watching.look(more) == 0);
    watching.unwatch(handler);
    watching.unwatch(handler);
    CHECK(handler.watched == -1);
}

TEST_CASE("a handler that is unwatched by another's call is not called in the same round") {
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
    one.say();
    two.say();
    bool more = false;
    CHECK(watching.look(more) == 1);
    CHECK(a.called + b.called == 1);
}

TEST_CASE("more than a round's worth is said to be there, and comes in the next") {
    detail::watcher watching;
    std::vector<std::unique_ptr<pipe_pair>> pipes;
    std::vector<counter> handlers(20);
    for (counter& handler : handlers) {
        pipes.push_back(std::make_unique<pipe_pair>());
        pipes.back()->say();
        REQUIRE(watching.watch(handler, pipes.back()->ends[0], EPOLLIN));
    }
    bool more = false;
    unsigned called = watching.look(more);
    CHECK(more);
    called += watching.look(more);
    CHECK(called >= handlers.size());
}

TEST_CASE("a descriptor that only wakes has nobody to call, and one that is none is refused") {
    detail::watcher watching;
    pipe_pair pipe;
    detail::fd_handler wakes;
    REQUIRE(watching.watch(wakes, pipe.ends[0], EPOLLIN));
    pipe.say();
    bool more = false;
    CHECK(watching.look(more) == 0);
    detail::fd_handler none;
    CHECK_FALSE(watching.watch(none, -1, EPOLLIN));
    CHECK(errno == EBADF);
}
