#include <rdmacoro/transport/detail/taken_port.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/coro/describe.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

namespace test_transport_detail_taken_port {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::inet_address;
using detail::taken_port;
using namespace std::chrono_literals;

namespace {

const std::error_code taken = make_error_code(errc::address_in_use);

inet_address at(std::string_view text) { return inet_address::parse("tcp", text, ""); }

task<unsigned> attempts(taken_port& port) {
    unsigned count = 1;
    for (; port.may_come_free(taken); ++count) co_await port.wait();
    co_return count;
}

}  // namespace

TEST_CASE("a port that is taken is tried for a time, every few milliseconds, and the last time at its end") {
    virtual_time world;
    taken_port port(world.on, at("127.0.0.1:7471"));
    CHECK(world.run(attempts(port)) == 1 + taken_port::patience / taken_port::pause);
    CHECK(world.now() == taken_port::patience);
    CHECK_FALSE(port.may_come_free(taken));
}

TEST_CASE("neither any free port nor what is refused for another reason is tried again") {
    virtual_time world;
    for (const char* any : {"127.0.0.1:0", "[::1]:00", "*:0"})
        CHECK_FALSE(taken_port(world.on, at(any)).may_come_free(taken));
    taken_port port(world.on, at("127.0.0.1:7470"));
    CHECK(port.may_come_free(taken));
    for (const errc other : {errc::address_invalid, errc::permission_denied, errc::no_resources})
        CHECK_FALSE(port.may_come_free(make_error_code(other)));
}

TEST_CASE("the wait for a port is described, and canceled at once") {
    virtual_time world;
    taken_port port(world.on, at("tcp://127.0.0.1:7471"));
    const auto outcome = world.run([](taken_port& of, scheduler& on) -> task<std::error_code> {
        local_stop_source stop;
        auto waiting = start(with_stop(of.wait(), stop.get_token()));
        co_await yield();
        const std::string text = on.describe().text();
        CHECK_THAT(text,
                   contains("listen") && contains("tcp://127.0.0.1:7471") && contains("the port is taken"));
        stop.request_stop();
        const auto ended = co_await as_result(waiting);
        co_return ended ? std::error_code() : ended.error();
    }(port, world.on));
    CHECK(outcome == errc::canceled);
    CHECK(world.now() == duration::zero());
}

}  // namespace test_transport_detail_taken_port
