// Hosts and ports of the internet: "host:port" and "[v6]:port" as users write them, and what the system makes of them.
#pragma once

#include <rdmacoro/coro/operation.hpp>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
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
    [[nodiscard]] std::string text() const {
        char host[INET6_ADDRSTRLEN] = "?";
        if (address.ss_family == AF_INET6) {
            const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
            ::inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
            return std::string("[") + host + "]:" + std::to_string(ntohs(v6.sin6_port));
        }
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        ::inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
        return std::string(host) + ":" + std::to_string(ntohs(v4.sin_port));
    }

    /// "tcp://127.0.0.1:7471", for the scheme "tcp".
    [[nodiscard]] std::string url(std::string_view scheme) const {
        return std::string(scheme) + "://" + text();
    }

    /// Both are addresses of one host, or this one can only be reached from its own.
    [[nodiscard]] bool same_host(const inet_endpoint& other) const noexcept {
        if (address.ss_family != other.address.ss_family) return false;
        if (address.ss_family == AF_INET) {
            const auto& a = reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr;
            const auto& b = reinterpret_cast<const sockaddr_in&>(other.address).sin_addr.s_addr;
            return a == b || (ntohl(a) >> 24) == IN_LOOPBACKNET;
        }
        const auto& a = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
        const auto& b = reinterpret_cast<const sockaddr_in6&>(other.address).sin6_addr;
        return std::memcmp(&a, &b, sizeof a) == 0 || IN6_IS_ADDR_LOOPBACK(&a) != 0;
    }

private:
    [[nodiscard]] static inet_endpoint ask(int fd,
                                           int (*question)(int, sockaddr*, socklen_t*) noexcept) noexcept {
        inet_endpoint answer;
        answer.bytes = sizeof answer.address;
        if (question(fd, answer.get(), &answer.bytes) != 0) answer.bytes = 0;
        return answer;
    }
};

/// An address as its user wrote it, in parts.
struct inet_address {
    std::string whole;  // for messages
    std::string host;   // empty: every address of this host
    std::string port;

    /// "host:port" or "[v6 address]:port", with or without the scheme and "://" before it. Throws `errc::address_invalid`;
    /// its text ends with `advice`, such as ", such as 127.0.0.1:7471".
    [[nodiscard]] static inet_address parse(std::string_view scheme, std::string_view text,
                                            std::string_view advice) {
        inet_address parsed;
        parsed.whole = std::string(text);
        const std::string before = std::string(scheme) + "://";
        const auto refuse = [&](const std::string& why) {
            throw_error(errc::address_invalid, std::string(scheme) + " address \"" + parsed.whole +
                                                   "\": " + why + "; write host:port or [v6 address]:port" +
                                                   std::string(advice));
        };
        if (text.substr(0, before.size()) == before) {
            text.remove_prefix(before.size());
        } else if (text.find("://") != std::string_view::npos) {
            refuse("not a " + before + " address");
        }
        const std::size_t colon = text.rfind(':');
        if (colon == std::string_view::npos) refuse("no port");
        std::string_view host = text.substr(0, colon);
        const std::string_view port = text.substr(colon + 1);
        if (!host.empty() && host.front() == '[') {
            if (host.size() < 3 || host.back() != ']') refuse("no ] after the v6 address");
            host = host.substr(1, host.size() - 2);
        } else if (host.find(':') != std::string_view::npos) {
            refuse("a v6 address needs brackets");
        }
        if (host.find('\0') != std::string_view::npos) refuse("not a host name");
        unsigned number = 0;
        for (const char digit : port) {
            if (digit < '0' || digit > '9' || number > 65'535) refuse("the port is not a number up to 65535");
            number = 10 * number + static_cast<unsigned>(digit - '0');
        }
        if (port.empty() || number > 65'535) refuse("the port is not a number up to 65535");
        parsed.host = host == "*" ? std::string() : std::string(host);
        parsed.port = std::string(port);
        return parsed;
    }
};

/// What a name stands for.
struct inet_resolved {
    int failure = 0;  // of getaddrinfo
    std::vector<inet_endpoint> endpoints;

    [[nodiscard]] static inet_resolved ask(const inet_address& address, int flags) {
        addrinfo wanted{};
        wanted.ai_family = AF_UNSPEC;
        wanted.ai_socktype = SOCK_STREAM;
        wanted.ai_flags = flags | AI_NUMERICSERV;
        addrinfo* found = nullptr;
        inet_resolved answer;
        answer.failure = ::getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                                       address.port.c_str(), &wanted, &found);
        for (const addrinfo* one = found; answer.failure == 0 && one != nullptr; one = one->ai_next) {
            inet_endpoint& endpoint = answer.endpoints.emplace_back();
            std::memcpy(&endpoint.address, one->ai_addr, one->ai_addrlen);
            endpoint.bytes = one->ai_addrlen;
        }
        if (found != nullptr) ::freeaddrinfo(found);
        return answer;
    }
};

/// Finds out what a host name stands for. Numbers are answered at once; names are looked up by a thread of their own,
/// for the system's call blocks. A canceled look-up is forgotten: its thread ends when the system answers.
class inet_resolve final : public basic_operation<inet_resolve, inet_resolved> {
public:
    /// `flags`: 0 or AI_PASSIVE.
    inet_resolve(inet_address address, int flags)
        : basic_operation(nullptr), address_(std::move(address)), flags_(flags) {}

    void start() noexcept {
        try {
            answer_ = inet_resolved::ask(address_, flags_ | AI_NUMERICHOST);
            if (answer_.failure != EAI_NONAME) return complete();
            question_ = std::make_shared<question>(*owner_, *this, address_, flags_);
            auto handed_over = std::make_unique<std::shared_ptr<question>>(question_);
            pthread_t thread{};
            if (::pthread_create(&thread, nullptr, &run, handed_over.get()) == 0) {
                static_cast<void>(handed_over.release());
                ::pthread_detach(thread);
                return;
            }
        } catch (const std::bad_alloc&) {}
        question_.reset();
        answer_.failure = EAI_MEMORY;
        complete();
    }

    void cancel() noexcept {
        if (question_ == nullptr || !question_->forget()) return;  // the answer is on its way already
        question_.reset();
        canceled_ = true;
        complete();
    }
    void finish_canceled() noexcept { canceled_ = true; }

    [[nodiscard]] result<inet_resolved> outcome() noexcept {
        if (canceled_) return errc::canceled;
        return std::move(answer_);
    }

private:
    // Shared by the operation and the thread. Whoever is first decides: the thread posts its answer to the scheduler,
    // which then must live until it has run; or the operation is gone.
    struct question : posted_node {
        enum class state : int { asked, answered, forgotten };

        question(scheduler& to, inet_resolve& who, const inet_address& what, int how)
            : owner(to), asker(who), address(what), flags(how) {}

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

    static void* run(void* handed_over) noexcept {
        const std::unique_ptr<std::shared_ptr<question>> own(
            static_cast<std::shared_ptr<question>*>(handed_over));
        question& asked = **own;
        try {
            asked.answer = inet_resolved::ask(asked.address, asked.flags);
        } catch (const std::bad_alloc&) {
            asked.answer.failure = EAI_MEMORY;
        }
        asked.self = *own;
        asked.call = [](posted_node& node) noexcept {
            auto& answered = static_cast<question&>(node);
            while (!answered.posted.load(std::memory_order_acquire)) ::sched_yield();
            inet_resolve& asker = answered.asker;
            asker.answer_ = std::move(answered.answer);
            asker.question_.reset();
            answered.self.reset();  // may destroy `answered`
            asker.complete();
        };
        auto expected = question::state::asked;
        if (asked.now.compare_exchange_strong(expected, question::state::answered)) {
            asked.owner.post(asked);
            asked.posted.store(true, std::memory_order_release);
        } else {
            asked.self.reset();
        }
        return nullptr;
    }

    inet_address address_;
    int flags_;
    bool canceled_ = false;
    inet_resolved answer_;
    std::shared_ptr<question> question_;
};

}  // namespace rdmacoro::detail
