#include "listening_process.hpp"

#include "failure.hpp"

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
[[noreturn]] void be_child(const std::string& name, const listening_process::body& what,
                           descriptor address_pipe, pid_t parent) noexcept {
    int status = 0;
    try {
        // By a signal that libraries handle: libfabric's shm takes its object in /dev/shm away.
        if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) fail("prctl(PR_SET_PDEATHSIG)");
        if (::getppid() != parent) ::_exit(status_failed);  // it died before the line above
        what([&](const std::string& address) {
            if (::write(address_pipe.get(), address.data(), address.size()) !=
                static_cast<ssize_t>(address.size())) {
                fail("telling the address");
            }
            address_pipe.reset();
        });
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s, listening side: %s\n", name.c_str(), error.what());
        status = status_failed;
    }
    std::fflush(nullptr);
    ::_exit(status);
}

}  // namespace

listening_process::listening_process(std::string name, const body& what) : name_(std::move(name)) {
    std::fflush(nullptr);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
    descriptor reading(ends[0]);
    descriptor writing(ends[1]);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail("fork");
    if (pid_ == 0) {
        reading.reset();
        be_child(name_, what, std::move(writing), parent);
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

listening_process::~listening_process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    constexpr int limit_ms = 1000;
    if (await_end(limit_ms) <= 0) ::kill(pid_, SIGKILL);  // it may be stopped
    static_cast<void>(wait());
}

bool listening_process::ends_well() {
    constexpr int limit_ms = 10'000;
    const int ready = await_end(limit_ms);
    if (ready < 0) fail("pidfd_open");
    if (ready == 0) {
        std::fprintf(stderr, "%s: the listening side did not end\n", name_.c_str());
        return false;
    }
    const int status = wait();
    if (WIFSIGNALED(status)) {
        std::fprintf(stderr, "%s: the listening side was ended by signal %d\n", name_.c_str(),
                     WTERMSIG(status));
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int listening_process::await_end(int limit_ms) const noexcept {
    const descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    if (handle.get() < 0) return -1;
    pollfd ended{handle.get(), POLLIN, 0};
    int ready = 0;
    do {
        ready = ::poll(&ended, 1, limit_ms);
    } while (ready < 0 && errno == EINTR);
    return ready;
}

int listening_process::wait() noexcept {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
    pid_ = -1;
    return status;
}

}  // namespace pingpong
