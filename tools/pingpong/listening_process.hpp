// A second process that listens for this one.
#pragma once

#include <functional>
#include <string>

#include <sys/types.h>

namespace pingpong {

/// A child of this process, as its parent sees it. Ended when this goes, and when the parent ends.
class listening_process {
public:
    /// The child's function: listens, reports its address, serves. An exception becomes a message on standard error.
    using body = std::function<void(const std::function<void(const std::string& address)>& listening)>;

    /// Starts it and waits until it listens. `name` begins its messages. Precondition: no scheduler and no other thread
    /// exists yet.
    listening_process(std::string name, const body& what);
    listening_process(const listening_process&) = delete;
    listening_process& operator=(const listening_process&) = delete;
    ~listening_process();

    /// Where it listens; empty when it ended instead.
    [[nodiscard]] const std::string& address() const noexcept { return address_; }

    /// Whether it ended well, within a limit far above the time that `bye` takes.
    [[nodiscard]] bool ends_well();

private:
    /// As `poll` answers: above 0 where it has ended.
    [[nodiscard]] int await_end(int limit_ms) const noexcept;
    int wait() noexcept;

    std::string name_;
    pid_t pid_ = -1;
    std::string address_;
};

}  // namespace pingpong
