// Which process a shared-memory link reaches when the number of the peer's process was taken again. In a file of its own, as a system
// that lets no process choose numbers must be seen to skip it.

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/shm.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/shm_pair.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_faults_shm_taken_number {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr int cannot_be_made = 77;

/// At one address in every process of a test, so that a copy to the wrong process finds it.
alignas(4096) std::array<std::byte, 65536> place;

void require_that(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

/// A process of this name space, which is killed at the end.
template <class Body>
pid_t fork_child(Body body) {
    const pid_t made = ::fork();
    if (made != 0) return made;
    ::alarm(60);
    try {
        body();
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "process %d: %s\n", static_cast<int>(::getpid()), failed.what());
        ::_exit(1);
    }
    ::_exit(0);
}

bool lost_peer(std::error_code how) { return how == errc::peer_lost; }

void wait_for_byte(int from) {
    char byte = 0;
    require_that(::read(from, &byte, 1) == 1, "a process went away");
}

/// Listens, sends the descriptor of `place` to its client, and waits to be killed.
void serve_memory(const std::string& address, int listening_now) {
    scheduler on{idle::yield{}};
    shm::domain domain(on);
    on.run([](shm::domain& in, std::string where, int say) -> task<> {
        auto listening = co_await listen<shm>(in, where);
        require_that(::write(say, "l", 1) == 1, "write");
        auto client = co_await listening.accept();
        const region open = in.register_memory(place);
        co_await client.send(std::as_bytes(std::span(&open.remote(), 1)), 1);
        co_await client.recv({}, 2);
    }(domain, address, listening_now));
}

/// In a name space of process numbers of its own.
void put_to_taken_number(const std::string& address) {
    int listening[2];
    int look[2];
    require_that(::pipe2(listening, O_CLOEXEC) == 0 && ::pipe2(look, O_CLOEXEC) == 0, "pipe");
    const pid_t peer = fork_child([&] { serve_memory(address, listening[1]); });
    wait_for_byte(listening[0]);
    scheduler on{idle::yield{}};
    shm::domain domain(on);
    on.run([](shm::domain& in, std::string where, pid_t server, std::span<const int, 2> pipe) -> task<> {
        auto end = co_await connect<shm>(in, where);
        remote_region there;
        co_await end.recv(std::as_writable_bytes(std::span(&there, 1)), 1);
        require_that(end.link_capabilities().one_sided_offloaded, "the peer's memory is out of reach");
        std::byte first[64];
        co_await end.rdma_get(there.part(0, sizeof first), first);
        ::kill(server, SIGKILL);
        require_that(::waitpid(server, nullptr, 0) == server, "waitpid");
        const int last = ::open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
        const std::string before = std::to_string(server - 1);
        if (last < 0 || ::write(last, before.data(), before.size()) < 0) ::_exit(cannot_be_made);
        const pid_t innocent = fork_child([&] {
            wait_for_byte(pipe[0]);
            for (const std::byte b : place) require_that(b == std::byte{0}, "was written to");
        });
        if (innocent != server) ::_exit(cannot_be_made);
        // The scheduler has not turned since: it has not heard of the peer's end.
        for (const std::size_t bytes : {std::size_t{64}, place.size()}) {
            std::array<std::byte, sizeof place> data;
            data.fill(std::byte{0xee});
            const auto put =
                co_await as_result(end.rdma_put(std::span(data).first(bytes), there.part(0, bytes)));
            require_that(!put && lost_peer(put.error()), "the put did not end with the loss of the peer");
            const auto got =
                co_await as_result(end.rdma_get(there.part(0, bytes), std::span(data).first(bytes)));
            require_that(!got && lost_peer(got.error()), "the get did not end with the loss of the peer");
        }
        require_that(::write(pipe[1], "l", 1) == 1, "write");
        int status = 0;
        require_that(::waitpid(innocent, &status, 0) == innocent && status == 0,
                     "an innocent process was written to");
    }(domain, address, peer, look));
}

}  // namespace

TEST_CASE("a put to a dead peer whose process number was taken again reaches no other process") {
    child_process child([](const std::string& address) {
        if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
            ::_exit(cannot_be_made);
        const pid_t first = fork_child([&] { put_to_taken_number(address); });
        int status = 0;
        require_that(::waitpid(first, &status, 0) == first, "waitpid");
        ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    });
    child.tell("shm://" + shm_test_name());
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == cannot_be_made) SKIP_TEST("this system lets no process choose numbers");
    CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace test_faults_shm_taken_number
