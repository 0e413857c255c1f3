// Bodies of error.hpp.
#pragma once

#include <rdmacoro/transport/ofi/error.hpp>

#include <cerrno>

#include <sys/resource.h>

namespace rdmacoro::detail::fabric {

RDMACORO_COLD std::string text_of(long failed) { return ::fi_strerror(static_cast<int>(-failed)); }

RDMACORO_COLD errc errc_of(int error) noexcept {
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

RDMACORO_COLD errc errc_of_opening(long failed) noexcept {
    switch (failed) {
        case -FI_ENOMEM:
        case -FI_EMFILE:
        case -ENFILE:
        case -FI_ENOSPC: return errc::no_resources;
        default: return errc::unsupported;
    }
}

RDMACORO_COLD std::string registration_failure(const std::string& prefix, std::size_t bytes, long failed) {
    std::string text =
        prefix + ": registering " + std::to_string(bytes) + " bytes of memory: " + text_of(failed);
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

RDMACORO_COLD void throw_registration_failure(const std::string& prefix, std::size_t bytes, long failed) {
    throw error(failed == -FI_EFAULT || failed == -FI_EINVAL ? errc::invalid_argument : errc::no_resources,
                registration_failure(prefix, bytes, failed));
}

RDMACORO_COLD void throw_failure(const std::string& what, long failed) {
    throw error(errc_of_opening(failed), what + ": " + text_of(failed));
}

}  // namespace rdmacoro::detail::fabric
