// Ends the link of a client that stands still, so that a server can serve the next one.
#pragma once

#include "peer.hpp"

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>

#include <cstdint>
#include <string>

namespace pingpong {

/// What `watch` is to a process that ends with its one client. Of the thread that begins it; progress is that thread's of `watch`.
class stall_limit {
public:
    /// `of` is borrowed.
    explicit stall_limit(peer& of) noexcept : of_(of) {}

    /// Without progress for `seconds` the link is aborted; 0: never.
    void begin(std::uint64_t seconds);
    /// Names the current activity, whose time begins.
    void expect(std::string what);
    /// From now on the link stays as it is.
    [[nodiscard]] rdmacoro::task<> end();

    /// Throws `run_error` where it aborted the link.
    void check() const;

private:
    rdmacoro::task<> look_on();

    peer& of_;
    std::string what_ = "the greeting";
    std::uint64_t seconds_ = 0;
    std::uint64_t looks_still_ = 0;
    bool is_over_ = false;
    rdmacoro::task_group looking_;
};

}  // namespace pingpong
