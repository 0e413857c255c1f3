// The transports that this build can soak.
#pragma once

#include <cstddef>
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

inline constexpr std::size_t most_transports = 3;

/// The place of a name in `all_transports`; `most_transports` where it is not there.
[[nodiscard]] inline std::size_t transport_index(const std::string& name) {
    const std::vector<std::string> all = all_transports();
    for (std::size_t n = 0; n < all.size(); ++n) {
        if (all[n] == name) return n;
    }
    return most_transports;
}

[[nodiscard]] inline bool has_transport(const std::string& name) {
    return transport_index(name) != most_transports;
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
