#pragma once

// Tells another thread that a scheduler falls asleep: what comes from then on must wake it, or is found by nothing.

#include <rdmacoro/coro/progress_source.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include <sys/eventfd.h>
#include <unistd.h>

namespace rdmacoro::test {

/// A source without news, whose descriptor the scheduler asks for as the last thing before it sleeps: after all sources are armed and
/// polled once more.
class sleep_teller final : public progress_source {
public:
    ~sleep_teller() override { ::close(fd_); }
    bool poll() noexcept override { return false; }
    int wake_fd() noexcept override {
        falls_asleep_.store(true, std::memory_order_release);
        return fd_;
    }
    void arm() noexcept override {}
    void disarm() noexcept override { falls_asleep_.store(false, std::memory_order_release); }

    /// Called by another thread. The sleep that it sees is one after all that the scheduler's coroutines have done so far.
    void until_it_falls_asleep() const noexcept {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!falls_asleep_.load(std::memory_order_acquire) && std::chrono::steady_clock::now() < until)
            std::this_thread::yield();
    }

private:
    int fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    std::atomic<bool> falls_asleep_{false};
};

}  // namespace rdmacoro::test
