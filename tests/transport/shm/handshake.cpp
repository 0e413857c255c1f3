#include <rdmacoro/transport/shm/handshake.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/user_namespace.hpp"

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_transport_shm_handshake {

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;

// Part of the protocol between two processes.
static_assert(sizeof(hello) == 72 && hello::version_value == 6);
static_assert(std::is_trivially_copyable_v<hello>);

namespace {

struct socket_pair {
    unique_fd one;
    unique_fd other;
    socket_pair() {
        int fds[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
        one = unique_fd(fds[0]);
        other = unique_fd(fds[1]);
    }
};

std::error_code refused(int socket) {
    try {
        static_cast<void>(receive_hello(socket));
    } catch (const error& thrown) {
        return thrown.code();
    }
    return {};
}

}  // namespace

TEST_CASE("an address is a name, with or without the scheme, and becomes an abstract socket") {
    const socket_name bare("a-name");
    const socket_name whole("shm://a-name");
    CHECK(bare.text() == "shm://a-name");
    CHECK(whole.text() == bare.text());
    CHECK(whole.length() == bare.length());
    const auto* raw = reinterpret_cast<const sockaddr_un*>(bare.raw());
    CHECK(raw->sun_path[0] == '\0');
    CHECK(std::string(raw->sun_path + 1) == "rdmacoro/a-name");
    CHECK_NOTHROW(socket_name(std::string(98, 'x')));
    for (const std::string& bad :
         {std::string(), std::string("shm://"), std::string("a/b"), std::string(99, 'x')}) {
        CAPTURE(bad);
        try {
            const socket_name name(bad);
            FAIL("accepted");
        } catch (const error& thrown) {
            CHECK(thrown.code() == errc::address_invalid);
        }
    }
}

TEST_CASE("a hello arrives with its descriptors, which are this process's own") {
    const socket_pair p;
    hello sent;
    sent.shape = {.cells = 64, .blocks = 4, .block_bytes = 4096};
    sent.region_entries = 17;
    const int descriptors[] = {p.one.get(), p.other.get(), p.one.get()};
    send_hello(p.one.get(), sent, descriptors, 3);
    const received_hello got = receive_hello(p.other.get());
    CHECK(got.contents.region_entries == 17);
    CHECK(got.contents.shape.cells == 64);
    REQUIRE(got.count == 3);
    CHECK(got.descriptors[0].get() != p.one.get());
    CHECK(got.descriptors[2]);
    CHECK((::fcntl(got.descriptors[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(got.pid == ::getpid());
    CHECK(got.uid == ::geteuid());
    CHECK(got.process);
}

TEST_CASE("a hello names the process that sent it, though another one listened") {
    const socket_name name("handshake-" + std::to_string(::getpid()));
    const unique_fd listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listening.get(), name.raw(), name.length()) == 0);
    REQUIRE(::listen(listening.get(), 1) == 0);
    test::child_process child([&](const std::string&) {
        const unique_fd accepted(::accept(listening.get(), nullptr, nullptr));
        send_hello(accepted.get(), hello{}, nullptr, 0);
        ::pause();
    });
    child.tell("go");
    const unique_fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(socket.get(), name.raw(), name.length()) == 0);
    char first = 0;
    REQUIRE(::recv(socket.get(), &first, 1, MSG_PEEK) == 1);
    const received_hello got = receive_hello(socket.get());
    CHECK(peer_credentials(socket.get()).pid == ::getpid());
    CHECK(got.pid == child.pid());
    peer_process process(got.process.get(), got.pid);
    REQUIRE(process.reachable());
    child.kill();
    child.wait();
    CHECK_FALSE(process.alive());
}

TEST_CASE(
    "a hello that the kernel does not take with more descriptors on their way is told as missing resources") {
    // In a process without the right to exceed the limit, which the kernel compares with the descriptors in flight.
    test::child_process child([](const std::string&) {
        __user_cap_header_struct whom{_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct none[2] = {};
        if (::syscall(SYS_capset, &whom, none) != 0) ::_exit(2);
        int fds[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) ::_exit(2);
        const rlimit few{4, 4};
        if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(2);
        const int descriptors[] = {fds[0], fds[0], fds[0]};
        for (int sent = 0; sent < 5; ++sent) {
            try {
                send_hello(fds[0], hello{}, descriptors, 3);
            } catch (const error& thrown) {
                const bool told = thrown.code() == errc::no_resources &&
                                  std::string_view(thrown.what()).find("ulimit -n") != std::string_view::npos;
                ::_exit(told ? 0 : 3);
            }
        }
        ::_exit(4);
    });
    child.tell("go");
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a hello that the kernel refuses for another reason than the peer's end tells that reason") {
    test::child_process child([](const std::string&) {
        if (!test::enter_user_namespace()) ::_exit(77);
        int fds[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) ::_exit(2);
        try {
            send_hello(fds[0], hello{}, nullptr, 0);  // in the name of a user without a number
        } catch (const error& thrown) {
            const bool told = thrown.code() == std::error_code(EINVAL, std::system_category()) &&
                              std::string_view(thrown.what()).find("hello") != std::string_view::npos;
            ::_exit(told ? 0 : 3);
        }
        ::_exit(4);
    });
    child.tell("go");
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) SKIP_TEST("this system gives no user namespace");
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a hello with another magic, version or status ends the handshake with what was wrong") {
    const socket_pair p;
    hello wrong;
    wrong.magic ^= 1;
    send_hello(p.one.get(), wrong, nullptr, 0);
    CHECK(refused(p.other.get()) == errc::protocol_violation);
    wrong = hello{};
    ++wrong.version;
    send_hello(p.one.get(), wrong, nullptr, 0);
    CHECK(refused(p.other.get()) == errc::version_mismatch);
    wrong = hello{};
    wrong.status = static_cast<std::uint32_t>(errc::permission_denied);
    send_hello(p.one.get(), wrong, nullptr, 0);
    CHECK(refused(p.other.get()) == errc::permission_denied);
    CHECK(::shutdown(p.one.get(), SHUT_RDWR) == 0);
    CHECK(refused(p.other.get()) == errc::peer_lost);
    CHECK_THROWS_AS(send_hello(p.other.get(), hello{}, nullptr, 0), error);
}

TEST_CASE("a hello describes its domain, and the kernel names its process") {
    scheduler on;
    domain_base domain(on, {});
    const geometry shape{.cells = 64, .blocks = 4, .block_bytes = 4096};
    const own_hello accepting = introduce(domain, shape, -1);
    CHECK(accepting.count == 2);
    CHECK(accepting.contents.region_entries == domain.options().max_regions);
    CHECK(accepting.descriptors[0] == domain.table_file());
    CHECK(introduce(domain, shape, 5).count == 3);
    const socket_pair p;
    const ucred peer = peer_credentials(p.one.get());
    CHECK(peer.pid == ::getpid());
    CHECK(peer.uid == ::geteuid());
}

}  // namespace test_transport_shm_handshake
