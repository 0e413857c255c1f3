#include <rdmacoro/coro/timer.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace test_coro_timer {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace std::chrono_literals;

namespace {

std::vector<time_point> fired;

struct probe : timer_node {
    explicit probe(duration at) {
        deadline = time_point(at);
        expired = [](timer_node& self) noexcept { fired.push_back(self.deadline); };
    }
};

}  // namespace

TEST_CASE("timers fire in the order of their deadlines, and only those that are due") {
    fired.clear();
    timer_heap heap;
    probe c(3s), a(1s), d(4s), b(2s);
    for (probe* each : {&c, &a, &d, &b}) heap.insert(*each);
    CHECK(heap.earliest() == time_point(1s));
    CHECK(heap.expire(time_point(999ms)) == 0);
    CHECK(heap.expire(time_point(3s), 2) == 2);
    CHECK(heap.earliest() == time_point(3s));
    CHECK(heap.expire(time_point(3s)) == 1);
    CHECK(fired == std::vector<time_point>{time_point(1s), time_point(2s), time_point(3s)});
    CHECK_FALSE(a.queued());
    CHECK(d.queued());
    heap.remove(d);
    heap.remove(d);
    CHECK(heap.empty());
}

TEST_CASE("a timer may insert and remove timers while it fires") {
    fired.clear();
    static timer_heap heap;
    static probe removed(2s);
    static probe added(1500ms);
    struct meddler : timer_node {
        meddler() {
            deadline = time_point(1s);
            expired = [](timer_node&) noexcept {
                heap.remove(removed);
                heap.insert(added);
            };
        }
    } first;
    heap.insert(removed);
    heap.insert(first);
    CHECK(heap.expire(time_point(10s)) == 2);
    CHECK(fired == std::vector<time_point>{time_point(1500ms)});
    CHECK(heap.empty());
}

TEST_CASE("any mix of insertions and removals keeps the order") {
    std::mt19937 random(20240607);
    for (int round = 0; round < 50; ++round) {
        fired.clear();
        timer_heap heap;
        std::vector<std::unique_ptr<probe>> timers;
        for (int i = 0; i < 200; ++i) {
            timers.push_back(std::make_unique<probe>(std::chrono::milliseconds(random() % 100)));
            heap.insert(*timers.back());
            if (random() % 3 == 0) heap.remove(*timers[random() % timers.size()]);
        }
        const auto queued = static_cast<std::size_t>(
            std::count_if(timers.begin(), timers.end(), [](const auto& timer) { return timer->queued(); }));
        heap.expire(time_point(1s));
        REQUIRE(fired.size() == queued);
        REQUIRE(std::is_sorted(fired.begin(), fired.end()));
        REQUIRE(heap.empty());
    }
}

TEST_CASE("timers for which there is no memory are due in the same order") {
    if (!test::counts_allocations) SKIP_TEST("needs allocations that fail");
    std::mt19937 random(20261128);
    std::size_t most_behind = 0;
    for (int round = 0; round < 50; ++round) {
        fired.clear();
        timer_heap heap;
        std::vector<std::unique_ptr<probe>> timers;
        for (int i = 0; i < 400; ++i)
            timers.push_back(std::make_unique<probe>(std::chrono::milliseconds(random() % 1000)));
        const auto queued = [&] {
            std::vector<time_point> all;
            for (const auto& timer : timers) {
                if (timer->queued()) all.push_back(timer->deadline);
            }
            std::sort(all.begin(), all.end());
            return all;
        };
        for (std::size_t i = 0; i < 200; ++i) {
            test::fail_next_allocations(1);
            heap.insert(*timers[i]);
            test::fail_next_allocations(0);
            if (random() % 3 == 0) heap.remove(*timers[random() % timers.size()]);
            const std::vector<time_point> all = queued();
            REQUIRE(heap.empty() == all.empty());
            if (!all.empty()) REQUIRE(heap.earliest() == all.front());
            std::size_t visited = 0;
            heap.each([&](timer_node&) { ++visited; });
            REQUIRE(visited == all.size());
            // The heap had room for sixteen from the beginning.
            most_behind = std::max(most_behind, all.size() - std::min<std::size_t>(all.size(), 16));
        }
        std::vector<time_point> due = queued();
        due.erase(std::upper_bound(due.begin(), due.end(), time_point(300ms)), due.end());
        heap.expire(time_point(300ms));
        REQUIRE(fired == due);
        for (std::size_t i = 200; i < 400; ++i) {
            heap.insert(*timers[i]);
            REQUIRE(heap.earliest() == queued().front());
        }
        fired.clear();
        due = queued();
        heap.expire(time_point(1s));
        REQUIRE(fired == due);
        REQUIRE(heap.empty());
    }
    CHECK(most_behind > 50);
}

TEST_CASE("a deadline beyond the end of time is the end of time") {
    CHECK(deadline_after(time_point(5s), 2s) == time_point(7s));
    CHECK(deadline_after(time_point(5s), duration::max()) == time_point::max());
    // Nor can what is left of a negative limit be less than there is: it is none.
    CHECK(deadline_after(time_point(5s), -1s) == time_point(5s));
    CHECK(deadline_after(time_point(5s), duration::min()) == time_point(5s));
}

}  // namespace test_coro_timer
