#include <rdmacoro/service/gate_call.hpp>

#include "support/catch.hpp"
#include "support/gates.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace test_service_gate_call {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEMPLATE_LIST_TEST_CASE("a thread's call has a limit, of which the peer is told", "", node_transports) {
    run_gate<TestType>([](auto& through, auto&, shop& there) -> task<> {
        auto work = [pass = through.pass()]() mutable {
            std::error_code late;
            for (const duration limit : {duration(10ms), duration(-1ms), duration::min()}) {
                late = code_of([&] { pass.call(kv::wait).get(limit); });
                if (late != errc::timed_out) break;
            }
            auto slow = pass.call(kv::wait);
            const bool ended = slow.wait_for(1ms);
            slow.stop();
            return std::pair(late, std::pair(ended, slow.get_result().error()));
        };
        const auto got = co_await on_thread(std::move(work));
        CHECK(got.first == errc::timed_out);
        CHECK(!got.second.first);
        CHECK(got.second.second == errc::canceled);
        while (there.waiting != 0) co_await yield();
    });
}

TEMPLATE_LIST_TEST_CASE("a thread's call that has begun already has a limit", "", node_transports) {
    run_gate<TestType>([](auto& through, auto& far, shop& there) -> task<> {
        bool ended = false;
        auto work = [&ended, pass = through.pass()]() mutable {
            auto quick = pass.call(kv::get, "colour");
            static_cast<void>(quick.wait_for(1ms));
            std::string colour = quick.get(30s);
            auto slow = pass.call(kv::wait);
            static_cast<void>(slow.wait_for(1ms));
            const std::error_code late = code_of([&] { slow.get(10ms); });
            ended = slow.done();
            return std::pair(late, std::move(colour));
        };
        // A limit that is missed does not hang the test.
        task_group breaks;
        breaks.spawn([&far]() -> task<> {
            co_await sleep_for(20s);
            far.abort();
        });
        const auto got = co_await on_thread(std::move(work));
        breaks.request_stop();
        co_await breaks.join();
        CHECK(got.first == errc::timed_out);
        CHECK(ended);
        CHECK(got.second == "red");
        while (there.waiting != 0) co_await yield();
    });
}

TEMPLATE_LIST_TEST_CASE("a call through a gate is for a thread, or for a coroutine, and not for both", "",
                        node_transports) {
    run_gate<TestType>([](auto& through, auto&, shop& there) -> task<> {
        auto pass = through.pass();
        // On the gate's own thread a coroutine may await it.
        const std::string colour = co_await pass.call(kv::get, "colour");
        CHECK(colour == "red");
        auto waiting = pass.call(kv::wait);
        CHECK(code_of([&] { static_cast<void>(waiting.wait_for(1ms)); }) == errc::invalid_argument);
        CHECK(!waiting.begun());
        const auto late = co_await as_result(timeout(std::move(waiting), 5ms));
        CHECK(late.error() == errc::timed_out);
        while (there.waiting != 0) co_await yield();
        // One that a coroutine awaits is no thread's.
        auto work = [&pass] {
            scheduler mine;
            return mine.run([](auto& by) -> task<std::error_code> {
                auto one = by.call(kv::wait);
                task_group some;
                local_stop_source stop;
                some.spawn([&]() -> task<> {
                    static_cast<void>(co_await as_result(with_stop(one, stop.get_token())));
                });
                co_await yield();
                std::error_code refused;
                try {
                    one.get();
                } catch (const error& thrown) {
                    refused = thrown.code();
                }
                stop.request_stop();
                co_await some.join();
                co_return refused;
            }(pass));
        };
        const std::error_code refused = co_await on_thread(std::move(work));
        CHECK(refused == errc::invalid_argument);
        while (there.waiting != 0) co_await yield();
    });
}

}  // namespace test_service_gate_call
