// Failures that a device reports, as codes and as texts for users.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>

#include <cerrno>
#include <cstring>
#include <string>

#include <infiniband/verbs.h>
#include <sys/resource.h>

namespace rdmacoro::detail::verbs {

/// The link's error for a failed work request. The status of a refused access does not name the violated rule: the
/// other side's device reports the refusal only.
[[nodiscard]] inline errc errc_of(ibv_wc_status status) noexcept {
    switch (status) {
        case IBV_WC_SUCCESS: return errc::ok;
        case IBV_WC_REM_ACCESS_ERR: return errc::access_denied;
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_INV_RD_REQ_ERR:
        case IBV_WC_LOC_LEN_ERR: return errc::protocol_violation;
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_ACCESS_ERR: return errc::invalid_argument;
        default: return errc::peer_lost;
    }
}

/// "5 GiB", "64 KiB", "unlimited".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

/// Whether a device may have refused a queue, which failed with the system error `system`, as this process may lock no more memory:
/// adapters lock their queues.
[[nodiscard]] bool limited_by_memlock(int system) noexcept;
/// "; this process may lock ...", and the remedy. Empty: there is no limit.
[[nodiscard]] std::string memlock_advice();

/// The reason why memory of that length could not be registered, and the remedy.
[[nodiscard]] std::string registration_failure(std::size_t bytes, int system);
[[gnu::cold, noreturn]] void throw_registration_failure(std::size_t bytes, int system);

/// Step `what` failed with the system error `system`.
[[gnu::cold, noreturn]] void throw_system(const std::string& what, int system);

}  // namespace rdmacoro::detail::verbs

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/verbs_rc/impl/error.ipp>
#endif
