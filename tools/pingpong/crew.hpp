// The connecting side's threads: one leads, and the others measure what it measures, at the same time.
#pragma once

#include "carried.hpp"
#include "ticks.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace pingpong {

struct row_request;

/// The threads block here between exchanges, when their connections are at rest. An error of one ends all: it comes out of the
/// leader's next step.
class crew {
public:
    /// One exchange, of each thread.
    struct step {
        const row_request* row;
        std::uint64_t count;
        bool counts;
    };
    /// The findings of the members in it, together.
    struct findings {
        tick_count longest = 0;
        std::vector<tick_count> samples;
        std::vector<carried_by> carried;
    };

    /// `members`: without the leader.
    explicit crew(std::size_t members) : members_(members) {}
    crew(const crew&) = delete;
    crew& operator=(const crew&) = delete;
    /// As `end`, without an error.
    ~crew();

    [[nodiscard]] std::size_t members() const noexcept { return members_; }

    // The leader's.

    /// Starts the threads: each calls `body(index)`, from 1. What that throws is an error of the crew.
    void start(const std::function<void(std::size_t)>& body);
    /// Hands out the next exchange; `row` is borrowed until `collect`.
    void begin(const step& next);
    /// Waits until all members have done it.
    [[nodiscard]] findings collect();
    /// No exchange follows; waits for the threads' ends.
    void end();

    // The members'.

    /// Waits for the next exchange; nothing: there is none.
    [[nodiscard]] std::optional<step> next();
    /// It is done.
    void done(tick_count took, std::span<const tick_count> samples, const std::vector<carried_by>& carried);

    // Of all.

    /// Waits until all are about to begin.
    void meet();
    /// Ends the others' waits.
    void fail(std::exception_ptr why);

private:
    /// With the lock: throws what the crew failed with.
    void check() const;

    const std::size_t members_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::exception_ptr failed_;
    step step_{};
    std::uint64_t steps_ = 0;  // handed out
    bool over_ = false;
    std::uint64_t meetings_ = 0;  // completed
    std::size_t met_ = 0;         // of the next one
    std::size_t done_ = 0;        // members, with this step
    findings found_;
    std::vector<std::thread> threads_;
};

}  // namespace pingpong
