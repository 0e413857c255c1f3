// The permission of the Yama security module, for a peer to reach this process's memory.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <utility>

#include <sys/types.h>

namespace rdmacoro::detail::shm {

/// Permits one process to trace this one (PR_SET_PTRACER), until it is destroyed. The kernel keeps the last permission only: a
/// grant ends the one before, and its own end takes back nothing that a later one gave. Without effect on systems without Yama.
class ptrace_grant {
public:
    ptrace_grant() noexcept = default;
    explicit ptrace_grant(pid_t to) noexcept;
    ptrace_grant(ptrace_grant&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
    ptrace_grant& operator=(ptrace_grant&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~ptrace_grant();

private:
    unsigned long number_ = 0;  // 0: grants nothing
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/ptrace_grant.ipp>
#endif
