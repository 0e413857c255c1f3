// The shared-memory handshake's system calls.
#pragma once

#include <rdmacoro/transport/detail/close_elsewhere.hpp>
#include <rdmacoro/transport/detail/scheme.hpp>
#include <rdmacoro/transport/shm/handshake.hpp>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

namespace rdmacoro::detail::shm {

RDMACORO_COLD socket_name::socket_name(std::string_view address) {
    if (const std::string wrong = wrong_scheme("shm", address); !wrong.empty())
        throw_error(errc::address_invalid, "\"" + std::string(address) + "\": " + wrong);
    address = without_scheme("shm", address);
    text_ = std::string("shm://").append(address);
    static constexpr std::string_view prefix = "rdmacoro/";
    if (address.empty() || address.size() + prefix.size() + 1 > sizeof raw_.sun_path) {
        char limit[80];
        std::snprintf(limit, sizeof limit, ": a shared-memory address is shm://NAME, of 1 to %zu characters",
                      sizeof raw_.sun_path - prefix.size() - 1);
        throw_named(errc::address_invalid, text_, limit);
    }
    if (address.find('/') != std::string_view::npos || address.find('\0') != std::string_view::npos) {
        throw_named(errc::address_invalid, text_, ": a shared-memory name has no '/'");
    }
    raw_.sun_family = AF_UNIX;
    std::memcpy(raw_.sun_path + 1, prefix.data(), prefix.size());
    std::memcpy(raw_.sun_path + 1 + prefix.size(), address.data(), address.size());
    length_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + prefix.size() + address.size());
}

RDMACORO_COLD ucred peer_credentials(int socket) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) throw_errno("SO_PEERCRED");
    return peer;
}

RDMACORO_COLD void send_hello(int socket, const hello& contents, const int* descriptors, std::size_t count) {
    iovec text{const_cast<hello*>(&contents), sizeof contents};
    alignas(
        cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int) * most_descriptors)] = {};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(ucred)) + (count != 0 ? CMSG_SPACE(sizeof(int) * count) : 0);
    const ucred self{::getpid(), ::geteuid(), ::getegid()};
    cmsghdr* attached = CMSG_FIRSTHDR(&message);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_CREDENTIALS;
    attached->cmsg_len = CMSG_LEN(sizeof self);
    std::memcpy(CMSG_DATA(attached), &self, sizeof self);
    if (count != 0) {
        attached = CMSG_NXTHDR(&message, attached);
        attached->cmsg_level = SOL_SOCKET;
        attached->cmsg_type = SCM_RIGHTS;
        attached->cmsg_len = CMSG_LEN(sizeof(int) * count);
        std::memcpy(CMSG_DATA(attached), descriptors, sizeof(int) * count);
    }
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof contents)) return;
    if (errno == ETOOMANYREFS)
        throw_named(errc::no_resources, "too many descriptors of this user are on their way for a "
                                        "shared-memory link; raise the limit (ulimit -n)");
    if (errno == ENOMEM || errno == ENOBUFS)
        throw_named(errc::no_resources, "no memory for the hello of a shared-memory link");
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        throw_named(errc::peer_lost, "the peer went away during the shared-memory handshake");
    throw_errno("hello of a shared-memory link");
}

/// Of <asm/socket.h> and <linux/socket.h> since Linux 6.5.
inline constexpr int so_passpidfd = 76;
inline constexpr int scm_pidfd = 4;

/// Has the kernel attach the sender's credentials and pidfd to the message that is received next.
class attached_credentials {
public:
    explicit attached_credentials(int socket) noexcept : socket_(socket) { set(1); }
    attached_credentials(const attached_credentials&) = delete;
    attached_credentials& operator=(const attached_credentials&) = delete;
    ~attached_credentials() { set(0); }

private:
    void set(int on) const noexcept {
        ::setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
        ::setsockopt(socket_, SOL_SOCKET, so_passpidfd, &on, sizeof on);
    }
    int socket_;
};

RDMACORO_COLD void take_descriptors(received_hello& got, const cmsghdr& part) noexcept {
    const std::size_t fds = (part.cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < fds; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(&part) + i * sizeof(int), sizeof fd);
        unique_fd own(fd);
        if (part.cmsg_type == scm_pidfd) {
            got.process = std::move(own);
        } else if (got.count < most_descriptors) {
            got.descriptors[got.count++] = std::move(own);
        }
    }
}

RDMACORO_COLD received_hello receive_hello(int socket) {
    received_hello got;
    const attached_credentials attached(socket);
    iovec text{&got.contents, sizeof got.contents};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int)) +
                                  CMSG_SPACE(sizeof(int) * most_descriptors)] = {};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); bytes >= 0 && part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET) continue;
        if (part->cmsg_type == SCM_RIGHTS || part->cmsg_type == scm_pidfd) take_descriptors(got, *part);
        if (part->cmsg_type == SCM_CREDENTIALS) {
            ucred sender{};
            std::memcpy(&sender, CMSG_DATA(part), sizeof sender);
            got.pid = sender.pid;
            got.uid = sender.uid;
        }
    }
    // The kernel leaves out descriptors when this process has as many as it may.
    if (bytes > 0 && (message.msg_flags & MSG_CTRUNC) != 0 && got.count < most_descriptors)
        throw_named(errc::no_resources,
                    "no descriptors left for a shared-memory link; raise the limit (ulimit -n)");
    // Before Linux 6.5 a pidfd is made of the number, which is the sender's as long as its socket is open: see `adopt`.
    if (!got.process && got.pid > 0)
        got.process = unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, got.pid, 0)));
    if (bytes <= 0) throw_named(errc::peer_lost, "the peer went away during the shared-memory handshake");
    if (bytes != static_cast<ssize_t>(sizeof got.contents) ||
        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || got.contents.magic != hello::magic_value) {
        throw_named(errc::protocol_violation, "the peer does not speak the shared-memory handshake");
    }
    if (got.contents.version != hello::version_value) {
        char versions[80];
        std::snprintf(versions, sizeof versions,
                      "shared-memory handshake: we speak version %u, the peer version %u",
                      hello::version_value, got.contents.version);
        throw_named(errc::version_mismatch, versions);
    }
    if (got.contents.status != 0) {
        const auto refused = static_cast<errc>(got.contents.status);
        throw_named(refused,
                    refused == errc::permission_denied
                        ? "the listener belongs to another user, or cannot tell users apart"
                    : refused == errc::invalid_argument
                        ? "the listener was inherited by fork: make the domain in the process that accepts"
                    : refused == errc::no_resources ? "the listener's process has no descriptors or memory "
                                                      "left for a link; raise its limit (ulimit -n)"
                                                    : "the listener refused");
    }
    return got;
}

RDMACORO_COLD own_hello introduce(domain_base& domain, const geometry& shape, int segment_file) {
    if (!domain.own_process())
        throw_named(errc::invalid_argument,
                    "a shared-memory domain serves the process that made it, not a child of that");
    own_hello own;
    domain.shared_arena().open();
    own.contents.shape = shape;
    own.contents.has_membarrier = domain.uses_membarrier() ? 1 : 0;
    own.contents.region_entries = domain.options().max_regions;
    own.contents.arena_base = reinterpret_cast<std::uint64_t>(domain.shared_arena().base());
    own.contents.arena_bytes = domain.shared_arena().bytes();
    own.contents.salt = domain.regions().salt();
    own.descriptors[0] = domain.table_file();
    own.descriptors[1] = domain.shared_arena().file();
    own.descriptors[2] = segment_file;
    own.count = segment_file >= 0 ? 3 : 2;
    return own;
}

RDMACORO_COLD void adopt(channel& made, domain_base& domain, received_hello& peer, int socket) {
    if (!is_this_user(peer.uid)) throw error(errc::permission_denied);
    made.peer.map_table(peer.descriptors[0].get(), peer.contents.region_entries, peer.contents.salt);
    made.peer.map_arena(peer.descriptors[1].get(), peer.contents.arena_base, peer.contents.arena_bytes);
    made.fence_before_doorbell = !(domain.uses_membarrier() && peer.contents.has_membarrier != 0);
    made.peer_pid = peer.pid;
    if (peer.pid > 0) made.name.append(" (process ").append(std::to_string(peer.pid)).append(")");
    if (!domain.options().use_process_vm || !peer.process) return;
    peer_process process(peer.process.get(), peer.pid);
    // A process that has ended, or runs another program, has closed its socket: what was opened may be another's.
    if (poll_now(socket, POLLRDHUP) == 0) made.peer.reach_through(std::move(process));
}

RDMACORO_COLD void admit_peer(channel& made, const domain_base& domain, pid_t pid) noexcept {
    if (domain.options().permit_ptrace && domain.options().use_process_vm)
        made.permission = ptrace_grant(pid);
}

}  // namespace rdmacoro::detail::shm
