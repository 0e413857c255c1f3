// Bodies of domain.hpp.
#pragma once

#include <rdmacoro/transport/ofi/domain.hpp>

namespace rdmacoro {

RDMACORO_DECL std::string ofi_domain_base::describe() {
    detail::fabric::device& device = engine_.device();
    if (!engine_.has_endpoint())
        return std::string(device.profile().provider) +
               ", which has no endpoint any more: " + engine_.why_broken();
    return std::string(device.profile().provider) + " on " + device.info().domain_attr->name + " at " +
           device.own_address_text() + ", inject " + std::to_string(device.inject_limit()) +
           (engine_.serves() ? ", gets and puts served" : "") + (device.wait_fd() >= 0 ? ", can sleep" : "");
}

RDMACORO_COLD void ofi_domain_base::require_matching() {
    const std::string why = engine_.device().why_no_matching();
    if (!why.empty()) throw error(errc::unsupported, "provider_matched over " + why);
}

RDMACORO_DECL std::optional<ofi_provider_counts> ofi_domain_base::provider_counts() noexcept {
    const detail::fabric::provider_counters& counters = engine_.device().counters();
    if (!counters.opened()) return std::nullopt;
    return counters.read();
}

}  // namespace rdmacoro
