// How two processes come to share a segment: one message each way over a Unix socket, with descriptors.
#pragma once

#include <rdmacoro/transport/shm/channel.hpp>
#include <rdmacoro/transport/shm/domain.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <sys/socket.h>
#include <sys/un.h>

namespace rdmacoro::detail::shm {

/// What each side says of itself. The descriptors go with it, in the order of `descriptors`.
struct hello {
    static constexpr std::uint64_t magic_value = 0x316d68732d636472;  // "rdc-shm1"
    static constexpr std::uint32_t version_value = 2;

    std::uint64_t magic = magic_value;
    std::uint32_t version = version_value;
    std::uint32_t status = 0;  ///< an `errc`: not 0 is a refusal, and the rest has no meaning
    geometry shape{};
    std::uint32_t has_membarrier = 0;
    std::uint64_t region_entries = 0;
    std::uint64_t arena_base = 0;
    std::uint64_t arena_bytes = 0;
    std::uint64_t probe_address = 0;
    std::uint64_t probe_word = 0;
};

/// Descriptors in a hello: doorbell, region table, arena, and, from the connecting side, the segment.
inline constexpr std::size_t most_descriptors = 4;

/// Our name for a shared-memory address: an abstract Unix socket, which vanishes with its owner.
class socket_name {
public:
    /// Takes `name` or `shm://name`. Throws `errc::address_invalid`.
    explicit socket_name(std::string_view address) {
        if (address.substr(0, 6) == "shm://") address.remove_prefix(6);
        text_ = std::string("shm://").append(address);
        static constexpr std::string_view prefix = "rdmacoro/";
        if (address.empty() || address.size() + prefix.size() + 1 > sizeof raw_.sun_path) {
            throw error(errc::address_invalid, text_ + ": a shared-memory address is shm://NAME, of 1 to " +
                                                   std::to_string(sizeof raw_.sun_path - prefix.size() - 1) +
                                                   " characters");
        }
        if (address.find('/') != std::string_view::npos || address.find('\0') != std::string_view::npos) {
            throw error(errc::address_invalid, text_ + ": a shared-memory name has no '/'");
        }
        raw_.sun_family = AF_UNIX;
        std::memcpy(raw_.sun_path + 1, prefix.data(), prefix.size());
        std::memcpy(raw_.sun_path + 1 + prefix.size(), address.data(), address.size());
        length_ =
            static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + prefix.size() + address.size());
    }

    [[nodiscard]] const sockaddr* raw() const noexcept { return reinterpret_cast<const sockaddr*>(&raw_); }
    [[nodiscard]] socklen_t length() const noexcept { return length_; }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    sockaddr_un raw_{};
    socklen_t length_ = 0;
    std::string text_;
};

/// Who is at the other end, as the kernel says.
[[nodiscard]] inline ucred peer_credentials(int socket) {
    ucred who{};
    socklen_t length = sizeof who;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) throw_errno("SO_PEERCRED");
    return who;
}

/// Sends a hello with descriptors. Throws.
inline void send_hello(int socket, const hello& said, std::span<const int> descriptors) {
    iovec text{const_cast<hello*>(&said), sizeof said};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * most_descriptors)> control{};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
        cmsghdr* attached = CMSG_FIRSTHDR(&message);
        attached->cmsg_level = SOL_SOCKET;
        attached->cmsg_type = SCM_RIGHTS;
        attached->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
        std::memcpy(CMSG_DATA(attached), descriptors.data(), sizeof(int) * descriptors.size());
    }
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof said)) {
        throw error(errc::peer_lost, "the peer went away during the shared-memory handshake");
    }
}

/// A hello as it came, with its descriptors.
struct received_hello {
    hello said{};
    std::array<unique_fd, most_descriptors> descriptors{};
    std::size_t count = 0;
};

/// Reads a hello that is there; checks magic, version and status. Throws.
[[nodiscard]] inline received_hello receive_hello(int socket) {
    received_hello got;
    iovec text{&got.said, sizeof got.said};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * most_descriptors)> control{};
    msghdr message{};
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); bytes >= 0 && part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < fds; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
            unique_fd own(fd);
            if (got.count < most_descriptors) got.descriptors[got.count++] = std::move(own);
        }
    }
    if (bytes <= 0) throw error(errc::peer_lost, "the peer went away during the shared-memory handshake");
    if (bytes != static_cast<ssize_t>(sizeof got.said) ||
        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || got.said.magic != hello::magic_value) {
        throw error(errc::protocol_violation, "the peer does not speak the shared-memory handshake");
    }
    if (got.said.version != hello::version_value) {
        throw error(errc::version_mismatch, std::string("shared-memory handshake: we speak version ") +
                                                std::to_string(hello::version_value) + ", the peer version " +
                                                std::to_string(got.said.version));
    }
    if (got.said.status != 0) {
        const auto refused = static_cast<errc>(got.said.status);
        throw error(refused, refused == errc::permission_denied ? "the listener belongs to another user"
                                                                : "the listener refused");
    }
    return got;
}

/// What we say of ourselves, and the descriptors that go with it.
struct own_hello {
    hello said{};
    std::array<int, most_descriptors> descriptors{};
    std::size_t count = 0;
};

[[nodiscard]] inline own_hello introduce(domain_base& domain, const geometry& shape, int segment_file) {
    own_hello own;
    domain.shared_arena().open();
    own.said.shape = shape;
    own.said.has_membarrier = domain.uses_membarrier() ? 1 : 0;
    own.said.region_entries = domain.options().max_regions;
    own.said.arena_base = reinterpret_cast<std::uint64_t>(domain.shared_arena().base());
    own.said.arena_bytes = domain.shared_arena().bytes();
    own.said.probe_address = reinterpret_cast<std::uint64_t>(domain.probe_word());
    own.said.probe_word = *domain.probe_word();
    own.descriptors = {domain.doorbell(), domain.table_file(), domain.shared_arena().file(), segment_file};
    own.count = segment_file >= 0 ? 4 : 3;
    return own;
}

/// Throws unless `fd` is an eventfd: writing to anything else that a peer gave us could block, or end the process. From
/// here on writing to it does not block.
inline void check_doorbell(int fd) {
    std::array<char, 64> target{};
    const std::string link = std::string("/proc/self/fd/") + std::to_string(fd);
    const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
    if (length < 0) throw_errno(link);
    if (std::string_view(target.data(), static_cast<std::size_t>(length)) != "anon_inode:[eventfd]") {
        throw error(errc::protocol_violation, "the peer's doorbell is no eventfd");
    }
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        throw_errno("fcntl of the peer's doorbell");
}

/// Takes over what the peer's hello says. Throws.
inline void adopt(channel& made, domain_base& domain, received_hello& peer, pid_t pid) {
    check_doorbell(peer.descriptors[0].get());
    made.peer_doorbell = std::move(peer.descriptors[0]);
    made.peer.map_table(peer.descriptors[1].get(), peer.said.region_entries);
    made.peer.map_arena(peer.descriptors[2].get(), peer.said.arena_base, peer.said.arena_bytes);
    made.fence_before_doorbell = !(domain.uses_membarrier() && peer.said.has_membarrier != 0);
    made.peer_pid = pid;
    if (domain.options().use_process_vm) made.peer.probe(pid, peer.said.probe_address, peer.said.probe_word);
}

/// Lets the peer read and write our memory where Yama would forbid it; elsewhere it changes nothing.
inline void admit_peer(const domain_base& domain, pid_t pid) noexcept {
    if (domain.options().use_process_vm) ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(pid), 0, 0, 0);
}

}  // namespace rdmacoro::detail::shm
