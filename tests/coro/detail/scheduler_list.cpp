#include <rdmacoro/coro/detail/scheduler_list.hpp>

#include <rdmacoro/coro/scheduler.hpp>

#include "support/catch.hpp"

#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace test_coro_detail_scheduler_list {

using namespace rdmacoro;

TEST_CASE("schedulers of many threads come and go at a time", "[describe]") {
    // A lost link would end in a removal that does not find its scheduler, or never ends.
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

TEST_CASE("a scheduler is in the list as long as it lives", "[describe]") {
    std::optional<scheduler> comes(std::in_place);
    const scheduler* const place = &*comes;
    const scheduler other;
    CHECK(rdmacoro::detail::all_schedulers.has(place));
    CHECK(rdmacoro::detail::all_schedulers.has(&other));
    comes.reset();
    CHECK_FALSE(rdmacoro::detail::all_schedulers.has(place));
    CHECK(rdmacoro::detail::all_schedulers.has(&other));
}

}  // namespace test_coro_detail_scheduler_list
