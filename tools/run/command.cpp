#include "command.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include <unistd.h>

namespace run {

namespace {

constexpr std::string_view of_toolkit = "RDMACORO_";

/// The variables that `--env` gives a value, or that have one here.
void add_asked(const options& asked, variables& to) {
    for (const std::string& one : asked.environment) {
        const std::size_t equals = one.find('=');
        if (equals != std::string::npos) {
            to[one.substr(0, equals)] = one.substr(equals + 1);
        } else if (const char* const value = std::getenv(one.c_str())) {
            to[one] = value;
        }
    }
}

}  // namespace

variables variables_of(const options& asked, const std::string& url, std::uint32_t rank,
                       const std::vector<std::string>& places) {
    variables set;
    if (!places.empty()) {
        // Each host has an address of its own.
        for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
            const std::string_view entry(*one);
            const std::size_t equals = entry.find('=');
            if (!entry.starts_with(of_toolkit) || equals == std::string_view::npos) continue;
            const std::string_view name = entry.substr(0, equals);
            // The name stands in a script: one that is no word of a shell would be commands there.
            if (name != "RDMACORO_ADDRESS" && is_variable_name(name))
                set.emplace(name, entry.substr(equals + 1));
        }
    }
    add_asked(asked, set);
    set["RDMACORO_JOB"] = url;
    set["RDMACORO_SERVED"] = "1";
    set["RDMACORO_RANK"] = std::to_string(rank);
    set["RDMACORO_SIZE"] = std::to_string(asked.ranks);
    const auto here = places.empty() ? static_cast<std::ptrdiff_t>(asked.ranks)
                                     : std::count(places.begin(), places.end(), places[rank]);
    set["RDMACORO_LOCAL_SIZE"] = std::to_string(here);
    set.erase("RDMACORO_KEY");
    set.erase("RDMACORO_HOST");
    if (!places.empty()) set["RDMACORO_HOST"] = places[rank];
    return set;
}

bool is_of_other_launcher(const std::string& name) {
    const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    static constexpr std::array<std::string_view, 7> of_jobs = {
        "PMI_", "HYDI_", "MPI_LOCAL", "PMIX_RANK", "PMIX_NAMESPACE", "PMIX_SERVER_", "OMPI_COMM_WORLD_"};
    if (std::any_of(of_jobs.begin(), of_jobs.end(), begins)) return true;
    // Where one of these started this process, their settings (OMPI_MCA_*, PMIX_MCA_*) are partly of that job; else they are the user's own.
    const bool launched =
        std::getenv("PMIX_NAMESPACE") != nullptr || std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
    return launched && (begins("PMIX_") || begins("OMPI_"));
}

std::vector<std::string> environment_with(const variables& set) {
    std::vector<std::string> all;
    for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
        const std::string entry(*one);
        const std::string name = entry.substr(0, entry.find('='));
        if (!set.contains(name) && !is_of_other_launcher(name) && name != "RDMACORO_HOST")
            all.push_back(entry);
    }
    for (const auto& [name, value] : set) all.push_back(name + '=' + value);
    return all;
}

std::string quoted_word(const std::string& text) {
    std::string all = "'";
    for (const char c : text) {
        if (c == '\'') {
            all += "'\\''";
        } else {
            all += c;
        }
    }
    return all + '\'';
}

std::string remote_command(const options& asked, const variables& set, const std::string& folder) {
    // A session of its own makes the rank the head of its processes. The variables are for it alone: with another PATH this script would not find its
    // programs. Input that the shell would give a program in the background is
    // nothing; the one that reads signals is given it as descriptor 3.
    std::string script =
        "cd " + quoted_word(folder) + " || exit 127\nIFS= read -r RDMACORO_KEY || exit 127\n";
    script += "export RDMACORO_KEY\n";
    std::string of_rank;
    for (const auto& [name, value] : set) of_rank += "export " + name + '=' + quoted_word(value) + '\n';
    of_rank += "exec \"$@\"\n";
    script += "exec 3<&0\nsetsid sh -c " + quoted_word(of_rank) + " sh";
    for (const std::string& word : asked.command) script += ' ' + quoted_word(word);
    const long tenths = static_cast<long>(std::ceil(asked.grace * 10));
    script += R"( </dev/null 3<&- &
rank=$!
tell() { kill -s "$1" -- "-$rank" || kill -s "$1" "$rank"; }
(
    exec >/dev/null 2>&1
    while IFS= read -r name; do tell "$name"; done
    tell CONT
    tell TERM
    n=0
    while [ $n -lt )" +
              std::to_string(tenths) +
              R"( ] && tell 0; do sleep 0.1; n=$((n + 1)); done
    tell KILL
) <&3 3<&- &
reader=$!
exec 3<&-
while :; do
    wait "$rank"
    status=$?
    kill -s 0 "$rank" 2>/dev/null || break
done
kill -s KILL -- "-$rank" 2>/dev/null
kill -s KILL "$reader" 2>/dev/null
exit "$status"
)";
    return "exec sh -c " + quoted_word(script);
}

}  // namespace run
