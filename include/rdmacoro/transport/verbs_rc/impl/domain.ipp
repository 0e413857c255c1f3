// Bodies of domain.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/domain.hpp>

namespace rdmacoro {

RDMACORO_DECL std::string verbs_domain::describe() {
    detail::verbs::device& device = engine_.device();
    std::string text = device.name() + " port " + std::to_string(device.port());
    if (engine_.by_cm()) {
        const std::string host = device.address().text();
        text += ", rdma_cm at " + host.substr(0, host.rfind(':'));
    } else {
        detail::verbs::port_state now;
        static_cast<void>(device.look_at_port(device.address(), nullptr, now));
        text += ", TCP exchange, GID " + std::to_string(now.gid_index);
    }
    const verbs_options& options = engine_.options();
    if (!device.iwarp()) {
        text += ", MTU " + std::to_string(128u << device.port_attributes().active_mtu);
        if (options.traffic_class >= 0) text += ", traffic class " + std::to_string(options.traffic_class);
    }
    text += ", " + detail::verbs::bytes_text(engine_.bytes_of_link()) + " locked for each link, at most " +
            std::to_string(options.most_links) + " links";
    if (!engine_.shares_receives()) text += ", a receive queue for each link";
    return text + ", inline " + std::to_string(device.inline_limit()) +
           (device.iwarp()     ? ", iWARP"
            : device.atomics() ? ", atomics"
                               : "");
}

}  // namespace rdmacoro
