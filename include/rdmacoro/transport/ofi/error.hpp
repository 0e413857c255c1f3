// What libfabric says went wrong, as codes and as sentences for people.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <cerrno>
#include <cstring>
#include <string>

#include <rdma/fi_errno.h>
#include <sys/resource.h>

namespace rdmacoro::detail::fabric {

/// "Resource temporarily unavailable", for a number as functions of libfabric return it: negative.
[[nodiscard]] inline std::string text_of(long failed) { return ::fi_strerror(static_cast<int>(-failed)); }

/// What the failure of a get, put or send means for its link; `error` as in an error entry of a completion queue.
[[nodiscard]] inline errc errc_of(int error) noexcept {
    switch (error) {
        case 0: return errc::ok;
        case FI_EACCES:
        case FI_EPERM:
        case FI_ENOKEY:
        case FI_EINVAL: return errc::access_denied;
        case FI_ENOMEM: return errc::no_resources;
        default: return errc::peer_lost;
    }
}

/// Whether the provider has no room now, and trying again makes sense.
[[nodiscard]] constexpr bool is_busy(long failed) noexcept { return failed == -FI_EAGAIN; }

/// Why memory of that length could not be registered, and what to do about it.
[[nodiscard]] inline std::string registration_failure(const std::string& who, std::size_t bytes,
                                                      long failed) {
    std::string text =
        who + ": registering " + std::to_string(bytes) + " bytes of memory: " + text_of(failed);
    rlimit limit{};
    if ((failed == -FI_ENOMEM || failed == -FI_EAGAIN || failed == -FI_EPERM) &&
        ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        text +=
            "; this process may lock " + std::to_string(limit.rlim_cur) +
            " bytes (RLIMIT_MEMLOCK). Where the provider pins memory, raise it: `ulimit -l unlimited` in the "
            "shell that starts it";
    }
    return text;
}
[[gnu::cold, noreturn]] inline void throw_registration_failure(const std::string& who, std::size_t bytes,
                                                               long failed) {
    throw error(failed == -FI_EFAULT || failed == -FI_EINVAL ? errc::invalid_argument : errc::no_resources,
                registration_failure(who, bytes, failed));
}

/// `what` failed with a number of libfabric's.
[[gnu::cold, noreturn]] inline void throw_failure(const std::string& what, long failed) {
    throw error(failed == -FI_ENOMEM || failed == -FI_EMFILE || failed == -FI_ENOSPC ? errc::no_resources
                                                                                     : errc::unsupported,
                what + ": " + text_of(failed));
}

}  // namespace rdmacoro::detail::fabric
