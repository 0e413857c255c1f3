// A process beside this one that runs a function of its.
#pragma once

#include "../../tools/pingpong/cpus.hpp"
#include "../../tools/pingpong/failure.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bench {

using pingpong::run_error;

/// A process that calls `work`, and ends with this one.
template <class Work>
class child {
public:
    /// On this thread's CPUs.
    explicit child(Work work) { begin(work); }
    /// On `cpu`, from the beginning: with a real-time priority (`chrt`) a process gets none of its busy parent's CPU to leave it.
    child(int cpu, Work work) {
        cpu_set_t own;
        if (::sched_getaffinity(0, sizeof own, &own) != 0) failed("sched_getaffinity");
        pingpong::pin_to(cpu);
        begin(work);
        if (::sched_setaffinity(0, sizeof own, &own) != 0) failed("sched_setaffinity");
    }
    child(const child&) = delete;
    child& operator=(const child&) = delete;
    ~child() { static_cast<void>(end(true)); }

    /// Its status, once it has ended.
    int end(bool kill_it) {
        int status = 0;
        if (id_ == 0) return status;
        if (kill_it) ::kill(id_, SIGKILL);
        pid_t ended = -1;
        do ended = ::waitpid(id_, &status, 0);
        while (ended < 0 && errno == EINTR);
        id_ = 0;
        if (ended < 0) status = -1;
        return status;
    }

private:
    [[noreturn]] static void failed(const char* what) {
        throw run_error(std::string(what) + ": " + std::strerror(errno));
    }

    void begin(Work& work) {
        const pid_t parent = ::getpid();
        id_ = ::fork();
        if (id_ < 0) failed("fork");
        if (id_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        work();
        ::_exit(0);
    }

    pid_t id_ = 0;
};

}  // namespace bench
