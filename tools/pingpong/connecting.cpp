#include "connecting.hpp"

#include "failure.hpp"

#include <rdmacoro/coro/error.hpp>

namespace pingpong {

std::vector<row_request> rows_of(const options& asked) {
    std::vector<row_request> rows;
    for (const test_kind test : asked.tests) {
        const test_facts& facts = facts_of(test);
        const std::vector<std::size_t> sizes =
            asked.sizes.empty() ? parse_sizes(facts.default_sizes) : asked.sizes;
        const std::uint64_t window =
            test == test_kind::latency ? 1 : asked.window.value_or(facts.default_window);
        // Of casts both are wanted: how long one takes, and how many there can be.
        if (test == test_kind::cast && !asked.window) {
            for (const std::size_t bytes : sizes) rows.push_back({test, bytes, 1, 1});
        }
        for (const std::size_t bytes : sizes) rows.push_back({test, bytes, window, 1});
    }
    return rows;
}

std::uint64_t count_for(double seconds, std::uint64_t count, double took_s, std::uint64_t window) {
    constexpr double most_samples = 16e6;
    constexpr double least_windows = 4;
    const double window_s = std::max(took_s, 1e-9) / static_cast<double>(count) * static_cast<double>(window);
    return static_cast<std::uint64_t>(std::clamp(seconds / window_s, least_windows, most_samples)) * window;
}

void fail_verification(const row_request& row, const exchange_message& plan, const findings& found,
                       const char* where) {
    throw run_error("verify: " + std::string(facts_of(row.test).name) + ", " + size_text(row.bytes) + ": " +
                    std::to_string(found.wrong) + " of " + std::to_string(plan.count) +
                    " messages arrived wrong " + where + ", the first of them message " +
                    std::to_string(found.message) + " at byte " + std::to_string(found.offset));
}

void explain_failure(const std::exception_ptr& failure, const std::string& during) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::system_error& error) {
        const bool gone = error.code() == rdmacoro::errc::peer_lost || error.code() == rdmacoro::errc::closed;
        if (gone && during != "connecting") {
            throw run_error("the peer vanished during " + during + ": " + error.what());
        }
        if (error.code() == rdmacoro::errc::protocol_mismatch) {
            throw run_error(std::string(error.what()) + "; give both sides the same --protocol");
        }
        throw run_error(during + ": " + error.what());
    }
}

}  // namespace pingpong
