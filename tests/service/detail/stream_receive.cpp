#include <rdmacoro/service/detail/stream_receive.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace test_service_detail_stream_receive {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// A receive that the test fills.
class filled_receive : public basic_operation<filled_receive, received, rdmacoro::detail::receive_request> {
public:
    explicit filled_receive(scheduler& on)
        : basic_operation(&on, any_tag, any_source, mutable_buffers(), nullptr) {}
    void start() noexcept { began = true; }
    void cancel() noexcept { end(errc::canceled); }
    void finish_canceled() noexcept { fail_unbegun(errc::canceled); }
    result<received> outcome() noexcept {
        if (code_) return code_;
        return got_;
    }
    /// A message meets it.
    void meet() noexcept { filling_ = reinterpret_cast<rdmacoro::detail::connection_base*>(this); }
    void end(errc code = errc::ok) noexcept {
        filling_ = nullptr;
        got_ = {5, 0, 0};
        finish(code);
    }

    bool began = false;
};

struct seen {
    std::error_code code;
    bool gave_up;
    duration at;
};

/// A receive that is asked to stop after 1 s, with a grace of 10 s; `with` is what happens to it beside that.
template <class With>
seen receive_while(With with, bool delegated = false) {
    virtual_time world;
    return world.run([](virtual_time& in, With beside, bool by_link) -> task<seen> {
        filled_receive receive(in.on);
        local_stop_source stop;
        task_group group;
        group.spawn([&stop]() -> task<> {
            co_await sleep_for(1s);
            stop.request_stop();
        });
        group.spawn([&receive, &beside]() -> task<> { co_await beside(receive); });
        rdmacoro::detail::stream_receive ending(receive, by_link, 10s);
        const auto got = co_await with_stop(
            [](auto& what) -> task<result<received>> { co_return co_await what; }(ending), stop.get_token());
        const seen ended{got.error(), ending.gave_up(), in.now()};
        co_await group.join();
        co_return ended;
    }(world, with, delegated));
}

}  // namespace

TEST_CASE("a stop request ends a receive that no message has met at once") {
    const seen ended = receive_while([](filled_receive&) -> task<> { co_return; });
    CHECK(ended.code == errc::canceled);
    CHECK_FALSE(ended.gave_up);
    CHECK(ended.at == 1s);
}

TEST_CASE("a receive that a message has met ends with it, also after the stop request") {
    const seen ended = receive_while([](filled_receive& of) -> task<> {
        of.meet();
        co_await sleep_for(3s);
        of.end();
    });
    CHECK_FALSE(ended.code);
    CHECK_FALSE(ended.gave_up);
    CHECK(ended.at == 3s);
}

TEST_CASE("a message that does not come to its end is given up after the grace period") {
    const seen ended = receive_while([](filled_receive& of) -> task<> {
        of.meet();
        co_return;
    });
    CHECK(ended.code == errc::canceled);
    CHECK(ended.gave_up);
    CHECK(ended.at == 11s);
}

TEST_CASE("a receive that the link holds is none that a message has met") {
    const seen ended = receive_while(
        [](filled_receive& of) -> task<> {
            of.meet();
            of.posted_.place = rdmacoro::detail::receive_request::stage::posted;
            co_return;
        },
        true);
    CHECK(ended.code == errc::canceled);
    CHECK_FALSE(ended.gave_up);
    CHECK(ended.at == 1s);
}

TEST_CASE("a receive whose token is stopped before does not begin") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        filled_receive receive(on);
        local_stop_source stop;
        stop.request_stop();
        rdmacoro::detail::stream_receive ending(receive, false, 10s);
        const auto got = co_await with_stop(
            [](auto& what) -> task<result<received>> { co_return co_await what; }(ending), stop.get_token());
        CHECK(got.error() == errc::canceled);
        CHECK_FALSE(receive.began);
    }(world.on));
}

}  // namespace test_service_detail_stream_receive
