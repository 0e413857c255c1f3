// How two processes come to share a segment: one message each way over a Unix socket, with descriptors.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/shm/channel.hpp>
#include <rdmacoro/transport/shm/domain.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/socket.h>
#include <sys/un.h>

namespace rdmacoro::detail::shm {

/// The message by which each side describes itself, sent together with its descriptors.
struct hello {
    static constexpr std::uint64_t magic_value = 0x316d68732d636472;  // "rdc-shm1"
    static constexpr std::uint32_t version_value = 6;

    std::uint64_t magic = magic_value;
    std::uint32_t version = version_value;
    std::uint32_t status = 0;  ///< an `errc`: not 0 is a refusal, and the rest has no meaning
    geometry shape{};
    std::uint32_t has_membarrier = 0;
    std::uint64_t region_entries = 0;
    std::uint64_t arena_base = 0;
    std::uint64_t arena_bytes = 0;
    region_salt salt{};  ///< of the region table
};

/// Descriptors in a hello: region table, arena, and, from the connecting side, the segment.
inline constexpr std::size_t most_descriptors = 3;

/// The socket name of a shared-memory address: an abstract Unix socket, which vanishes with its owner.
class socket_name {
public:
    /// Takes `name` or `shm://name`. Throws `errc::address_invalid`.
    explicit socket_name(std::string_view address);

    [[nodiscard]] const sockaddr* raw() const noexcept { return reinterpret_cast<const sockaddr*>(&raw_); }
    [[nodiscard]] socklen_t length() const noexcept { return length_; }
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

private:
    sockaddr_un raw_{};
    socklen_t length_ = 0;
    std::string text_;
};

/// Process and user of the peer, from the kernel. Throws.
[[nodiscard]] RDMACORO_DECL ucred peer_credentials(int socket);

/// Sends a hello with `count` descriptors, and the kernel's word on the process that sends it. Throws.
RDMACORO_DECL void send_hello(int socket, const hello& contents, const int* descriptors, std::size_t count);

/// A hello as it came, with its descriptors.
struct received_hello {
    hello contents{};
    pid_t pid = 0;      ///< of the process that sent it, from the kernel; 0: not visible here
    uid_t uid = 0;      ///< of the same
    unique_fd process;  ///< a pidfd of the same; empty before Linux 5.3, or when it has ended
    unique_fd descriptors[most_descriptors];
    std::size_t count = 0;
};

/// Reads a hello that has arrived; checks magic, version and status. Throws.
[[nodiscard]] RDMACORO_DECL received_hello receive_hello(int socket);

/// The hello of this side, and the descriptors that go with it.
struct own_hello {
    hello contents{};
    int descriptors[most_descriptors] = {-1, -1, -1};
    std::size_t count = 0;
};

/// Throws `errc::invalid_argument` in a child of the process that made the domain.
[[nodiscard]] RDMACORO_DECL own_hello introduce(domain_base& domain, const geometry& shape, int segment_file);

/// Checks and takes over the resources named by the peer's hello, which came over `socket`. Throws.
///
/// A socket's peer credentials name the process that called `listen` or `connect`, which may have forked since; the process
/// that will serve the link is the one that sent the hello.
RDMACORO_DECL void adopt(channel& made, domain_base& domain, received_hello& peer, int socket);

/// Permits the peer process to read and write our memory where Yama would forbid it, if the options ask for that.
RDMACORO_DECL void admit_peer(channel& made, const domain_base& domain, pid_t pid) noexcept;

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/handshake.ipp>
#endif
