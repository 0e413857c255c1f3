#include "pair.hpp"

#include "failure.hpp"
#include "run.hpp"

#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pingpong {

namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::system_category(), what); }

class descriptor {
public:
    explicit descriptor(int fd = -1) noexcept : fd_(fd) {}
    descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    descriptor& operator=(descriptor&&) = delete;
    ~descriptor() { reset(); }
    void reset() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    [[nodiscard]] int get() const noexcept { return fd_; }

private:
    int fd_;
};

/// The child. Ends the process.
[[noreturn]] void be_listening_side(const options& asked, descriptor address_pipe, pid_t parent) noexcept {
    int status = 0;
    try {
        if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl(PR_SET_PDEATHSIG)");
        if (::getppid() != parent) ::_exit(status_failed);  // it died before the line above
        run_listening(asked, [&](const std::string& address) {
            if (::write(address_pipe.get(), address.data(), address.size()) !=
                static_cast<ssize_t>(address.size())) {
                fail("telling the address");
            }
            address_pipe.reset();
        });
    } catch (const std::exception& error) {
        std::fprintf(stderr, "pingpong, listening side: %s\n", error.what());
        status = status_failed;
    }
    std::fflush(nullptr);
    ::_exit(status);
}

/// The child as its parent sees it. Ended when this goes.
class listening_process {
public:
    explicit listening_process(const options& asked) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
        descriptor reading(ends[0]);
        descriptor writing(ends[1]);
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ < 0) fail("fork");
        if (pid_ == 0) {
            reading.reset();
            be_listening_side(asked, std::move(writing), parent);
        }
        writing.reset();
        for (;;) {
            char piece[256];
            const ssize_t got = ::read(reading.get(), piece, sizeof piece);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) break;
            address_.append(piece, static_cast<std::size_t>(got));
        }
    }
    listening_process(const listening_process&) = delete;
    listening_process& operator=(const listening_process&) = delete;
    ~listening_process() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        static_cast<void>(wait());
    }

    /// Where it listens; empty when it ended instead.
    [[nodiscard]] const std::string& address() const noexcept { return address_; }

    /// Whether it ended well, within a limit that is far above what saying goodbye takes.
    [[nodiscard]] bool ends_well() {
        constexpr int limit_ms = 10'000;
        const descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
        if (handle.get() < 0) fail("pidfd_open");
        pollfd ended{handle.get(), POLLIN, 0};
        int ready = 0;
        do {
            ready = ::poll(&ended, 1, limit_ms);
        } while (ready < 0 && errno == EINTR);
        if (ready == 0) {
            std::fprintf(stderr, "pingpong: the listening side did not end\n");
            return false;
        }
        const int status = wait();
        if (WIFSIGNALED(status)) {
            std::fprintf(stderr, "pingpong: the listening side was ended by signal %d\n", WTERMSIG(status));
        }
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }

private:
    int wait() noexcept {
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
        pid_ = -1;
        return status;
    }

    pid_t pid_ = -1;
    std::string address_;
};

}  // namespace

int run_pair(options asked) {
    listening_process child(asked);
    if (child.address().empty()) {
        static_cast<void>(child.ends_well());  // it has said why
        return status_failed;
    }
    asked.where.whole = child.address();
    run_connecting(asked);
    return child.ends_well() ? 0 : status_failed;
}

}  // namespace pingpong
