#include <rdmacoro/service/detail/gate_put.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace test_service_detail_gate_put {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

struct put_world {
    scheduler on;
    task_port port{on};
    gate_lane lane{port, {.messages = 16}, true};
    put_world() {
        lane.news.call = [](posted_node&) noexcept {};  // the test takes
    }
    ~put_world() { port.close(); }
};
task<> put_number(put_world& in, std::uint32_t to, std::uint32_t number, std::vector<std::uint32_t>& put) {
    co_await gate_put(in.lane, to, std::as_bytes(std::span(&number, 1)), 0);
    put.push_back(number);
}

}  // namespace

TEST_CASE("coroutines wait for room to one peer in order, and those to another do not wait for them") {
    put_world w;
    w.on.run([](put_world& in) -> task<> {
        task_group some;
        std::vector<std::uint32_t> put;
        for (std::uint32_t n = 0; n < 10; ++n) some.spawn(put_number, std::ref(in), 1U, n, std::ref(put));
        for (std::uint32_t n = 0; n < 3; ++n)
            some.spawn(put_number, std::ref(in), 2U, 100 + n, std::ref(put));
        for (int n = 0; n < 3; ++n) co_await yield();
        CHECK(put == std::vector<std::uint32_t>{0, 1, 2, 3, 100, 101, 102});
        std::vector<std::uint32_t> taken;
        while (some.size() != 0 || !in.lane.all_back()) {
            while (gate_slot* const one = in.lane.take()) {
                std::uint32_t number = 0;
                std::memcpy(&number, one->inside(), sizeof number);
                if (one->flow->peer == 1) taken.push_back(number);
                in.lane.give_back(*one, {});
                in.lane.publish_back();
            }
            co_await yield();
        }
        CHECK(taken == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
        co_await some.join();
    }(w));
}

TEST_CASE("a flush ends when all is back, or with the port") {
    put_world w;
    w.on.run([](put_world& in) -> task<> {
        co_await gate_flush(in.lane);  // there is nothing
        std::vector<std::uint32_t> put;
        for (std::uint32_t n = 0; n < 3; ++n) co_await put_number(in, n, n, put);
        auto flushing = start(gate_flush(in.lane));
        for (int n = 0; n < 3; ++n) {
            CHECK(!flushing.done());
            gate_slot* const one = in.lane.take();
            REQUIRE(one != nullptr);
            in.lane.give_back(*one, {});
            in.lane.publish_back();
            co_await yield();
        }
        CHECK(flushing.done());
        co_await flushing;
        co_await put_number(in, 1, 1, put);
        auto ending = start(gate_flush(in.lane));
        in.port.close();
        in.lane.wake_thread(true);
        const auto ended = co_await as_result(ending);
        CHECK(ended.error() == errc::closed);
    }(w));
}

}  // namespace test_service_detail_gate_put
