// A process that ends the ranks where `run` itself is killed and cannot.
#pragma once

#include <sys/types.h>

namespace run {

class guard {
public:
    guard();
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;
    /// The ranks have ended.
    ~guard();

    [[nodiscard]] pid_t process() const noexcept { return process_; }
    /// From now on it ends this process group, or not any more.
    void watch(pid_t group);
    void forget(pid_t group);

private:
    void tell(pid_t what);

    pid_t process_ = -1;
    int pipe_ = -1;
};

}  // namespace run
