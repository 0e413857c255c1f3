#include <rdmacoro/coro/detail/scheduler_list.hpp>

#include <rdmacoro/coro/scheduler.hpp>

#include "support/catch.hpp"

#include <thread>
#include <vector>

namespace test_coro_detail_scheduler_list {

using namespace rdmacoro;

TEST_CASE("schedulers of many threads come and go at a time", "[describe]") {
    // The list has no reader but a debugger: a lost link would end in a removal that does not find its scheduler, or never ends.
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; ++n) {
        threads.emplace_back([] {
            for (int k = 0; k < 500; ++k) {
                scheduler first;
                scheduler second;
            }
        });
    }
    for (std::thread& one : threads) one.join();
    CHECK(rdmacoro::detail::all_schedulers.empty());
    const scheduler stays;
    CHECK_FALSE(rdmacoro::detail::all_schedulers.empty());
}

}  // namespace test_coro_detail_scheduler_list
