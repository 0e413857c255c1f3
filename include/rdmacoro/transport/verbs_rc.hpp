// The verbs transport: InfiniBand, RoCE and iWARP by rdma-core. Needs libibverbs and librdmacm.
#pragma once

#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/verbs_rc/domain.hpp>
#include <rdmacoro/transport/verbs_rc/domains.hpp>
#include <rdmacoro/transport/verbs_rc/link.hpp>

#include <string_view>

namespace rdmacoro {

/// Models `transport`. Reliable connected queue pairs; a domain is one device, with completion queues for so many links each
/// as they have room for, and a shared receive queue, or one for each link where the device has none to share (iWARP) or
/// `verbs_options::share_receives` is false. Messages travel inside their work request where they are short, else they are staged in registered slots;
/// get and put are the device's own, from and to the users' memory. Credits guarantee a receive slot for each message.
struct verbs_rc {
    static constexpr std::string_view name = "verbs";
    static constexpr std::string_view description = "RDMA over InfiniBand, RoCE and iWARP, by rdma-core";
    static constexpr capabilities static_capabilities{
        .max_message = detail::verbs::greeting::least_slot - detail::verbs::frame_bytes,
        .eager_bytes = detail::verbs::greeting::least_slot - detail::verbs::frame_bytes,
        .segment_bytes = detail::verbs::greeting::least_slot - detail::verbs::frame_bytes,
        .one_sided = true,
        .one_sided_offloaded = true,
        .needs_registration = true,
        .put_before_send = true,
        .ends_on_refusal = true};

    using domain = verbs_domain;
    using connection = verbs_connection;
    using listener = verbs_listener;
    template <class Sink>
    using link = verbs_link<Sink>;

    /// The scheduler's domain for an address, to listen on or to connect to: of the device that the address chooses, unless the
    /// environment names one (`RDMACORO_VERBS_DEVICE`). A host's name is looked up where there are several devices. The address is
    /// copied.
    [[nodiscard]] static task<domain*> domain_for(scheduler& owner, std::string_view address) {
        return detail::verbs::choose_domain(owner.service<detail::verbs::domains>(), std::string(address));
    }
};

static_assert(transport<verbs_rc>);
static_assert(atomic_link<verbs_rc::link<detail::sink_archetype>>);

}  // namespace rdmacoro

#if defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/messaging/compiled/verbs_rc.hpp>
#include <rdmacoro/service/compiled/verbs_rc.hpp>
#endif
