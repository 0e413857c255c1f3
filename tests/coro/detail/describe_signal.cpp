#include <rdmacoro/coro/detail/describe_signal.hpp>

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/yield.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace test_coro_detail_describe_signal {

using namespace rdmacoro;

namespace {

/// Keeps what is printed out of the test's output.
class kept_output {
public:
    kept_output() : former_(::dup(STDERR_FILENO)), kept_(::memfd_create("printed", MFD_CLOEXEC)) {
        ::dup2(kept_, STDERR_FILENO);
    }
    kept_output(const kept_output&) = delete;
    kept_output& operator=(const kept_output&) = delete;
    ~kept_output() {
        ::dup2(former_, STDERR_FILENO);
        ::close(former_);
        ::close(kept_);
    }
    /// How often the text has been printed.
    [[nodiscard]] int count(std::string_view text) const {
        struct stat facts{};
        ::fstat(kept_, &facts);
        std::string all(static_cast<std::size_t>(facts.st_size), ' ');
        const auto got = ::pread(kept_, all.data(), all.size(), 0);
        all.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        int times = 0;
        for (std::size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++times;
        return times;
    }

private:
    int former_;
    int kept_;
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
    const kept_output printed;
    std::atomic<bool> over{false};
    std::atomic<int> sent{0};
    scheduler installs;  // so that no signal ends the process
    installs.describe_on_sigusr1();
    std::thread signals([&] {
        while (!over.load()) {
            ::kill(::getpid(), SIGUSR1);
            ++sent;
        }
    });
    // A scheduler that goes before its next turn prints nothing, and on a busy machine the thread that sends may begin late.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto has_enough = [&] { return sent.load() >= 1000 && printed.count("asked by SIGUSR1") >= 100; };
    std::vector<std::thread> threads;
    std::atomic<bool> enough{false};
    std::atomic<int> ran{0};
    for (int n = 0; n < 3; ++n) {
        threads.emplace_back([&] {
            for (int k = 0; k < 200 || !enough.load(); ++k) {
                if (k % 50 == 0 && (has_enough() || std::chrono::steady_clock::now() > limit))
                    enough.store(true);
                scheduler here;
                here.describe_on_sigusr1();
                here.run([](int turns) -> task<> {
                    for (int turn = 0; turn <= turns; ++turn) co_await yield();
                }(k % 200));
                ++ran;
            }
        });
    }
    for (std::thread& one : threads) one.join();
    over.store(true);
    signals.join();
    CHECK(ran.load() >= 600);
    CHECK(sent.load() >= 1000);
    CHECK(printed.count("asked by SIGUSR1") >= 100);
}

}  // namespace test_coro_detail_describe_signal
