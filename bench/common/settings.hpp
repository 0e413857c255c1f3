// Options that all programs here have.
#pragma once

#include "links.hpp"
#include "options.hpp"

#include "../../tools/pingpong/failure.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

using pingpong::run_error;
using pingpong::usage_error;

struct settings {
    std::string name;  ///< of the program
    std::vector<const transport_entry*> transports;
    std::vector<const link_entry*>
        links;  ///< transport by transport, the lists of each in the order asked for
    std::vector<std::size_t> sizes;
    std::uint64_t repeat = 0;
    std::uint64_t rounds = 0;
    idle_kind idle = idle_kind::spin;
    std::vector<int> cpus;  ///< the measuring side's, the other side's
    std::uint64_t timeout_seconds = 60;
    std::string json;  ///< a file, or "-"
};

/// Defaults of a program.
struct defaults {
    bool pair = true;  ///< two processes that exchange messages; false: one, without protocols
    std::string protocols = "auto";
    std::string sizes;
    std::string repeat;       ///< how often one thing is timed
    std::string repeat_help;  ///< help text of that option
    std::string rounds;       ///< how often all is measured anew; empty: no such option
};

/// The common options, to which a program adds its own.
class command_line : private options {
public:
    command_line(const std::string& name, const std::string& description, defaults usual);

    using options::add;
    using options::add_flag;
    /// False when it was answered already (--help). Throws `usage_error`.
    [[nodiscard]] bool parse(int argc, char** argv);

    settings asked;

private:
    defaults usual_;
    std::string transports_;
    std::string cpus_;
    std::string idle_ = "spin";
    std::string timeout_ = "60";
};

/// The indices of the names that a list separated by commas names; "all" is all. Throws `usage_error`.
[[nodiscard]] std::vector<std::size_t> parse_names(const char* option, const std::string& list,
                                                   const std::vector<std::string_view>& known);
/// Throws `usage_error`.
[[nodiscard]] std::uint64_t parse_number(const char* option, const std::string& text, std::uint64_t least,
                                         std::uint64_t most);

/// The CPUs of --cpus, one for each of one or two sides; of an empty list the first that this process may use. Throws
/// `usage_error`.
[[nodiscard]] std::vector<int> parse_sides(const std::string& list, std::size_t sides);

/// Runs a program and turns an exception into a message and an exit status.
int run_program(const char* name, int argc, char** argv, void (*body)(int argc, char** argv));

}  // namespace bench
