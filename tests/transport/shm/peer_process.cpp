#include <rdmacoro/transport/shm/peer_process.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"

#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_transport_shm_peer_process {

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;
using rdmacoro::test::child_process;

namespace {

unique_fd pidfd_of(pid_t pid) { return unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

std::uint64_t address_of(const std::vector<std::byte>& memory) {
    return reinterpret_cast<std::uint64_t>(memory.data());
}

/// Both ways of copying.
constexpr std::size_t lengths[] = {1, 64, peer_process::most_by_descriptor,
                                   peer_process::most_by_descriptor + 1, 300'000};

}  // namespace

TEST_CASE("a process's memory is read and written, whatever the length") {
    const unique_fd self = pidfd_of(::getpid());
    peer_process process(self.get(), ::getpid());
    REQUIRE(process.reachable());
    CHECK(process.alive());
    for (const std::size_t bytes : lengths) {
        CAPTURE(bytes);
        std::vector<std::byte> there(bytes, std::byte{1});
        std::vector<std::byte> here(bytes, std::byte{2});
        CHECK(process.copy(true, address_of(there), here.data(), bytes) == errc::ok);
        CHECK(here == there);
        std::vector<std::byte> other(bytes, std::byte{3});
        CHECK(process.copy(false, address_of(there), other.data(), bytes) == errc::ok);
        CHECK(there == other);
        CHECK(process.copy(true, 64, here.data(), bytes) == errc::out_of_bounds);
        CHECK(process.copy(false, 64, here.data(), bytes) == errc::out_of_bounds);
        CHECK(process.copy(true, ~std::uint64_t{0} - 4095, here.data(), bytes) == errc::out_of_bounds);
    }
}

TEST_CASE("a process is reached whatever signals come meanwhile") {
    child_process child([](const std::string&) {
        struct sigaction nothing{};
        nothing.sa_handler = [](int) {};
        nothing.sa_flags = SA_RESTART;
        timer_t timer{};
        sigevent often{};
        often.sigev_notify = SIGEV_SIGNAL;
        often.sigev_signo = SIGUSR1;
        constexpr itimerspec each{{0, 50'000}, {0, 50'000}};
        if (::sigaction(SIGUSR1, &nothing, nullptr) != 0 ||
            ::timer_create(CLOCK_MONOTONIC, &often, &timer) != 0 ||
            ::timer_settime(timer, 0, &each, nullptr) != 0)
            ::_exit(2);
        const unique_fd self = pidfd_of(::getpid());
        for (int n = 0; n < 20'000; ++n) {
            const peer_process process(self.get(), ::getpid());
            if (!process.reachable()) ::_exit(3);
        }
    });
    child.tell("go");
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a process that has ended is lost to every copy, before and after its parent has waited for it") {
    std::vector<std::byte> memory(lengths[4]);
    child_process child([](const std::string&) { ::pause(); });
    peer_process process(pidfd_of(child.pid()).get(), child.pid());
    REQUIRE(process.reachable());
    CHECK(process.alive());
    CHECK(process.copy(true, address_of(memory), memory.data(), 64) == errc::ok);
    child.kill();
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child.pid()), &ended, WEXITED | WNOWAIT) == 0);
    for (int waited = 0; waited < 2; ++waited) {
        CAPTURE(waited);
        CHECK_FALSE(process.alive());
        for (const std::size_t bytes : lengths) {
            CHECK(process.copy(true, address_of(memory), memory.data(), bytes) == errc::peer_lost);
            CHECK(process.copy(false, address_of(memory), memory.data(), bytes) == errc::peer_lost);
        }
        if (waited == 0) child.wait();
    }
}

TEST_CASE("a number that names another process by now reaches nothing of it") {
    // As when the number was taken again: the address space is that of a process that has ended, the number an innocent one's.
    std::vector<std::byte> memory(lengths[4], std::byte{1});
    child_process gone([](const std::string&) { ::pause(); });
    peer_process process(pidfd_of(gone.pid()).get(), ::getpid());
    REQUIRE(process.reachable());
    gone.kill();
    gone.wait();
    for (const std::size_t bytes : lengths) {
        CAPTURE(bytes);
        std::vector<std::byte> other(bytes, std::byte{9});
        CHECK(process.copy(false, address_of(memory), other.data(), bytes) == errc::peer_lost);
        CHECK(process.copy(true, address_of(memory), other.data(), bytes) == errc::peer_lost);
    }
    CHECK(memory == std::vector<std::byte>(lengths[4], std::byte{1}));
}

TEST_CASE("a process that runs another program is lost") {
    std::vector<std::byte> memory(64);
    int ready[2];
    REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);  // closed by exec
    const unique_fd ended(ready[0]);
    unique_fd held(ready[1]);
    child_process child([](const std::string&) {
        ::execl("/bin/sleep", "sleep", "60", nullptr);
        throw 1;
    });
    peer_process process(pidfd_of(child.pid()).get(), child.pid());
    REQUIRE(process.reachable());
    REQUIRE(process.copy(true, address_of(memory), memory.data(), 64) == errc::ok);
    child.tell("go");
    held.reset();
    char nothing = 0;
    REQUIRE(::read(ended.get(), &nothing, 1) == 0);
    CHECK_FALSE(process.alive());
    CHECK(process.copy(true, address_of(memory), memory.data(), 64) == errc::peer_lost);
    CHECK(process.copy(false, address_of(memory), memory.data(), 64) == errc::peer_lost);
}

TEST_CASE("a process that cannot be named is not reachable") {
    CHECK_FALSE(peer_process().reachable());
    CHECK_FALSE(peer_process(-1, ::getpid()).reachable());
    const unique_fd self = pidfd_of(::getpid());
    CHECK_FALSE(peer_process(self.get(), 0).reachable());
    child_process gone([](const std::string&) { ::pause(); });
    const unique_fd ended = pidfd_of(gone.pid());
    const pid_t pid = gone.pid();
    gone.kill();
    gone.wait();
    CHECK_FALSE(peer_process(ended.get(), pid).reachable());
}

TEST_CASE("short copies do not wait for the page faults that a process withholds") {
    const unique_fd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
    uffdio_api asked{UFFD_API, 0, 0};
    if (!faults || ::ioctl(faults.get(), UFFDIO_API, &asked) != 0)
        SKIP_TEST("needs userfaultfd for kernel faults");
    void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    uffdio_register range{{reinterpret_cast<std::uint64_t>(page), 4096}, UFFDIO_REGISTER_MODE_MISSING, 0};
    REQUIRE(::ioctl(faults.get(), UFFDIO_REGISTER, &range) == 0);
    const unique_fd self = pidfd_of(::getpid());
    peer_process process(self.get(), ::getpid());
    REQUIRE(process.reachable());
    ::alarm(60);
    std::byte here[64];
    CHECK(process.copy(true, range.range.start, here, sizeof here) == errc::out_of_bounds);
    CHECK(process.copy(false, range.range.start, here, sizeof here) == errc::out_of_bounds);
    ::alarm(0);
    ::munmap(page, 4096);
}

}  // namespace test_transport_shm_peer_process
