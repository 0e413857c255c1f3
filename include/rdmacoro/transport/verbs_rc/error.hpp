// What a device says went wrong, as codes and as sentences for people.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <cerrno>
#include <cstring>
#include <string>

#include <infiniband/verbs.h>
#include <sys/resource.h>

namespace rdmacoro::detail::verbs {

/// What a failed work request means for the link. A refused access does not say which rule was broken: the device of the
/// other side says only that it refused.
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
[[nodiscard]] inline std::string bytes_text(std::uint64_t bytes) {
    if (bytes == static_cast<std::uint64_t>(RLIM_INFINITY)) return "unlimited";
    constexpr std::uint64_t kib = 1024;
    if (bytes >= kib * kib * kib && bytes % (kib * kib * kib) == 0)
        return std::to_string(bytes / (kib * kib * kib)) + " GiB";
    if (bytes >= kib * kib && bytes % (kib * kib) == 0) return std::to_string(bytes / (kib * kib)) + " MiB";
    if (bytes >= kib && bytes % kib == 0) return std::to_string(bytes / kib) + " KiB";
    return std::to_string(bytes) + " bytes";
}

/// Why memory of that length could not be registered, and what to do about it.
[[nodiscard]] inline std::string registration_failure(std::size_t bytes, int system) {
    std::string text = "verbs: registering " + bytes_text(bytes) + " of memory: " + std::strerror(system);
    rlimit limit{};
    if ((system == ENOMEM || system == EAGAIN || system == EPERM) &&
        ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        text += "; this process may lock " + bytes_text(limit.rlim_cur) +
                " (RLIMIT_MEMLOCK). Raise it: `ulimit -l unlimited` in the shell that starts it, a line "
                "\"* - memlock unlimited\" in /etc/security/limits.conf, or LimitMEMLOCK=infinity of its "
                "systemd unit";
    } else if (system == EFAULT) {
        text += "; it is not mapped, or not writable";
    }
    return text;
}
[[gnu::cold, noreturn]] inline void throw_registration_failure(std::size_t bytes, int system) {
    throw error(system == EFAULT || system == EINVAL ? errc::invalid_argument : errc::no_resources,
                registration_failure(bytes, system));
}

/// `what` failed with `errno`, or with a number that the function gave.
[[gnu::cold, noreturn]] inline void throw_system(const std::string& what, int system) {
    if (system == ENOMEM || system == ENOSPC || system == EMFILE || system == ENFILE)
        throw error(errc::no_resources, what + ": " + std::strerror(system));
    throw error(std::error_code(system, std::system_category()), what);
}

}  // namespace rdmacoro::detail::verbs
