// Events of the connection manager.
#pragma once

#include <rdmacoro/transport/verbs_rc/device.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmacoro::detail::verbs {

/// An event of the connection manager, copied, so that the event itself is acknowledged before anybody acts on it: an
/// identifier with an event that is not acknowledged can't be destroyed.
struct cm_news {
    rdma_cm_event_type type{};
    int status = 0;
    rdma_cm_id* id = nullptr;  // of a connection request: a new one
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::size_t bytes = 0;
    std::array<std::byte, 64> data{};

    explicit cm_news(const rdma_cm_event& event) noexcept
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
};

/// Who has an identifier of the connection manager: its context points here.
class cm_party {
public:
    virtual void cm_event(const cm_news& news) noexcept = 0;

protected:
    ~cm_party() = default;
};

}  // namespace rdmacoro::detail::verbs
