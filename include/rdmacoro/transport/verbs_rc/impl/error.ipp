// Bodies of error.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/error.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <sys/resource.h>

namespace rdmacoro::detail::verbs {

RDMACORO_COLD std::string bytes_text(std::uint64_t bytes) {
    if (bytes == static_cast<std::uint64_t>(RLIM_INFINITY)) return "unlimited";
    constexpr std::uint64_t kib = 1024;
    if (bytes >= kib * kib * kib && bytes % (kib * kib * kib) == 0)
        return std::to_string(bytes / (kib * kib * kib)) + " GiB";
    if (bytes >= kib * kib && bytes % (kib * kib) == 0) return std::to_string(bytes / (kib * kib)) + " MiB";
    if (bytes >= kib && bytes % kib == 0) return std::to_string(bytes / kib) + " KiB";
    return std::to_string(bytes) + " bytes";
}

/// Memory that this process has locked for devices, in bytes; 0: the kernel does not tell.
[[nodiscard]] inline std::uint64_t locked_bytes() noexcept {
    unsigned long long kib = 0;
    if (FILE* const status = std::fopen("/proc/self/status", "re"); status != nullptr) {
        char line[128];
        while (std::fgets(line, sizeof line, status) != nullptr &&
               std::sscanf(line, "VmPin: %llu", &kib) != 1) {}
        std::fclose(status);
    }
    return std::uint64_t{kib} * 1024;
}

RDMACORO_COLD bool limited_by_memlock(int system) noexcept {
    constexpr std::uint64_t of_queues =
        std::uint64_t{4} << 20;  // of a domain: a completion queue of 32,768 entries, and others
    rlimit limit{};
    return system == ENOMEM && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           limit.rlim_cur < locked_bytes() + of_queues;
}

RDMACORO_COLD std::string memlock_advice() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
    return "; this process may lock " + bytes_text(limit.rlim_cur) +
           " (RLIMIT_MEMLOCK). Raise it: `ulimit -l unlimited` in the shell that starts it, a line \"* - "
           "memlock "
           "unlimited\" in /etc/security/limits.conf, or LimitMEMLOCK=infinity of its systemd unit";
}

RDMACORO_COLD std::string registration_failure(std::size_t bytes, int system) {
    std::string text = "verbs: registering " + bytes_text(bytes) + " of memory: " + std::strerror(system);
    if (system == ENOMEM || system == EAGAIN || system == EPERM) {
        text += memlock_advice();
    } else if (system == EFAULT) {
        text += "; it is not mapped, or not writable";
    }
    return text;
}

RDMACORO_COLD void throw_registration_failure(std::size_t bytes, int system) {
    throw error(system == EFAULT || system == EINVAL ? errc::invalid_argument : errc::no_resources,
                registration_failure(bytes, system));
}

RDMACORO_COLD void throw_system(const std::string& what, int system) {
    if (system == ENOMEM || system == ENOSPC || system == EMFILE || system == ENFILE)
        throw error(errc::no_resources, what + ": " + std::strerror(system) +
                                            (limited_by_memlock(system) ? memlock_advice() : std::string()));
    throw error(std::error_code(system, std::system_category()), what);
}

}  // namespace rdmacoro::detail::verbs
