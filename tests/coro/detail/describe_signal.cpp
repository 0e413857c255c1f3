#include <rdmacoro/coro/detail/describe_signal.hpp>

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/yield.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace test_coro_detail_describe_signal {

using namespace rdmacoro;

namespace {

/// Sends what is printed nowhere.
class quiet {
public:
    quiet() : former_(::dup(STDERR_FILENO)) {
        const int nowhere = ::open("/dev/null", O_WRONLY);
        ::dup2(nowhere, STDERR_FILENO);
        ::close(nowhere);
    }
    quiet(const quiet&) = delete;
    quiet& operator=(const quiet&) = delete;
    ~quiet() {
        ::dup2(former_, STDERR_FILENO);
        ::close(former_);
    }

private:
    int former_;
};

}  // namespace

TEST_CASE("64 schedulers may ask for the signal at a time, and places are given back", "[describe]") {
    std::vector<std::unique_ptr<scheduler>> all;
    for (int round = 0; round < 2; ++round) {
        for (int n = 0; n < 64; ++n) {
            all.push_back(std::make_unique<scheduler>());
            all.back()->describe_on_sigusr1();
            all.back()->describe_on_sigusr1();  // again: nothing more
        }
        scheduler one_more;
        CHECK_THROWS_AS(one_more.describe_on_sigusr1(), error);
        all.clear();
    }
}

TEST_CASE("schedulers come, run and go while signals come at any time", "[describe]") {
    const quiet no_output;
    std::atomic<bool> over{false};
    scheduler installs;  // so that no signal ends the process
    installs.describe_on_sigusr1();
    std::thread signals([&] {
        while (!over.load()) ::kill(::getpid(), SIGUSR1);
    });
    std::vector<std::thread> threads;
    std::atomic<int> ran{0};
    for (int n = 0; n < 3; ++n) {
        threads.emplace_back([&] {
            for (int k = 0; k < 200; ++k) {
                scheduler here;
                here.describe_on_sigusr1();
                here.run([]() -> task<> { co_await yield(); }());
                ++ran;
            }
        });
    }
    for (std::thread& one : threads) one.join();
    over.store(true);
    signals.join();
    CHECK(ran.load() == 600);
}

}  // namespace test_coro_detail_describe_signal
