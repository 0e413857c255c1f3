#include "guard.hpp"

#include <cerrno>
#include <csignal>
#include <set>
#include <system_error>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace run {

namespace {

/// Reads groups, positive where they are to be watched, until `run` has gone.
[[noreturn]] void watch_until_end(int from) {
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::setsid();
    std::set<pid_t> groups;
    pid_t one = 0;
    ssize_t got = 0;
    while ((got = ::read(from, &one, sizeof one)) == static_cast<ssize_t>(sizeof one) ||
           (got < 0 && errno == EINTR)) {
        if (got > 0 && one > 0) groups.insert(one);
        if (got > 0 && one < 0) groups.erase(-one);
    }
    for (const pid_t group : groups) ::kill(-group, SIGKILL);
    ::_exit(0);
}

}  // namespace

guard::guard() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::system_category(), "pipe2");
    process_ = ::fork();
    if (process_ < 0) throw std::system_error(errno, std::system_category(), "fork");
    if (process_ == 0) {
        // Holds nothing of the caller's open, which may wait for its end.
        ::dup2(ends[0], 0);
        ::close_range(1, ~0u, 0);
        watch_until_end(0);
    }
    ::close(ends[0]);
    pipe_ = ends[1];
}
guard::~guard() {
    ::close(pipe_);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {}
}
void guard::watch(pid_t group) { tell(group); }
void guard::forget(pid_t group) { tell(-group); }
void guard::tell(pid_t what) {
    while (::write(pipe_, &what, sizeof what) < 0 && errno == EINTR) {}
}

}  // namespace run
