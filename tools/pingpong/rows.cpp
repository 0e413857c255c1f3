#include "rows.hpp"

#include "failure.hpp"
#include "peer.hpp"
#include "services.hpp"
#include "sizes.hpp"

#include <algorithm>
#include <string>

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

void check_rows(const peer& over, const options& asked, const std::vector<row_request>& rows) {
    const rdmacoro::capabilities& link = over.link();
    for (const row_request& row : rows) {
        if (is_one_sided(row.test)) {
            if (!link.one_sided) throw run_error("this transport has no get and put");
            if (row.test == test_kind::get && row.bytes % link.get_alignment != 0) {
                throw run_error("gets of this transport have lengths that are multiples of " +
                                std::to_string(link.get_alignment));
            }
        } else if (is_service(row.test) && row.bytes > longest_value) {
            throw run_error("values of calls and streams have at most 1K less than 64M");
        } else if (over.policy_of(row.bytes).empty()) {
            throw run_error("the protocol list \"" + asked.protocol + "\" (" + over.protocols() +
                            ") carries no message of " + size_text(row.bytes) +
                            "; --explain shows what it carries");
        }
    }
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

}  // namespace pingpong
