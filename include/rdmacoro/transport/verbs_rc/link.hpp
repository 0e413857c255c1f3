// verbs_link: a connection that delivers messages to a sink.
#pragma once

#include <rdmacoro/transport/verbs_rc/connection.hpp>

#include <span>

namespace rdmacoro {

/// Models `one_sided_link`, and has atomics besides. May be destroyed at any time outside a call to its sink. `Sink` may still
/// be incomplete here: a sink that holds its link by value.
template <class Sink>
class verbs_link final : public detail::session_link<detail::verbs::session, Sink> {
    using session_link = detail::session_link<detail::verbs::session, Sink>;
    using session_link::session_;

public:
    /// Precondition: `connection` is open.
    verbs_link(verbs_connection connection, Sink& sink) noexcept
        : session_link(*connection.release(), sink) {}

    region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        return session_.expose(memory, rights);
    }
    /// Messages are never `posted`. Waits for the pieces of a get or put that are under way, 8 MiB at most; when the device completes
    /// none within 100 ms, ends the link.
    bool revoke(completion& c) noexcept {
        session_.revoke(c);
        return false;
    }
    /// The device's queue pair; nullptr when the link is down. For tests and tools: its state is the link's to change.
    [[nodiscard]] ibv_qp* queue_pair() const noexcept { return session_.queue_pair(); }
};

}  // namespace rdmacoro
