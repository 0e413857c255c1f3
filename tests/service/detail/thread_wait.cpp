#include <rdmacoro/service/detail/thread_wait.hpp>

#include "support/catch.hpp"
#include "support/thread_state.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <unistd.h>

namespace test_service_detail_thread_wait {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace std::chrono_literals;

TEST_CASE("a thread sleeps until a word changes, or its time is over") {
    std::atomic<std::uint32_t> word{0};
    wait_for_change(word, 1, time_point::max());  // it is another already
    const time_point until = monotonic_now() + 5ms;
    while (monotonic_now() < until) wait_for_change(word, 0, until);
    wait_for_change(word, 0, until);  // over: it does not sleep
    const std::atomic<pid_t> waiting{::gettid()};
    bool slept = false;
    std::thread changes([&] {
        slept = test::falls_asleep(waiting);
        word.store(7);
        wake_threads(word);
    });
    while (word.load() == 0) wait_for_change(word, 0, time_point::max());
    CHECK(word.load() == 7);
    changes.join();
    CHECK(slept);
}

}  // namespace test_service_detail_thread_wait
