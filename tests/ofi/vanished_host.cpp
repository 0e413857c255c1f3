// Hosts that vanish: the interface of a network namespace goes down, and no packet comes or goes any more.

#include <rdmacoro/transport/ofi.hpp>

#include "ofi/pair.hpp"

#include "support/child_process.hpp"
#include "support/pattern.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace test_ofi_vanished_host {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// The loopback interface of the network namespace that this process is in.
void interface_is(bool up) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq asked{};
    std::strcpy(asked.ifr_name, "lo");
    if (fd < 0 || ::ioctl(fd, SIOCGIFFLAGS, &asked) != 0) throw std::runtime_error("no interface");
    asked.ifr_flags = static_cast<short>(up ? asked.ifr_flags | IFF_UP : asked.ifr_flags & ~IFF_UP);
    if (::ioctl(fd, SIOCSIFFLAGS, &asked) != 0) throw std::runtime_error("the interface does not change");
    ::close(fd);
}

enum class use : int { idle, messages };

constexpr auto limit = 4s;
/// A link ends after the limit and an eighth of it, as tcp's (tests/faults/tcp_vanished_host.cpp); the rest is for a busy machine.
constexpr auto latest = limit + limit / 8 + 2s;

void vanish(const std::string& provider, use how) {
    ofi_options o = ofi_here(provider);
    o.peer_timeout = limit;
    ofi_world w(o);
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    interface_is(false);
    const auto begin = std::chrono::steady_clock::now();
    const auto data = pattern(1000);
    w.until([&] {
        recording_completion none;
        if (how == use::messages && a.sink.downs == 0)
            static_cast<void>(a.link->post(header_of(1), const_buffers(data), none));
        return a.sink.downs == 1 && b.sink.downs == 1;
    });
    if (a.sink.reason != errc::peer_lost) throw std::runtime_error("ended with another reason");
    const auto took = std::chrono::steady_clock::now() - begin;
    std::fprintf(stderr, "lost after %lld ms\n",
                 static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
    if (took < limit / 2) throw std::runtime_error("ended before the limit");
    if (took > latest) throw std::runtime_error("ended after the limit and its eighth");
}

}  // namespace

TEST_CASE(
    "a link ends with peer_lost when its host vanishes, idle or with messages under way, after the limit and "
    "no later than tcp's") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "udp", "sockets");
    const use how = GENERATE(use::idle, use::messages);
    CAPTURE(provider, how == use::idle);
    child_process child([&](const std::string&) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWNET) != 0) ::_exit(77);
        interface_is(true);
        vanish(provider, how);
    });
    child.tell("begin");
    const int status = child.wait();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP_TEST("no namespaces here");
    CHECK(status == 0);
}

}  // namespace test_ofi_vanished_host
