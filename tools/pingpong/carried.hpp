// Which policy carried what, from a link's counts.
#pragma once

#include <rdmacoro/protocol/metrics.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pingpong {

/// Messages that one policy has sent.
struct carried_by {
    std::string_view policy;
    std::uint64_t messages;
};

/// Every policy that a link's counts know, in a fixed order.
[[nodiscard]] inline auto carried(const rdmacoro::metrics& counts) {
    return std::array{
        carried_by{"eager", counts.eager_sent},
        carried_by{"reuse_aware_eager, in place", counts.in_place_sent},
        carried_by{"get_rendezvous", counts.get_sent},
        carried_by{"put_rendezvous", counts.put_sent},
        carried_by{"cooperative_rendezvous", counts.cooperative_sent},
        carried_by{"segmented", counts.segmented_sent},
    };
}

}  // namespace pingpong
