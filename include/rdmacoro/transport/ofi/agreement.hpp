// Comparison of a provider with its profile.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/ofi/error.hpp>
#include <rdmacoro/transport/ofi/profile.hpp>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

namespace rdmacoro::detail::fabric {

static_assert(ofi_flag::mr_local == FI_MR_LOCAL && ofi_flag::mr_virt_addr == FI_MR_VIRT_ADDR &&
              ofi_flag::mr_allocated == FI_MR_ALLOCATED && ofi_flag::mr_prov_key == FI_MR_PROV_KEY &&
              ofi_flag::mr_endpoint == FI_MR_ENDPOINT);
static_assert(ofi_flag::order_sas == FI_ORDER_SAS && ofi_flag::order_saw == FI_ORDER_SAW);

struct free_info {
    void operator()(fi_info* info) const noexcept { ::fi_freeinfo(info); }
};
using unique_info = std::unique_ptr<fi_info, free_info>;

/// The interface of libfabric that the transport is written to. Later libraries offer it as well.
inline constexpr std::uint32_t spoken_version = FI_VERSION(1, 17);

/// The query for a provider: everything that the profile requires, and no more.
[[nodiscard]] unique_info hints_of(const ofi_profile& p);

[[nodiscard]] std::string flags_text(std::uint64_t flags, fi_type type);
[[nodiscard]] std::string mr_mode_text(std::uint64_t flags);

/// Empty where `answer` confirms the profile; else the field that differs: "inject_size: the description says at least 64, the
/// provider answers 32".
[[nodiscard]] std::string disagreement(const ofi_profile& p, const fi_info& answer);

/// Answers of all of libfabric's providers of reliable datagrams on this host, with any requirements of their user;
/// empty: there are none. One provider may answer more than once.
[[nodiscard]] unique_info all_answers();

/// The providers that libfabric has on this host, for texts: "tcp;ofi_rxm, shm, sockets".
[[nodiscard]] std::string providers_text();

}  // namespace rdmacoro::detail::fabric

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/ofi/impl/agreement.ipp>
#endif
