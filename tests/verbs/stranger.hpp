#pragma once

// Clients that connect by TCP and do not go on.

#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <cstddef>
#include <string>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::test {

inline rdmacoro::detail::inet_endpoint at_url(const std::string& url) {
    namespace verbs = rdmacoro::detail::verbs;
    const auto resolved = rdmacoro::detail::inet_resolved::ask(verbs::parse_address(url), AI_NUMERICHOST);
    REQUIRE(resolved.endpoints.size() == 1);
    return resolved.endpoints[0];
}

inline rdmacoro::detail::verbs::greeting::bytes client_greeting() {
    rdmacoro::detail::verbs::greeting own;
    own.slot_bytes = 8192;
    own.credits = 64;
    return own.store();
}

/// A stranger's TCP connection to a listener.
class stranger {
public:
    explicit stranger(const std::string& to) {
        const auto at = at_url(to);
        fd_ = ::socket(at.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(fd_ >= 0);
        REQUIRE(::connect(fd_, at.get(), at.bytes) == 0);
    }
    stranger(stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    stranger& operator=(stranger&&) = delete;
    ~stranger() {
        if (fd_ >= 0) ::close(fd_);
    }

    /// The first that a client sends: of a queue pair at an IPv4 address that no host here has.
    void send_connect_info() const {
        ibv_gid none{};
        none.raw[10] = none.raw[11] = 0xff;
        none.raw[12] = 10;
        send_connect_info(none);
    }
    /// Of a queue pair at this GID.
    void send_connect_info(const ibv_gid& gid) const {
        rdmacoro::detail::verbs::queue_pair_info info;
        info.hello = client_greeting();
        info.number = 77;
        info.mtu = IBV_MTU_1024;
        info.read_depth = 1;
        info.gid = gid;
        std::byte raw[rdmacoro::detail::verbs::queue_pair_info::wire_bytes];
        info.store(raw);
        REQUIRE(::send(fd_, raw, sizeof raw, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof raw));
    }

private:
    int fd_ = -1;
};

}  // namespace rdmacoro::test
