// verbs_link: a connection that hands what arrives to a sink.
#pragma once

#include <rdmacoro/transport/verbs_rc/connection.hpp>

#include <span>

namespace rdmacoro {

/// Models `one_sided_link`, and has atomics besides. May be destroyed at any time outside a call to its sink. `Sink` may still
/// be incomplete here: a sink that holds its link by value.
template <class Sink>
class verbs_link final : public detail::core_link<detail::verbs::core, Sink> {
    using core_link = detail::core_link<detail::verbs::core, Sink>;
    using core_link::core_;

public:
    /// Precondition: `connection` is open.
    verbs_link(verbs_connection connection, Sink& sink) noexcept : core_link(*connection.release(), sink) {}

    region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        auto lease = core_.of().cache().acquire(memory, rights);
        if (!lease) return {};
        const auto opened = core_.of().regions().add(std::move(lease), rights);
        return opened ? region(core_.of(), memory, *opened) : region();
    }
    /// Messages are never `posted`; a get or put that does not end within 20 ms ends the link with it.
    bool revoke(completion& c) noexcept {
        core_.revoke(c);
        return false;
    }
    /// The device's queue pair; nullptr when the link is down. For tests and tools: its state is the link's to change.
    [[nodiscard]] ibv_qp* queue_pair() const noexcept { return core_.queue_pair(); }
};

}  // namespace rdmacoro
