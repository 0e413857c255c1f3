// Which policy carried what, from a link's counts.
#pragma once

#include <rdmacoro/protocol/metrics.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pingpong {

/// Messages that one policy has sent.
struct carried_by {
    std::string_view policy;
    std::uint64_t messages;
};

/// The policies that have sent something between two readings of a link's counts.
[[nodiscard]] inline std::vector<carried_by> carried(const rdmacoro::metrics& before,
                                                     const rdmacoro::metrics& after) {
    using rdmacoro::metrics;
    struct counter {
        std::string_view policy;
        std::uint64_t metrics::* messages;
    };
    static constexpr counter counters[] = {
        {"eager", &metrics::eager_sent},
        {"reuse_aware_eager, in place", &metrics::in_place_sent},
        {"staged_get", &metrics::staged_sent},
        {"get_rendezvous", &metrics::get_sent},
        {"put_rendezvous", &metrics::put_sent},
        {"cooperative_rendezvous", &metrics::cooperative_sent},
        {"speculative", &metrics::speculative_sent},
        {"segmented", &metrics::segmented_sent},
        {"provider_matched", &metrics::provider_matched_sent},
    };
    std::vector<carried_by> sent;
    for (const counter& one : counters) {
        const std::uint64_t messages = after.*one.messages - before.*one.messages;
        if (messages != 0) sent.push_back({one.policy, messages});
    }
    return sent;
}

/// Adds those of another link.
inline void add_carried(std::vector<carried_by>& to, const std::vector<carried_by>& more) {
    for (const carried_by& one : more) {
        const auto same = std::find_if(to.begin(), to.end(),
                                       [&](const carried_by& other) { return other.policy == one.policy; });
        if (same == to.end()) {
            to.push_back(one);
        } else {
            same->messages += one.messages;
        }
    }
}

}  // namespace pingpong
