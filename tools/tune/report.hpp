// The report that tune prints, writes and reads again.
#pragma once

#include "model.hpp"

#include <string>
#include <vector>

namespace tune {

/// The costs of a link, and each measurement beside its model.
[[nodiscard]] std::string text_of(const fitted_link& link);
/// The fault of measurements that the model does not follow.
[[nodiscard]] std::vector<std::string> doubts_of(const std::vector<fitted_link>& links);
/// Which algorithm carries what, and where two collectives take the place of one.
[[nodiscard]] std::string text_of(const std::vector<choice>& choices, unsigned hosts);

/// A C++ header: a type with the costs, and the collectives that choose by it.
[[nodiscard]] std::string header_of(const std::vector<fitted_link>& links, const std::string& name);

/// For `--json`; `samples_of` reads it again.
[[nodiscard]] std::string json_of(const std::vector<fitted_link>& links, const std::vector<choice>& choices,
                                  unsigned hosts);
/// The measurements of a file that `json_of` has written. Throws `pingpong::usage_error` where it is none.
[[nodiscard]] std::vector<link_samples> samples_of(const std::string& path);

}  // namespace tune
