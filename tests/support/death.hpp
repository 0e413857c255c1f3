#pragma once

// Runs something fatal in a child process and reports how that ended.

#include <csignal>
#include <cstdlib>
#include <string>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rdmacoro::test {

struct death {
    bool aborted = false;  ///< ended by SIGABRT, as `detail::fatal` does
    int status = 0;        ///< as `waitpid` gives it
    std::string said;      ///< its standard error
};

/// Runs `function` in a child process, which has ten seconds.
template <class Function>
death dies(Function function) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t child = ::fork();
    if (child < 0) std::abort();
    if (child == 0) {
        std::signal(SIGABRT, SIG_DFL);  // the test runner's handler would report a failed test
        const rlimit no_core{0, 0};
        ::setrlimit(RLIMIT_CORE, &no_core);
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[0]);
        ::close(ends[1]);
        ::alarm(10);
        try {
            function();
        } catch (...) {
            ::_exit(3);
        }
        ::_exit(0);
    }
    ::close(ends[1]);
    death seen;
    char text[256];
    for (ssize_t got = 0; (got = ::read(ends[0], text, sizeof text)) > 0;) {
        seen.said.append(text, static_cast<std::size_t>(got));
    }
    ::close(ends[0]);
    ::waitpid(child, &seen.status, 0);
    seen.aborted = WIFSIGNALED(seen.status) && WTERMSIG(seen.status) == SIGABRT;
    return seen;
}

}  // namespace rdmacoro::test
