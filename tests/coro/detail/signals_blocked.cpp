#include <rdmacoro/coro/detail/signals_blocked.hpp>

#include "support/catch.hpp"

#include <thread>

namespace test_coro_detail_signals_blocked {

using rdmacoro::detail::signals_blocked;

namespace {

bool blocks(int number) {
    sigset_t now;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return sigismember(&now, number) == 1;
}

}  // namespace

TEST_CASE(
    "a thread that is made while signals are blocked takes none, and its maker takes them again afterwards") {
    REQUIRE_FALSE(blocks(SIGTERM));
    bool thread_blocks = false;
    std::thread made;
    {
        const signals_blocked here;
        CHECK(blocks(SIGTERM));
        CHECK(blocks(SIGUSR1));
        made = std::thread([&] { thread_blocks = blocks(SIGTERM) && blocks(SIGINT); });
    }
    CHECK_FALSE(blocks(SIGTERM));
    CHECK_FALSE(blocks(SIGUSR1));
    made.join();
    CHECK(thread_blocks);
}

TEST_CASE("what was blocked before stays blocked") {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    sigset_t before;
    ::pthread_sigmask(SIG_BLOCK, &one, &before);
    { const signals_blocked here; }
    CHECK(blocks(SIGUSR2));
    CHECK_FALSE(blocks(SIGTERM));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace test_coro_detail_signals_blocked
