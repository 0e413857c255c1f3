// The transports that this build can soak.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace soak {

[[nodiscard]] inline std::vector<std::string> all_transports() {
    std::vector<std::string> names{"shm"};
#if RDMACORO_WITH_TCP
    names.emplace_back("tcp");
#endif
#if RDMACORO_WITH_OFI
    names.emplace_back("ofi");
#endif
    return names;
}

[[nodiscard]] inline bool has_transport(const std::string& name) {
    for (const std::string& each : all_transports()) {
        if (each == name) return true;
    }
    return false;
}

[[nodiscard]] inline std::string transport_names() {
    std::string text;
    for (const std::string& each : all_transports()) text += (text.empty() ? "" : ", ") + each;
    return text;
}

/// Where a worker listens. `run` makes names of one run differ from those of others.
[[nodiscard]] inline std::string address_of(const std::string& transport, const std::string& run,
                                            std::uint16_t port) {
    if (transport == "shm") return "shm://soak-" + run + "-" + std::to_string(port);
    return transport + "://127.0.0.1:" + std::to_string(port);
}

}  // namespace soak
