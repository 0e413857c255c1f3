#pragma once

#include <nlohmann/json.hpp>

/// The libfabric of this machine: its version, and for each of its providers of reliable datagrams what it is, how the toolkit calls
/// it, and whether it is what the toolkit's description says. null: this program was built without libfabric.
nlohmann::ordered_json libfabric_report();
