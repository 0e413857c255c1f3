#pragma once

// The libfabric transport for the conformance suite: one type, opened on several providers. Included by transports.hpp.

#include <rdmacoro/transport/ofi.hpp>

#include <memory>
#include <string>
#include <tuple>

#if RDMACORO_OFI_MATCHED_SUITE
namespace rdmacoro::test {
/// Any provider: a transport of its own, whose default list can be another.
inline constexpr ofi_profile suite_provider = provider::any;
}  // namespace rdmacoro::test

namespace rdmacoro::detail {
/// So that the suite, which names no list, runs with the provider's matching.
template <>
struct default_list<ofi<test::suite_provider>> {
    using type = protocols<provider_matched>;
};
}  // namespace rdmacoro::detail
#else
namespace rdmacoro::test {
inline constexpr const ofi_profile& suite_provider = provider::any;
}  // namespace rdmacoro::test
#endif

namespace rdmacoro::test {

struct ofi_tcp {
    using transport_type = ofi<suite_provider>;
    static ofi_options options_for(const char* provider) {
        ofi_options o;
        o.provider = provider;
        o.node = "127.0.0.1";
        return o;
    }
    static std::unique_ptr<transport_type::domain> open(scheduler& on) {
        return std::make_unique<transport_type::domain>(on, options_for("tcp"));
    }
    static std::string address() { return "127.0.0.1:0"; }
    static constexpr bool crosses_threads = true;
    static constexpr bool can_park = true;
    static constexpr bool may_come_at_once = true;
};

struct ofi_shm : ofi_tcp {
    static constexpr bool can_park = false;
    static std::unique_ptr<transport_type::domain> open(scheduler& on) {
        ofi_options o = options_for("shm");
        o.node.clear();
        return std::make_unique<transport_type::domain>(on, o);
    }
};

/// A provider for hardware: real, or the stand-in, which FI_PROVIDER_PATH names. Without either it fails.
template <const ofi_profile& Profile>
struct ofi_hardware : ofi_tcp {
    static constexpr bool can_park = Profile.wait == ofi_wait::descriptor;
    static std::unique_ptr<transport_type::domain> open(scheduler& on) {
        ofi_options o = options_for(Profile.provider.data());
        o.node.clear();
        o.get_bytes = static_cast<std::size_t>(-1);  // lists of the suite have a get and no put
        return std::make_unique<transport_type::domain>(on, o);
    }
};

using ofi_gni = ofi_hardware<provider::gni>;
using ofi_cxi = ofi_hardware<provider::cxi>;
using ofi_efa = ofi_hardware<provider::efa>;

#if RDMACORO_OFI_MATCHED_SUITE
// Not shm, whose matching works from libfabric 1.19 on.
using every_ofi_transport = std::tuple<ofi_tcp, ofi_gni, ofi_cxi, ofi_efa>;
#else
using every_ofi_transport = std::tuple<ofi_tcp, ofi_shm, ofi_gni, ofi_cxi, ofi_efa>;
#endif
/// The transports that can lose a peer. Not shm: the provider keeps locks in memory that the processes share, and a peer that is killed or stopped while
/// it has one stops the others in their next call.
#if RDMACORO_SERVICES_SUITE
// One, as each is compiled once more, and services ask a provider for nothing that the conformance suite does not.
using every_real_ofi_transport = std::tuple<ofi_tcp>;
#else
using every_real_ofi_transport = std::tuple<ofi_tcp, ofi_gni, ofi_cxi, ofi_efa>;
#endif

}  // namespace rdmacoro::test
