#include <rdmacoro/coro/operation.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <vector>

namespace test_coro_operation {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

/// A device whose cancellation takes a while: the operation ends when the device reports it.
struct device {
    class operation;
    operation* pending = nullptr;
    int begun = 0;
    int cancels = 0;

    inline void finish(result<int> with);

    class operation final : public basic_operation<operation, int> {
    public:
        operation(device& of, bool at_once) noexcept
            : basic_operation(nullptr), device_(&of), at_once_(at_once) {}

    private:
        friend basic_operation;
        friend device;
        void start() noexcept {
            ++device_->begun;
            if (at_once_) {
                ended_ = 42;
                complete();
            } else {
                device_->pending = this;
            }
        }
        void cancel() noexcept { ++device_->cancels; }
        void finish_canceled() noexcept { ended_ = errc::canceled; }
        result<int> outcome() noexcept { return ended_; }

        device* device_;
        bool at_once_;
        result<int> ended_ = 0;
    };

    operation slow() noexcept { return {*this, false}; }
    operation quick() noexcept { return {*this, true}; }
};

void device::finish(result<int> with) {
    operation& op = *std::exchange(pending, nullptr);
    op.ended_ = with;
    op.complete();
}

}  // namespace

TEST_CASE("an operation that ends at once does not suspend") {
    test::virtual_time world;
    device dev;
    bool other_ran = false;
    world.run([](device& d, bool& other) -> task<> {
        task_group group;
        group.spawn([&other]() -> task<> {
            other = true;
            co_return;
        });
        const int got = co_await d.quick();
        CHECK(got == 42);
        CHECK_FALSE(other);
        co_await group.join();
    }(dev, other_ran));
    CHECK(other_ran);
}

TEST_CASE("an operation that ends later resumes its awaiter") {
    test::virtual_time world;
    device dev;
    world.run([](device& d) -> task<> {
        task_group group;
        group.spawn([&d]() -> task<> {
            d.finish(7);
            co_return;
        });
        const int got = co_await d.slow();
        CHECK(got == 7);
        co_await group.join();
    }(dev));
}

TEST_CASE("the error of an operation is thrown with its number, or given as a result") {
    test::virtual_time world;
    device dev;
    world.run([](device& d) -> task<> {
        task_group group;
        auto fail_soon = [](device& of) -> task<> {
            of.finish(result<int>(make_error_code(errc::truncated), 99));
            co_return;
        };
        group.spawn(fail_soon, std::ref(d));
        std::uint64_t info = 0;
        try {
            co_await d.slow();
        } catch (const error& thrown) {
            CHECK(thrown.code() == errc::truncated);
            info = thrown.info();
        }
        CHECK(info == 99);
        group.spawn(fail_soon, std::ref(d));
        const auto got = co_await as_result(d.slow());
        CHECK(got.error() == errc::truncated);
        CHECK(got.info() == 99);
        co_await group.join();
    }(dev));
}

TEST_CASE("an operation with a stopped token does nothing and ends canceled") {
    test::virtual_time world;
    device dev;
    world.run([](device& d) -> task<> {
        local_stop_source stop;
        stop.request_stop();
        const auto got = co_await as_result(with_stop(d.quick(), stop.get_token()));
        CHECK(got.error() == errc::canceled);
    }(dev));
    CHECK(dev.begun == 0);
}

TEST_CASE("a canceled operation resumes only when the device has let go") {
    test::virtual_time world;
    device dev;
    world.run([](device& d) -> task<> {
        local_stop_source stop;
        bool ended = false;
        auto wait = [](device& of, local_stop_source& s, bool& flag) -> task<> {
            const auto got = co_await as_result(with_stop(of.slow(), s.get_token()));
            flag = true;
            CHECK(got.error() == errc::canceled);
        };
        task_group group;
        group.spawn(wait, std::ref(d), std::ref(stop), std::ref(ended));
        co_await yield();
        stop.request_stop();
        for (int i = 0; i < 5; ++i) co_await yield();
        CHECK(d.cancels == 1);
        CHECK_FALSE(ended);
        d.finish(errc::canceled);
        co_await group.join();
        CHECK(ended);
    }(dev));
}

TEST_CASE("a value that arrives in spite of the cancellation wins") {
    test::virtual_time world;
    device dev;
    world.run([](device& d) -> task<> {
        local_stop_source stop;
        auto pending = start(d.slow());
        stop.request_stop();
        task_group group;
        group.spawn([&d]() -> task<> {
            CHECK(d.cancels == 1);
            d.finish(5);
            co_return;
        });
        const int got = co_await with_stop(pending, stop.get_token());
        CHECK(got == 5);
        co_await group.join();
    }(dev));
}

TEST_CASE("a stop after the end changes nothing") {
    test::virtual_time world;
    device dev;
    world.run([](device& d) -> task<> {
        local_stop_source stop;
        task_group group;
        group.spawn([&]() -> task<> {
            d.finish(5);
            stop.request_stop();
            co_return;
        });
        const int got = co_await with_stop(d.slow(), stop.get_token());
        CHECK(got == 5);
        CHECK(d.cancels == 0);
        co_await group.join();
    }(dev));
}

TEST_CASE("an operation that has not begun moves and may be dropped") {
    device dev;
    device::operation first = dev.slow();
    device::operation second = std::move(first);
    CHECK_FALSE(second.done());
    CHECK(dev.begun == 0);
}

TEST_CASE("destroying an operation that is pending ends the process") {
    const test::death seen = test::dies([] {
        device dev;
        scheduler on;
        device::operation op = dev.slow();
        op.bind({&on, {}});
        op.begin();
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("destroyed while pending"));
}

TEST_CASE("moving an operation that has begun ends the process") {
    const test::death seen = test::dies([] {
        device dev;
        scheduler on;
        device::operation op = dev.slow();
        op.bind({&on, {}});
        op.begin();
        device::operation moved = std::move(op);
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("moved after it had begun"));
}

#if !defined(NDEBUG)
TEST_CASE("an operation that is awaited again ends the process with a message") {
    for (const bool as_value : {false, true}) {
        const test::death seen = test::dies([as_value] {
            scheduler on;
            on.run([](bool given) -> task<> {
                device dev;
                device::operation op = dev.quick();
                static_cast<void>(co_await op);
                if (given) {
                    static_cast<void>(co_await as_result(op));
                } else {
                    static_cast<void>(co_await op);
                }
            }(as_value));
        });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said, test::contains("was awaited again") && test::contains("make a new one"));
    }
}
#endif

namespace {
/// Stops its own token while it begins, as a poll that runs other code may.
class stops_itself final : public basic_operation<stops_itself, void> {
public:
    explicit stops_itself(local_stop_source& of) noexcept : basic_operation(nullptr), of_(&of) {}

private:
    friend basic_operation;
    void start() noexcept { of_->request_stop(); }
    void cancel() noexcept {
        ended_ = errc::canceled;
        complete();
    }
    void finish_canceled() noexcept { ended_ = errc::invalid_argument; }
    result<> outcome() noexcept { return ended_; }

    local_stop_source* of_;
    result<> ended_;
};
}  // namespace

TEST_CASE("an operation whose token is stopped while it begins is canceled") {
    test::virtual_time world;
    world.run([]() -> task<> {
        local_stop_source stop;
        const auto ended = co_await as_result(with_stop(stops_itself(stop), stop.get_token()));
        CHECK(ended.error() == errc::canceled);
    }());
}

TEST_CASE("operations that end at once suspend now and then, and lose nothing") {
    test::virtual_time world;
    device dev;
    int turns = 0;
    world.run([](device& d, int& others) -> task<> {
        task_group group;
        group.spawn([&others]() -> task<> {
            while (others < 4) {
                ++others;
                co_await yield();
            }
        });
        int sum = 0;
        for (int n = 0; n < 5000; ++n) sum += co_await d.quick();
        CHECK(sum == 5000 * 42);
        CHECK(others == 4);
        co_await group.join();
    }(dev, turns));
    CHECK(dev.begun == 5000);
}

namespace {
/// Awaits what ends at once, `times` times, and computes for `each` after it.
task<> many_at_once(device& of, manual_clock& time, int times, duration each) {
    for (int n = 0; n < times; ++n) {
        static_cast<void>(co_await of.quick());
        time.advance(each);
    }
}

/// How long others waited for their turn, and for how many operations, at most.
struct longest_wait {
    duration time{};
    int operations = 0;
};

/// Yields until told to stop.
task<> watches(device& of, manual_clock& time, const bool& stop, longest_wait& most) {
    time_point before = time.now();
    int begun = of.begun;
    while (!stop) {
        co_await yield();
        most.time = std::max(most.time, time.now() - before);
        most.operations = std::max(most.operations, of.begun - begun);
        before = time.now();
        begun = of.begun;
    }
}

longest_wait waited_beside(std::function<task<>(device&, manual_clock&)> body) {
    test::virtual_time world;
    device dev;
    longest_wait most;
    world.run([](test::virtual_time& on, device& d, longest_wait& into, auto& run) -> task<> {
        bool stop = false;
        task_group group;
        group.spawn(watches, std::ref(d), std::ref(on.time), std::cref(stop), std::ref(into));
        co_await yield();
        co_await run(d, on.time);
        stop = true;
        co_await group.join();
    }(world, dev, most, body));
    return most;
}
}  // namespace

TEST_CASE("others have their turn after some hundred operations that end at once, or after 50 us of them") {
    const longest_wait quick =
        waited_beside([](device& d, manual_clock& time) { return many_at_once(d, time, 5000, 0ns); });
    CHECK(quick.operations > 256);
    CHECK(quick.operations <= 512);
    for (const duration each : {100ns, 1000ns, 10000ns}) {
        CAPTURE(each.count());
        const longest_wait one = waited_beside(
            [each](device& d, manual_clock& time) { return many_at_once(d, time, 5000, each); });
        CHECK(one.time >= 50us);
        CHECK(one.time <= 50us + std::max<duration>(each, 26us));  // twice what is slow between two looks
    }
}

TEST_CASE("others wait for few operations that take long, also where those before them were quick") {
    // Four before the first look, and fewer once that was too late.
    const longest_wait slow =
        waited_beside([](device& d, manual_clock& time) { return many_at_once(d, time, 100, 200us); });
    CHECK(slow.operations <= 5);
    const longest_wait changes = waited_beside([](device& d, manual_clock& time) -> task<> {
        for (int n = 0; n < 100; ++n) {
            co_await many_at_once(d, time, 60 + n, 0ns);
            co_await many_at_once(d, time, 40, 200us);
        }
    });
    CHECK(changes.time > 200us);
    CHECK(changes.time <= 33 * 200us);  // 32 between two looks
}

TEST_CASE("an operation of one scheduler that is awaited on another ends the process with a message") {
    const test::death seen = test::dies([] {
        scheduler one;
        scheduler other;
        thread_channel<int> numbers(one, 2);
        other.run([](thread_channel<int>& from) -> task<> { co_await from.receive(); }(numbers));
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("awaited by a coroutine of another"));
}

}  // namespace test_coro_operation
