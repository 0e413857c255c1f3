#include <rdmacoro/coro/channel.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace test_coro_channel {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<> send_numbers(channel<int>& to, int from, int count) {
    for (int i = 0; i < count; ++i) co_await to.send(from + i);
}

task<> receive_all(channel<int>& from, std::vector<int>& into) {
    for (;;) {
        const auto got = co_await as_result(from.receive());
        if (!got) {
            CHECK(got.error() == errc::closed);
            co_return;
        }
        into.push_back(*got);
    }
}

}  // namespace

TEST_CASE("values come out in the order they went in, whatever the capacity") {
    for (const std::size_t capacity : {0u, 1u, 3u, 100u}) {
        test::virtual_time world;
        std::vector<int> got;
        world.run([](std::size_t room, std::vector<int>& into) -> task<> {
            channel<int> numbers(room);
            CHECK(numbers.capacity() == room);
            task_group group;
            group.spawn(receive_all, std::ref(numbers), std::ref(into));
            co_await send_numbers(numbers, 0, 50);
            numbers.close();
            co_await group.join();
        }(capacity, got));
        INFO(capacity);
        REQUIRE(got.size() == 50);
        for (int i = 0; i < 50; ++i) CHECK(got[static_cast<std::size_t>(i)] == i);
    }
}

TEST_CASE("a sender waits while the channel is full") {
    test::virtual_time world;
    world.run([]() -> task<> {
        channel<int> numbers(2);
        int sent = 0;
        task_group group;
        group.spawn([&]() -> task<> {
            for (int i = 0; i < 5; ++i) {
                co_await numbers.send(int{i});
                ++sent;
            }
        });
        for (int i = 0; i < 4; ++i) co_await yield();
        CHECK(sent == 2);
        CHECK(numbers.size() == 2);
        CHECK_FALSE(numbers.try_send(99));
        const int first = co_await numbers.receive();
        CHECK(first == 0);
        for (int i = 0; i < 4; ++i) co_await yield();
        CHECK(sent == 3);
        for (int i = 1; i < 5; ++i) {
            const int next = co_await numbers.receive();
            CHECK(next == i);
        }
        co_await group.join();
        CHECK_FALSE(numbers.try_receive().has_value());
    }());
}

TEST_CASE("with capacity 0 a send ends when its value is received") {
    test::virtual_time world;
    world.run([]() -> task<> {
        channel<int> numbers(0);
        CHECK_FALSE(numbers.try_send(1));
        auto pending = start(numbers.send(7));
        CHECK_FALSE(pending.done());
        const auto got = numbers.try_receive();
        CHECK(got == 7);
        CHECK(pending.done());
        co_await pending;
    }());
}

TEST_CASE("each value goes to one receiver, to the one that waits longest first") {
    test::virtual_time world;
    world.run([]() -> task<> {
        channel<int> numbers(1);
        auto first = start(numbers.receive());
        auto second = start(numbers.receive());
        co_await numbers.send(1);
        CHECK(first.done());
        CHECK_FALSE(second.done());
        co_await numbers.send(2);
        const int a = co_await first;
        const int b = co_await second;
        CHECK(a == 1);
        CHECK(b == 2);
    }());
}

TEST_CASE("after closing, what is inside is still received, and sending fails") {
    test::virtual_time world;
    world.run([]() -> task<> {
        channel<std::unique_ptr<int>> boxes(1);
        co_await boxes.send(std::make_unique<int>(1));
        auto waiting = start(boxes.send(std::make_unique<int>(2)));
        boxes.close();
        CHECK(boxes.closed());
        const auto refused = co_await as_result(waiting);
        CHECK(refused.error() == errc::closed);
        const auto late = co_await as_result(boxes.send(std::make_unique<int>(3)));
        CHECK(late.error() == errc::closed);
        auto kept = std::make_unique<int>(4);
        CHECK_FALSE(boxes.try_send(std::move(kept)));
        CHECK(kept != nullptr);
        const auto box = co_await boxes.receive();
        CHECK(*box == 1);
        const auto end = co_await as_result(boxes.receive());
        CHECK(end.error() == errc::closed);
        boxes.close();
    }());
}

TEST_CASE("closing ends every waiting receive") {
    test::virtual_time world;
    world.run([]() -> task<> {
        channel<int> numbers(4);
        std::vector<int> none;
        task_group group;
        for (int i = 0; i < 3; ++i) group.spawn(receive_all, std::ref(numbers), std::ref(none));
        co_await yield();
        numbers.close();
        co_await group.join();
        CHECK(none.empty());
    }());
}

TEST_CASE("a canceled receive loses no value and a canceled send sends none") {
    test::virtual_time world;
    world.run([]() -> task<> {
        channel<int> numbers(1);
        const auto nothing = co_await as_result(timeout(numbers.receive(), 1s));
        CHECK(nothing.error() == errc::timed_out);
        co_await numbers.send(1);
        const auto full = co_await as_result(timeout(numbers.send(2), 1s));
        CHECK(full.error() == errc::timed_out);
        const int got = co_await numbers.receive();
        CHECK(got == 1);
        CHECK_FALSE(numbers.try_receive().has_value());
        // The value is with the receiver when it is asked to stop: it wins.
        local_stop_source stop;
        task_group group;
        group.spawn([&]() -> task<> {
            CHECK(numbers.try_send(3));
            stop.request_stop();
            co_return;
        });
        const auto kept = co_await as_result(with_stop(numbers.receive(), stop.get_token()));
        CHECK(kept.has_value());
        co_await group.join();
    }());
}

TEST_CASE("many senders and many receivers exchange every value once") {
    test::virtual_time world;
    std::vector<int> got;
    world.run([](std::vector<int>& into) -> task<> {
        channel<int> numbers(3);
        task_group receivers;
        for (int i = 0; i < 3; ++i) receivers.spawn(receive_all, std::ref(numbers), std::ref(into));
        task_group senders;
        for (int i = 0; i < 5; ++i) senders.spawn(send_numbers, std::ref(numbers), i * 100, 100);
        co_await senders.join();
        numbers.close();
        co_await receivers.join();
    }(got));
    std::sort(got.begin(), got.end());
    REQUIRE(got.size() == 500);
    for (int i = 0; i < 500; ++i) REQUIRE(got[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("sending and receiving allocate nothing") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    const std::size_t counted = world.run([]() -> task<std::size_t> {
        channel<int> numbers(2);
        task_group group;
        group.spawn(send_numbers, std::ref(numbers), 0, 1000);
        co_await yield();
        const std::size_t before = test::allocations();
        for (int i = 0; i < 1000; ++i) static_cast<void>(co_await numbers.receive());
        const std::size_t after = test::allocations();
        co_await group.join();
        co_return after - before;
    }());
    CHECK(counted == 0);
}

TEST_CASE("destroying a channel that has a waiting receive ends the process") {
    const test::death seen = test::dies([] {
        test::virtual_time world;
        world.run([]() -> task<> {
            task_group group;
            channel<int> numbers(1);
            group.spawn([&numbers]() -> task<> { static_cast<void>(co_await numbers.receive()); });
            co_await yield();
        }());
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("channel was destroyed"));
}

TEST_CASE("values may be such as are moved and never assigned") {
    struct job {
        const int id;
        explicit job(int number) noexcept : id(number) {}
        job(job&&) noexcept = default;
    };
    test::virtual_time world;
    world.run([]() -> task<> {
        for (const std::size_t room : {0u, 1u, 2u}) {
            channel<job> jobs(room);
            task_group sending;
            sending.spawn([&jobs]() -> task<> {
                for (int n = 0; n < 4; ++n) co_await jobs.send(job(n));
            });
            const job first = co_await jobs.receive();
            CHECK(first.id == 0);
            for (int n = 1; n < 4; ++n) {
                co_await yield();
                const auto next = jobs.try_receive();
                REQUIRE(next);
                CHECK(next->id == n);
            }
            co_await sending.join();
            CHECK_FALSE(jobs.try_receive());
        }
    }());
}

}  // namespace test_coro_channel
