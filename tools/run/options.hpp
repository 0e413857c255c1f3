// The options of the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace run {

/// Of `run` itself; else that of the first rank that fails.
enum status : int { status_well = 0, status_failure = 1, status_usage = 2 };

struct host {
    std::string name;
    std::uint32_t ranks = 0;  ///< 0: an even part
};

struct options {
    std::uint32_t ranks = 1;
    std::vector<host> hosts;  ///< none: this one
    bool tag_output = false;
    std::string ssh = "ssh";
    std::string address;                   ///< where the ranks meet; empty: chosen
    double grace = 5;                      ///< seconds between SIGTERM and SIGKILL
    std::vector<std::string> environment;  ///< names, and NAME=VALUE
    std::vector<std::string> command;
};

/// Nothing when help was asked for, and printed. Ends the process with `status_usage` after a message when the line is wrong.
/// Throws where standard output does not take the help.
std::optional<options> parse_options(int argc, char** argv);

/// Letters, digits and `_`, not a digit first: also what a shell takes for the name of a variable.
bool is_variable_name(std::string_view text) noexcept;
/// "a" or "a:2".
host parse_host(const std::string& text);
/// The host of each rank: those with a number of ranks take so many, one after another, and again from the first; without numbers, even
/// parts. Empty without hosts.
std::vector<std::string> place_ranks(const std::vector<host>& hosts, std::uint32_t ranks);

}  // namespace run
