// signals_blocked: threads of the toolkit take none of the program's signals.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace rdmacoro::detail {

/// Blocks all signals in this thread while it exists, and for good in the threads that this one makes meanwhile: signals are for the
/// program's own threads, and for `signals`, which get one only where no thread takes it.
class signals_blocked {
public:
    signals_blocked() noexcept {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    signals_blocked(const signals_blocked&) = delete;
    signals_blocked& operator=(const signals_blocked&) = delete;
    ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
};

}  // namespace rdmacoro::detail
