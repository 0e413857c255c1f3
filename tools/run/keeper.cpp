#include "keeper.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace run {

namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::system_category(), what); }

/// Ends the keeper when the write end of `pipe` is closed. Runs on a thread of its own, because the main thread may block in a write to a full pipe.
[[noreturn]] void end_with(int pipe) {
    char none = 0;
    while (::read(pipe, &none, 1) < 0 && errno == EINTR) {}
    end_children();
    ::_exit(128 + SIGKILL);
}

int keep(pid_t keeper, const sigset_t& passed_on) {
    int status = 0;
    for (;;) {
        const int number = ::sigwaitinfo(&passed_on, nullptr);
        if (number == SIGCHLD) {
            if (::waitpid(keeper, &status, WNOHANG) == keeper) break;
        } else if (number > 0) {
            ::kill(keeper, number);
            if (number == SIGTSTP) ::raise(SIGSTOP);
        }
    }
    end_children();
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    const int number = WTERMSIG(status);
    std::fprintf(stderr,
                 "run: the process that keeps the ranks was ended by signal %d (%s): ended all ranks\n",
                 number, strsignal(number));
    return 128 + number;
}

}  // namespace

void end_children() {
    for (bool any = true; any;) {
        any = false;
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::ifstream list(task.path() / "children");
            for (pid_t one = 0; list >> one;) {
                any = true;
                ::kill(one, SIGKILL);
                ::waitpid(one, nullptr, 0);
            }
        }
    }
}

int run_kept(const std::function<int(const sigset_t& for_ranks)>& job) {
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("prctl");
    sigset_t passed_on, before;
    ::sigemptyset(&passed_on);
    for (const int one : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})
        ::sigaddset(&passed_on, one);
    ::sigprocmask(SIG_BLOCK, &passed_on, &before);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
    std::fflush(nullptr);
    const pid_t keeper = ::fork();
    if (keeper < 0) fail("fork");
    if (keeper != 0) {
        ::close(ends[0]);
        return keep(keeper, passed_on);
    }
    // What is sent to the group of `run`, by a terminal or to kill it, comes by `run`, or is the end of the pipe.
    ::setpgid(0, 0);
    ::close(ends[1]);
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("prctl");
    std::thread(end_with, ends[0]).detach();
    return job(before);
}

}  // namespace run
