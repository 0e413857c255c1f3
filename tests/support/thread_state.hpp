#pragma once

// What the kernel says of a thread of this process.

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include <sys/types.h>

namespace rdmacoro::test {

/// Whether that thread sleeps.
inline bool sleeps(pid_t thread) {
    std::string facts;
    std::getline(std::ifstream("/proc/self/task/" + std::to_string(thread) + "/stat"), facts);
    const std::size_t name_end = facts.rfind(')');
    return name_end != std::string::npos && facts.compare(name_end, 3, ") S") == 0;
}

/// Whether it comes to sleep; waits 10 s for that, and for its number.
inline bool falls_asleep(const std::atomic<pid_t>& thread) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < limit) {
        if (const pid_t number = thread.load(); number != 0 && sleeps(number)) return true;
        std::this_thread::yield();
    }
    return false;
}

}  // namespace rdmacoro::test
