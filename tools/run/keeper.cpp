#include "keeper.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace run {

namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::system_category(), what); }

/// The list of this process's children in /proc, open from the beginning: where no descriptor is left, the children can be ended all the same. The main
/// thread starts all of them, and the kernel gives it those that are left behind.
int children = -1;
/// Those that were there before: a shell that has become `run` by `exec` leaves it its own, such as the `tee` of a redirection.
std::vector<pid_t> inherited;
struct left_child {
    pid_t process;
    bool killed;  ///< and has not ended
};
/// Those that `end_children` has given up. It is called by two threads of the keeper.
std::vector<left_child> left;
std::mutex ends_children;

/// Calls `each(process)` for every child in the list.
template <class Each>
void for_children(Each each) {
    std::array<char, 65536> room;
    ssize_t got = 0;
    do {
        got = ::pread(children, room.data(), room.size(), 0);
    } while (got < 0 && errno == EINTR);
    const char* const end = room.data() + std::max<ssize_t>(got, 0);
    for (const char* at = room.data(); at != end;) {
        pid_t one = 0;
        const auto read = std::from_chars(at, end, one);
        if (read.ec != std::errc() || read.ptr == end) break;  // the rest of a number may follow
        each(one);
        at = read.ptr + 1;  // a space
    }
}

void open_children() {
    if (children >= 0) ::close(children);  // the parent's, after fork
    const std::string own = std::to_string(::getpid());
    children = ::open(("/proc/self/task/" + own + "/children").c_str(), O_RDONLY | O_CLOEXEC);
    if (children < 0 && errno != ENOENT) fail("the list of children in /proc");
}

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
    for (const left_child& one : left)
        std::fprintf(stderr, "run: process %d is left behind: %s\n", static_cast<int>(one.process),
                     one.killed ? "it has not ended 10 s after SIGKILL" : "it runs as another user");
    if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 && !left.empty() ? 1 : WEXITSTATUS(status);
    const int number = WTERMSIG(status);
    std::fprintf(stderr,
                 "run: the process that keeps the ranks was ended by signal %d (%s): ended all ranks\n",
                 number, strsignal(number));
    return 128 + number;
}

}  // namespace

void end_children() noexcept {
    // None of them is waited for: one may be held by another, which traces it, and another thread may wait for them, too. What they leave
    // is in the list then.
    using clock = std::chrono::steady_clock;
    constexpr auto longest = std::chrono::seconds(10);
    const std::lock_guard held(ends_children);
    clock::time_point until = clock::now() + longest;
    for (;;) {
        bool reaped = false;
        while (::waitpid(-1, nullptr, WNOHANG) > 0) reaped = true;
        if (reaped) until = clock::now() + longest;
        bool any = false;
        const bool over = clock::now() >= until;
        for_children([&any, over](pid_t one) noexcept {
            if (std::find(inherited.begin(), inherited.end(), one) != inherited.end()) return;
            if (std::any_of(left.begin(), left.end(),
                            [one](const left_child& is) { return is.process == one; }))
                return;
            const bool killed = ::kill(one, SIGKILL) == 0 || errno != EPERM;
            if (over || !killed) return left.push_back({one, killed});
            any = true;
        });
        if (!any) break;
        constexpr timespec moment{.tv_sec = 0, .tv_nsec = 200'000};
        if (!reaped) ::nanosleep(&moment, nullptr);
    }
}

int run_kept(const std::function<int(const sigset_t& for_ranks)>& job) {
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("prctl");
    sigset_t passed_on, before;
    ::sigemptyset(&passed_on);
    std::signal(SIGCHLD, SIG_DFL);  // whoever has started this may ignore it, and then no child's end is told
    for (const int one : {SIGCHLD, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})
        ::sigaddset(&passed_on, one);
    struct sigaction of_hang_up{};
    const bool by_nohup = ::sigaction(SIGHUP, nullptr, &of_hang_up) == 0 && of_hang_up.sa_handler == SIG_IGN;
    if (!by_nohup) ::sigaddset(&passed_on, SIGHUP);
    ::sigprocmask(SIG_BLOCK, &passed_on, &before);
    open_children();
    for_children([](pid_t one) { inherited.push_back(one); });
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
    // So this and the ranks are in the background of a terminal, where `stty tostop` would stop them when they write to it.
    if (::isatty(STDOUT_FILENO) == 1 || ::isatty(STDERR_FILENO) == 1) {
        sigset_t stop_of_writers;
        ::sigemptyset(&stop_of_writers);
        ::sigaddset(&stop_of_writers, SIGTTOU);
        ::sigprocmask(SIG_BLOCK, &stop_of_writers, nullptr);
        ::sigaddset(&before, SIGTTOU);
    }
    ::close(ends[1]);
    inherited.clear();
    open_children();
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("prctl");
    std::thread(end_with, ends[0]).detach();
    return job(before);
}

}  // namespace run
