// Giving and taking back the permission to trace this process.
#pragma once

#include <rdmacoro/transport/shm/ptrace_grant.hpp>

#include <pthread.h>
#include <sys/prctl.h>

namespace rdmacoro::detail::shm {

/// The grants of this process, by all its schedulers.
struct ptrace_grants {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned long last = 0;
};
inline ptrace_grants grants_of_process;

RDMACORO_COLD ptrace_grant::ptrace_grant(pid_t to) noexcept {
    ::pthread_mutex_lock(&grants_of_process.lock);
    number_ = ++grants_of_process.last;
    ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(to), 0, 0, 0);
    ::pthread_mutex_unlock(&grants_of_process.lock);
}

RDMACORO_COLD ptrace_grant::~ptrace_grant() {
    if (number_ == 0) return;
    ::pthread_mutex_lock(&grants_of_process.lock);
    if (number_ == grants_of_process.last) ::prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    ::pthread_mutex_unlock(&grants_of_process.lock);
}

}  // namespace rdmacoro::detail::shm
