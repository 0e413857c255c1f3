#pragma once

// A second process for a test: made before the first has a scheduler, told where to connect, killed when the test says so
// and in any case when the test ends.

#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

namespace rdmacoro::test {

class child_process {
public:
    /// Runs `body(address)` in a child process, which has a minute; `address` is the argument of `tell`. The child's exit status
    /// is 0 when `body` returns, 1 when it throws.
    template <class Body>
    explicit child_process(Body body) {
        int ends[2];
        if (::pipe(ends) != 0) std::abort();
        pid_ = ::fork();
        if (pid_ < 0) std::abort();
        if (pid_ == 0) {
            std::signal(SIGABRT, SIG_DFL);  // the test runner's handlers would report a failed test
            std::signal(SIGSEGV, SIG_DFL);
            ::alarm(60);
            ::close(ends[1]);
            std::string address;
            for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) address += c;
            ::close(ends[0]);
            if (address.empty()) ::_exit(2);
            try {
                body(address);
            } catch (...) {
                ::_exit(1);
            }
            ::_exit(0);
        }
        ::close(ends[0]);
        pipe_ = ends[1];
    }
    child_process(const child_process&) = delete;
    child_process& operator=(const child_process&) = delete;
    ~child_process() {
        close_pipe();
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
    }

    void tell(std::string address) {
        address += '\n';
        if (::write(pipe_, address.data(), address.size()) != static_cast<ssize_t>(address.size()))
            std::abort();
        close_pipe();
    }

    [[nodiscard]] pid_t pid() const noexcept { return pid_; }
    void kill() noexcept { ::kill(pid_, SIGKILL); }

    /// Waits for its end; the status as `waitpid` gives it.
    int wait() {
        int status = 0;
        ::waitpid(std::exchange(pid_, -1), &status, 0);
        return status;
    }
    /// Whether it has ended; does not wait.
    bool ended(int& status) {
        if (pid_ < 0) return true;
        if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
        pid_ = -1;
        return true;
    }

private:
    void close_pipe() noexcept {
        if (pipe_ >= 0) ::close(std::exchange(pipe_, -1));
    }

    pid_t pid_ = -1;
    int pipe_ = -1;
};

}  // namespace rdmacoro::test
