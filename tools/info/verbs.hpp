#pragma once

#include <nlohmann/json.hpp>

#include <string>

/// An RDMA device as a domain with the default options opens it: what will be used of it, and which of its limits bind. `problem` is
/// why it cannot be opened. null: this program was built without rdma-core.
nlohmann::ordered_json verbs_report(const std::string& device);
