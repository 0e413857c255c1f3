// The libfabric transport: any network that libfabric has a provider for. Needs libfabric 1.17 or later.
#pragma once

#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/ofi/domain.hpp>
#include <rdmacoro/transport/ofi/link.hpp>

#include <string_view>

namespace rdmacoro {

/// Models `transport`, over the provider that the profile describes: `ofi<provider::tcp>`. A domain is one reliable-datagram
/// endpoint with an address vector and one completion queue; links share it. Messages that fit are injected, else they are
/// staged in registered slots; gets and puts are the provider's, from and to the users' memory. `ofi<provider::any>` takes
/// the provider's name when a domain opens.
template <const ofi_profile& Profile>
struct ofi {
    static constexpr const ofi_profile& profile = Profile;  ///< the provider's profile
    static constexpr std::string_view name = Profile.scheme;
    static constexpr std::string_view description = Profile.description;
    static constexpr capabilities static_capabilities{
        .max_message = Profile.slot_bytes - detail::fabric::frame_bytes,
        .eager_bytes =
            Profile.eager_bytes != 0 ? Profile.eager_bytes : Profile.slot_bytes - detail::fabric::frame_bytes,
        .segment_bytes = Profile.slot_bytes - detail::fabric::frame_bytes,
        .get_alignment = Profile.get_alignment,
        .one_sided = true,
        .one_sided_offloaded = Profile.offloaded,
        .needs_registration = (Profile.mr_mode & ofi_flag::mr_local) != 0,
        .atomics = Profile.atomics,
        .ends_on_refusal = Profile.one_sided == ofi_one_sided::direct,
        .rendezvous_bytes = Profile.rendezvous_bytes,
        .get_bytes = Profile.get_bytes};

    using domain = ofi_domain<Profile>;
    using connection = ofi_connection;
    using listener = ofi_listener;
    template <class Sink>
    using link = ofi_link<Sink>;
};

static_assert(transport<ofi<provider::any>>);
static_assert(atomic_link<ofi<provider::any>::link<detail::sink_archetype>>);

}  // namespace rdmacoro

#if defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/messaging/compiled/ofi.hpp>
#include <rdmacoro/service/compiled/ofi.hpp>
#endif
