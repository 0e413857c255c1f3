// Hosts and ports of the internet: "host:port" and "[v6]:port" as users write them, and their addresses in the system.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace rdmacoro::detail {

/// A socket address of the system.
struct inet_endpoint {
    sockaddr_storage address{};
    socklen_t bytes = 0;

    [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&address); }
    [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&address); }

    [[nodiscard]] static inet_endpoint local(int fd) noexcept { return ask(fd, ::getsockname); }
    [[nodiscard]] static inet_endpoint peer(int fd) noexcept { return ask(fd, ::getpeername); }

    /// "127.0.0.1:7471" or "[::1]:7471".
    [[nodiscard]] std::string text() const;

    /// "tcp://127.0.0.1:7471", for the scheme "tcp".
    [[nodiscard]] std::string url(std::string_view scheme) const;

    /// Whether a socket is connected to itself: so the system may connect to a port from which it takes local ones, where no listener is.
    [[nodiscard]] static bool connected_to_itself(int fd) noexcept;

    /// It can only be reached from its own host.
    [[nodiscard]] bool is_loopback() const noexcept;
    /// Every address of the host, in the same family and at the same port.
    [[nodiscard]] inet_endpoint every_address() const noexcept;
    /// Both are addresses of one host, or this one can only be reached from its own.
    [[nodiscard]] bool same_host(const inet_endpoint& other) const noexcept;
    /// The same address and port.
    [[nodiscard]] bool operator==(const inet_endpoint& other) const noexcept;

private:
    [[nodiscard]] static inet_endpoint ask(int fd,
                                           int (*question)(int, sockaddr*, socklen_t*) noexcept) noexcept;
};

/// A number for the peer's host, for counting.
[[nodiscard]] RDMACORO_DECL std::uint8_t host_hash(const inet_endpoint& peer) noexcept;

/// An address as its user wrote it, in parts.
struct inet_address {
    std::string whole;  // for messages
    std::string host;   // empty: every address of this host
    std::string port;

    /// "host:port" or "[v6 address]:port", with or without the scheme and "://" before it. Throws `errc::address_invalid`;
    /// its text ends with `advice`, such as ", such as 127.0.0.1:7471".
    [[nodiscard]] static inet_address parse(std::string_view scheme, std::string_view text,
                                            std::string_view advice);
};

/// The addresses of a name.
struct inet_resolved {
    int failure = 0;              // of getaddrinfo
    bool no_descriptors = false;  // the system could not be asked
    std::vector<inet_endpoint> endpoints;

    [[nodiscard]] static inet_resolved ask(const inet_address& address, int flags);
    [[nodiscard]] bool none() const noexcept { return failure != 0 || endpoints.empty(); }
    /// Throws `errc::address_invalid`, or `errc::no_resources` where the question could not be asked. `prefix` begins the text.
    [[noreturn]] void throw_none(const std::string& prefix, const inet_address& asked) const;
};

/// Resolves a host name. Numbers are answered at once; names are looked up by a thread of their own,
/// for the system's call blocks. A canceled look-up is forgotten: its thread ends when the system answers.
class inet_resolve final : public basic_operation<inet_resolve, inet_resolved> {
public:
    /// `flags`: 0 or AI_PASSIVE.
    inet_resolve(inet_address address, int flags)
        : basic_operation(nullptr), address_(std::move(address)), flags_(flags) {}

    void start() noexcept;

    void cancel() noexcept;
    void finish_canceled() noexcept { canceled_ = true; }

    [[nodiscard]] result<inet_resolved> outcome() noexcept;

private:
    // Shared by the operation and the thread. The first of two decides: the thread posts its answer to the scheduler,
    // which then must live until it has run; or the operation ends before.
    struct question : posted_node {
        enum class state : int { asked, answered, forgotten };

        question(scheduler& to, inet_resolve& operation, const inet_address& text, int how)
            : owner(to), asker(operation), address(text), flags(how) {}

        [[nodiscard]] bool forget() noexcept {
            state expected = state::asked;
            return now.compare_exchange_strong(expected, state::forgotten);
        }

        scheduler& owner;
        inet_resolve& asker;
        inet_address address;
        int flags;
        inet_resolved answer;
        std::atomic<state> now{state::asked};
        std::atomic<bool> posted{false};  // the thread needs the scheduler no more
        std::shared_ptr<question> self;   // until the post has run
    };

    static void* run(void* handed_over) noexcept;

    inet_address address_;
    int flags_;
    bool canceled_ = false;
    inet_resolved answer_;
    std::shared_ptr<question> question_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/inet_address.ipp>
#endif
