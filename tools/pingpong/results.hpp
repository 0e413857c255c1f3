// The results, and their output as a table, JSON and CSV.
#pragma once

#include "carried.hpp"
#include "options.hpp"
#include "samples.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pingpong {

struct result_row {
    test_kind test{};
    std::string
        policy;  ///< of the protocol list, that is chosen for such messages; of calls and casts, that carried most
    std::vector<carried_by>
        carried;  ///< policies that carried the connecting side's messages, as the link counted
    std::uint64_t bytes = 0;
    std::uint64_t iterations = 0;
    std::uint64_t window = 1;
    std::uint64_t buffers = 1;
    std::uint64_t samples = 0;
    summary times;
    double bytes_per_s = 0;
    double messages_per_s = 0;
};

/// Facts that the connection settles.
struct run_facts {
    std::string transport;
    std::string peer;
    std::string protocols;  ///< the list, for people
    std::string idle;       ///< the connecting side's, the listening side's
    int cpu = -1;           ///< of the connecting side; -1: not pinned
    int peer_cpu = -1;
    double clock_step_ns = 0;  ///< no single time is finer
};

/// Takes the rows one by one and prints them.
class reporter {
public:
    /// Throws `run_error` when a file cannot be written, before anything is measured.
    explicit reporter(const options& asked);

    void begin(const run_facts& facts);
    void add(const result_row& row);
    /// Writes the files. Throws `run_error`.
    void finish();

private:
    [[nodiscard]] std::string json() const;
    [[nodiscard]] std::string csv() const;
    void print(const std::string& text) const;

    const options& asked_;
    run_facts facts_;
    std::vector<result_row> rows_;
    const test_facts* shown_ = nullptr;  ///< the test of the header printed last
    std::uint64_t shown_window_ = 0;     ///< and its window
};

}  // namespace pingpong
