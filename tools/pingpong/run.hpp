// One process's part of a run.
#pragma once

#include "options.hpp"

#include <functional>
#include <string>

namespace pingpong {

/// The connecting side: pins itself, measures, reports. Throws.
void run_connecting(const options& asked);

/// The listening side. Calls `listening` with the address once it listens. Throws.
void run_listening(const options& asked, const std::function<void(const std::string&)>& listening);

}  // namespace pingpong
