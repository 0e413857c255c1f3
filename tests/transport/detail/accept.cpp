#include <rdmacoro/transport/detail/accept.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <deque>

namespace test_transport_detail_accept {

using namespace rdmacoro;

namespace {

struct fake_session {
    int abandoned = 0;
    void abandon() noexcept { ++abandoned; }
};

struct fake_listener {
    scheduler& on;
    std::deque<fake_session*> open;
    detail::accept_waiters<fake_session> waiters;

    [[nodiscard]] scheduler& owner() noexcept { return on; }
    fake_session* take() noexcept {
        if (open.empty()) return nullptr;
        fake_session* first = open.front();
        open.pop_front();
        return first;
    }
    void wait(detail::accept_waiter<fake_session>& waiter) noexcept { waiters.push_back(waiter); }
    void arrive(fake_session* session) { waiters.pop_front()->arrived(session); }
};

using accepting = detail::accept_operation<fake_listener, fake_session>;

task<fake_session*> accept(fake_listener& from) {
    accepting one(from);
    co_return co_await one;
}

}  // namespace

TEST_CASE(
    "an accept takes a connection that is open, or waits for the next; at the listener's end it is closed") {
    test::virtual_time v;
    fake_listener listener{v.on, {}, {}};
    v.run([](fake_listener& from) -> task<> {
        fake_session open;
        from.open.push_back(&open);
        fake_session* const taken = co_await accept(from);
        CHECK(taken == &open);
        fake_session late;
        auto waiting = start(accept(from));
        auto behind = start(as_result(accept(from)));
        CHECK_FALSE(waiting.done());
        from.arrive(&late);
        from.arrive(nullptr);
        fake_session* const arrived = co_await waiting;
        CHECK(arrived == &late);
        const auto ended = co_await behind;
        CHECK(ended.error() == errc::closed);
        CHECK(open.abandoned + late.abandoned == 0);
    }(listener));
}

TEST_CASE("an accept that is canceled waits no more") {
    test::virtual_time v;
    fake_listener listener{v.on, {}, {}};
    v.run([](fake_listener& from) -> task<> {
        local_stop_source stop;
        auto waiting = start(as_result(with_stop(accept(from), stop.get_token())));
        CHECK_FALSE(from.waiters.empty());
        stop.request_stop();
        const auto ended = co_await waiting;
        CHECK(ended.error() == errc::canceled);
        CHECK(from.waiters.empty());
    }(listener));
}

TEST_CASE("a connection that was given to an accept and not taken up is abandoned") {
    scheduler on;
    fake_session given;
    fake_listener listener{on, {&given}, {}};
    {
        accepting one(listener);
        one.start();
    }
    CHECK(given.abandoned == 1);
}

}  // namespace test_transport_detail_accept
