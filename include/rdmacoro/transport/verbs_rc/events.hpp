// Events of the connection manager.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/verbs_rc/device.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmacoro::detail::verbs {

/// An event of the connection manager, copied, so that the event itself is acknowledged before it is handled: an
/// identifier with an unacknowledged event cannot be destroyed.
struct cm_news {
    rdma_cm_event_type type{};
    int status = 0;
    rdma_cm_id* id = nullptr;  // of a connection request: a new one
    std::uint8_t responder_resources = 0;
    std::uint8_t initiator_depth = 0;
    std::size_t bytes = 0;
    std::array<std::byte, 64> data{};

    explicit cm_news(const rdma_cm_event& event) noexcept;
};

/// The owner of an identifier of the connection manager; the identifier's context points here.
class cm_party {
public:
    virtual void cm_event(const cm_news& news) noexcept = 0;

protected:
    ~cm_party() = default;
};

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/events.ipp>
#endif
