#pragma once

// Two verbs domains on one scheduler, on the device of device.hpp, with links between them.

#include <rdmacoro/transport/verbs_rc.hpp>

#include "support/fabric_pair.hpp"
#include "support/verbs_stand_in/device.hpp"

#include <cstddef>

namespace rdmacoro::test::verbs_stand_in {

struct fabric {
    using transport = verbs_rc;
    using options = verbs_options;
    static constexpr const char* address = "127.0.0.1:0";
    template <class World, class End>
    static void greet(World& w, End& a, End& b) {
        const std::byte nothing[1] = {};
        w.exchange(b, a, nothing);
    }
};
using end = fabric_end<fabric>;
using world = fabric_world<fabric>;
using link_type = verbs_rc::link<recording_sink>;

/// Of a domain on the device, whose connections open by TCP.
[[nodiscard]] inline verbs_options by_tcp() {
    verbs_options made;
    made.device = device_name;
    made.connect_by = verbs_connect::tcp;
    return made;
}

}  // namespace rdmacoro::test::verbs_stand_in
