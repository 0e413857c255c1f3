#include <rdmacoro/service/detail/gate_entry.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/detail/remote_task.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

namespace test_service_detail_gate_entry {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace std::chrono_literals;

namespace {

struct add_two {
    int a;
    int b;
    task<int> operator()() const { return add(a, b); }
    static task<int> add(int a, int b) { co_return a + b; }
};
using adding_call = remote_task<int, add_two, gate_entry>;

struct entry_world {
    scheduler on;
    task_port port{on};
    gate_lane lane{port, {.messages = 4}, false};
    entry_world() {
        lane.news.call = [](posted_node&) noexcept {};  // the test takes
    }
    adding_call make(int a, int b) {
        return {port, make_error_code(errc::closed), add_two{a, b}, gate_entry(lane, 0)};
    }
    /// The next in the lane, a call or a message, leaves it.
    bool take() {
        gate_slot* const one = lane.take();
        if (one == nullptr) return false;
        if (one->kind == gate_slot::content::call) one->call->begin_there();
        lane.give_back(*one, {});
        lane.publish_back();
        return true;
    }
    void fill() {
        while (lane.put(lane.flow(0), const_buffers(), 0) == gate_lane::put_result::done) {}
    }
    task<> serve(std::size_t count) {
        while (count != 0) {
            co_await yield();
            if (take()) --count;
        }
    }
};

}  // namespace

TEST_CASE("a call goes into a lane behind what is there, and begins when its turn comes") {
    entry_world w;
    w.on.run([](entry_world& in) -> task<> {
        CHECK(in.lane.put(in.lane.flow(0), const_buffers(), 0) == gate_lane::put_result::done);
        auto one = start(in.make(1, 2));
        co_await yield();
        CHECK(in.take());
        co_await yield();
        CHECK(!one.done());
        CHECK(in.take());
        const int sum = co_await one;
        CHECK(sum == 3);
    }(w));
    w.port.close();
}

TEST_CASE("coroutines' calls wait for room in the order in which they began, and can be canceled meanwhile") {
    entry_world w;
    w.on.run([](entry_world& in) -> task<> {
        in.fill();
        std::vector<int> order;
        task_group some;
        local_stop_source stop;
        std::size_t canceled = 0;
        for (int n = 0; n < 20; ++n) {
            some.spawn([&, n]() -> task<> {
                auto one = in.make(n, 100);
                auto limited = with_stop(std::move(one), n % 2 == 1 ? stop.get_token() : local_stop_token());
                const auto sum = co_await as_result(std::move(limited));
                if (sum) {
                    order.push_back(*sum - 100);
                } else if (sum.error() == errc::canceled) {
                    ++canceled;
                }
            });
        }
        co_await yield();
        stop.request_stop();
        co_await in.serve(14);
        co_await some.join();
        CHECK(canceled == 10);
        CHECK(order == std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18});
    }(w));
    w.port.close();
}

TEST_CASE("a thread's call sleeps until there is room, or its time is over") {
    entry_world w;
    w.fill();
    int sum = 0;
    std::atomic<int> in_time{-1};
    std::jthread thread([&] {
        gate_entry limited(w.lane, 0);
        in_time = limited.wait_for_room(monotonic_now() + 1ms) ? 1 : 0;
        auto one = w.make(1, 2);
        one.begin();
        static_cast<void>(one.wait_until(time_point::max()));
        sum = one.await_resume();
    });
    while (in_time == -1) std::this_thread::yield();  // until then there is no room
    w.on.run(w.serve(5));
    w.on.run_until([&] { return w.port.running() == 0; });
    thread.join();
    CHECK(in_time == 0);
    CHECK(sum == 3);
    w.port.close();
}

}  // namespace test_service_detail_gate_entry
