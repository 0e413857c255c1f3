// A gate over one end of a connection, and threads that use it, for tests of service/.
#pragma once

#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/service/gate.hpp>

#include "support/nodes.hpp"
#include "support/shop.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace rdmacoro::test {

/// A message that tells where it is from.
struct numbered {
    std::uint32_t thread = 0;
    std::uint32_t number = 0;
    std::array<std::byte, 56> rest{};
};

/// Both ends of a connection on this thread, calls and a gate at the one end; `body(gate, pair, shop)`.
template <class T, class Body>
void run_gate(Body body, const gate_options& options = {}, const std::string& url = fresh_url<T>()) {
    scheduler on;
    on.run([](Body run, const gate_options& limits, std::string at) -> task<> {
        auto listening = co_await listen<T>(at);
        auto accepting = start(listening.accept());
        auto a = co_await connect<T>(listening.address());
        auto b = co_await accepting;
        shop there;
        {
            calls<T> server(b, there.store);
            calls<T> client(a);
            gate through(client, limits);
            co_await timeout(run(through, b, there), 60s);
        }
        a.abort();
    }(std::move(body), options, url));
}

/// Two ends of a connection on this thread, a gate at the one end that has calls, and the other as it is; `body(gate, end)`.
template <class T, class Body>
void run_bare(Body body, const gate_options& options = {}) {
    scheduler on;
    on.run([](Body run, const gate_options& limits) -> task<> {
        auto listening = co_await listen<T>(fresh_url<T>());
        auto accepting = start(listening.accept());
        auto a = co_await connect<T>(listening.address());
        auto b = co_await accepting;
        {
            calls<T> client(a);
            gate through(client, limits);
            co_await timeout(run(through, b), 60s);
        }
        a.abort();
    }(std::move(body), options));
}

/// A thread that does one step after the other, each when it is asked to.
class stepping {
public:
    template <class... Steps>
    explicit stepping(Steps... steps)
        : runs_([this, ... steps = std::move(steps)]() mutable { (step(steps), ...); }) {}
    /// The next step begins, and this waits for its end: the scheduler of this thread is blocked.
    void go() {
        const int before = done_;
        begin();
        while (done_ == before) std::this_thread::yield();
    }
    /// The next step begins.
    void begin() { ++asked_; }
    [[nodiscard]] int done() const { return done_; }

private:
    template <class Step>
    void step(Step& one) {
        while (asked_ == done_) std::this_thread::yield();
        one();
        ++done_;
    }
    std::atomic<int> asked_{0};
    std::atomic<int> done_{0};
    std::jthread runs_;
};

/// Runs `work` on a thread while the scheduler runs; ends with what it returned or threw.
template <class Work>
auto on_thread(Work work) -> task<std::invoke_result_t<Work&>> {
    event ended;
    scheduler& here = *scheduler::current();
    std::packaged_task<std::invoke_result_t<Work&>()> packed(std::move(work));
    auto result = packed.get_future();
    std::jthread runs([&] {
        packed();
        here.post([&ended] { ended.set(); });
    });
    co_await without_stop(ended.wait());
    runs.join();
    co_return result.get();
}

inline std::error_code code_of(const std::function<void()>& what) {
    try {
        what();
    } catch (const std::system_error& failed) {
        return failed.code();
    }
    return {};
}

}  // namespace rdmacoro::test
