// Bodies of events.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/events.hpp>

#include <algorithm>
#include <cstring>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD cm_news::cm_news(const rdma_cm_event& event) noexcept
    : type(event.event), status(event.status), id(event.id) {
    switch (event.event) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
        case RDMA_CM_EVENT_CONNECT_RESPONSE:
        case RDMA_CM_EVENT_ESTABLISHED:
        case RDMA_CM_EVENT_REJECTED: break;
        default: return;
    }
    responder_resources = event.param.conn.responder_resources;
    initiator_depth = event.param.conn.initiator_depth;
    if (event.param.conn.private_data == nullptr) return;
    bytes = std::min<std::size_t>(event.param.conn.private_data_len, data.size());
    std::memcpy(data.data(), event.param.conn.private_data, bytes);
}

}  // namespace rdmacoro::detail::verbs
