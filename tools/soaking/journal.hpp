// The words of a worker to the process that watches it: lines of text through a pipe.
#pragma once

#include "mishap.hpp"
#include "transports.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace soak {

/// Sums since a worker began.
struct totals {
    std::uint64_t rounds = 0;
    std::uint64_t messages = 0;   ///< received and checked
    std::uint64_t bytes = 0;      ///< of those
    std::uint64_t transfers = 0;  ///< gets and puts
    std::uint64_t sessions = 0;   ///< begun
    std::uint64_t ended = 0;      ///< of those, whatever the end
    std::uint64_t withdrawn = 0;  ///< receives that timed out and were posted again
    std::uint64_t refused = 0;    ///< connects that found no listener
    std::uint64_t lost = 0;       ///< sessions whose peer was lost without a plan
    /// The rounds, by `transport_index`.
    std::array<std::uint64_t, most_transports> rounds_over{};

    totals& operator+=(const totals& other) noexcept;
    [[nodiscard]] std::string line() const;
    /// False when the text is not such a line.
    [[nodiscard]] bool parse(std::string_view line);
};

/// Writes the lines. One for each worker; not for several threads.
class journal {
public:
    /// `pipe` is a descriptor to write to, not owned.
    explicit journal(int pipe) noexcept : pipe_(pipe) {}

    totals sums;

    /// The totals, now.
    void tell_totals() { write("count " + sums.line()); }
    /// The worker listens everywhere.
    void tell_ready() { write("ready"); }
    /// The overseer judges it.
    void tell(const mishap& of) {
        if (of.what == mishap::kind::lost) ++sums.lost;
        write(of.line());
    }
    /// Something that must not happen.
    void tell_fault(const std::string& what) { write("fault " + what); }

private:
    void write(const std::string& line);

    int pipe_;
};

}  // namespace soak
