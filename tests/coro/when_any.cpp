#include <rdmacoro/coro/when_any.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/no_spare_frames.hpp"
#include "support/run.hpp"

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace test_coro_when_any {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

task<int> later(int n, duration after) {
    co_await sleep_for(after);
    co_return n;
}

task<std::string> text_after(duration after) {
    co_await sleep_for(after);
    co_return "text";
}

task<> fail_after(duration after) {
    co_await sleep_for(after);
    throw std::runtime_error("failed");
}

task<> note_begin(int& begun) {
    ++begun;
    co_await sleep_for(1h);
}

}  // namespace

TEST_CASE("a lack of memory while when_any begins ends it, and what has begun is waited for") {
    if (!test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    test::virtual_time world;
    unsigned failed = 0;
    world.run([](unsigned& count) -> task<> {
        for (std::size_t which = 1; which <= 3; ++which) {
            event never;
            const test::no_spare_frames none;
            test::fail_allocation(which);
            try {
                static_cast<void>(co_await when_any(never.wait(), never.wait(), timeout(never.wait(), 1h)));
            } catch (const std::bad_alloc&) {
                ++count;
            }
            test::fail_allocation(0);
        }
    }(failed));
    CHECK(failed == 3);
}

TEST_CASE("the first to end gives its index and its value, the others are canceled") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        auto first = co_await when_any(later(1, 3s), text_after(2s), sleep_for(1h));
        CHECK(first.index == 1);
        CHECK(std::get<1>(first.value) == "text");
        CHECK(on.now() == 2s);
        const auto none = co_await when_any(later(1, 3s), sleep_for(1s));
        CHECK(none.index == 1);
        CHECK(none.value.index() == 1);
        CHECK(on.now() == 3s);
    }(world));
}

TEST_CASE("the others have ended when it does") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        bool ended = false;
        auto cleans_up = [](bool& flag) -> task<> {
            const auto slept = co_await as_result(sleep_for(1h));
            CHECK(slept.error() == errc::canceled);
            flag = true;
        };
        const auto first = co_await when_any(cleans_up(ended), sleep_for(1s));
        CHECK(first.index == 1);
        CHECK(ended);
        CHECK(on.now() == 1s);
    }(world));
}

TEST_CASE("the first is the first also when it fails") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        bool caught = false;
        try {
            static_cast<void>(co_await when_any(later(1, 2s), fail_after(1s)));
        } catch (const std::runtime_error&) {
            caught = true;
        }
        CHECK(caught);
        CHECK(on.now() == 1s);
        const auto good = co_await when_any(later(1, 1s), fail_after(2s));
        CHECK(good.index == 0);
    }(world));
}

TEST_CASE("once one has ended at once, the rest never begins") {
    test::virtual_time world;
    world.run([]() -> task<> {
        event set(true);
        int begun = 0;
        const auto first = co_await when_any(note_begin(begun), set.wait(), note_begin(begun));
        CHECK(first.index == 1);
        CHECK(begun == 1);
        // No message is taken and then lost.
        channel<int> numbers(1);
        REQUIRE(numbers.try_send(5));
        const auto second = co_await when_any(set.wait(), numbers.receive());
        CHECK(second.index == 0);
        CHECK(numbers.size() == 1);
    }());
}

TEST_CASE("a vector gives the index and the value") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        std::vector<task<std::string>> replicas;
        for (int i = 0; i < 5; ++i) replicas.push_back(text_after(std::chrono::seconds(10 - i)));
        const auto first = co_await when_any(std::move(replicas));
        CHECK(first.index == 4);
        CHECK(first.value == "text");
        CHECK(on.now() == 6s);
        std::vector<sleep_operation> sleeps;
        sleeps.push_back(sleep_for(3s));
        sleeps.push_back(sleep_for(1s));
        const auto slept = co_await when_any(std::move(sleeps));
        CHECK(slept.index == 1);
        CHECK_THROWS_AS(when_any(std::vector<sleep_operation>()), error);
    }(world));
}

TEST_CASE("operations that have begun are borrowed, and one that lost can be awaited again for nothing but "
          "its end") {
    test::virtual_time world;
    world.run([]() -> task<> {
        auto work = start(later(3, 2s));
        auto limit = start(sleep_for(1s));
        const auto first = co_await when_any(work, limit);
        CHECK(first.index == 1);
        CHECK(work.done());
    }());
}

TEST_CASE("a timeout over when_any, and a stopped token") {
    test::virtual_time world;
    world.run([](test::virtual_time& on) -> task<> {
        const auto late = co_await as_result(timeout(when_any(later(1, 1h), sleep_for(2h)), 1s));
        CHECK(late.error() == errc::timed_out);
        CHECK(on.now() == 1s);
        local_stop_source stop;
        stop.request_stop();
        int begun = 0;
        const auto none =
            co_await as_result(with_stop(when_any(note_begin(begun), note_begin(begun)), stop.get_token()));
        CHECK(none.error() == errc::canceled);
        CHECK(begun == 0);
    }(world));
}

TEST_CASE("when_any begins nothing after one that ended at once, however many operations did before") {
    test::virtual_time world;
    world.run([]() -> task<> {
        channel<int> first(1);
        channel<int> second(1);
        REQUIRE(second.try_send(0));
        for (int n = 0; n < 5000; ++n) {
            REQUIRE(first.try_send(int{n}));
            const auto got = co_await when_any(when_all(first.receive()), as_result(second.receive()));
            REQUIRE(got.index == 0);
            REQUIRE(second.size() == 1);
        }
    }());
}

}  // namespace test_coro_when_any
