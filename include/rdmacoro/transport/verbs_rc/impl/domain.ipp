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
        text += ", TCP exchange, GID " + std::to_string(device.gid_index());
    }
    return text + ", inline " + std::to_string(device.inline_limit()) +
           (device.iwarp()     ? ", iWARP"
            : device.atomics() ? ", atomics"
                               : "");
}

}  // namespace rdmacoro
