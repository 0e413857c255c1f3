#include "stall_limit.hpp"

#include "failure.hpp"
#include "pause.hpp"
#include "watch.hpp"

#include <chrono>
#include <utility>

namespace pingpong {

void stall_limit::begin(std::uint64_t seconds) {
    if (seconds == 0) return;
    seconds_ = seconds;
    looking_.spawn([this] { return look_on(); });
}

void stall_limit::expect(std::string what) {
    what_ = std::move(what);
    looks_still_ = 0;
}

rdmacoro::task<> stall_limit::look_on() {
    constexpr std::uint64_t looks_in_a_second = 2;
    std::uint64_t seen = watch::done();
    while (co_await pause(std::chrono::milliseconds(1000) / looks_in_a_second)) {
        const std::uint64_t now = watch::done();
        if (now != seen) {
            seen = now;
            looks_still_ = 0;
        } else if (++looks_still_ >= seconds_ * looks_in_a_second) {
            is_over_ = true;
            of_.abort();
            co_return;
        }
    }
}

rdmacoro::task<> stall_limit::end() {
    looking_.request_stop();
    co_await looking_.join();
}

void stall_limit::check() const {
    if (!is_over_) return;
    throw run_error("nothing moved for " + std::to_string(seconds_) + " s during " + what_ +
                    "; the client's --timeout allows longer, 0 forever");
}

}  // namespace pingpong
