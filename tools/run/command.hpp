// The command of a rank: its arguments and its environment, here and on another host.
#pragma once

#include "options.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace run {

using variables = std::map<std::string, std::string>;

/// The variables that a rank's environment has beside those of `run`. The key of the job is a secret, and not among them.
variables variables_of(const options& asked, const std::string& url, std::uint32_t rank,
                       const std::vector<std::string>& places);
/// Variables by which another launcher tells its processes of their job, which is not that of the ranks.
bool is_of_other_launcher(const std::string& name);
/// For the environment of a rank on this machine, as `execvpe` takes it.
std::vector<std::string> environment_with(const variables& set);

/// One word for a shell.
std::string quoted_word(const std::string& text);
/// The command of ssh for the rank's host. Its first line of input is the key; each further one is the name of a signal for the rank, and at the
/// end of the input the rank is ended, in good order or not.
std::string remote_command(const options& asked, const variables& set, const std::string& folder);

}  // namespace run
