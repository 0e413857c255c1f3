// Hosts and ports: how they are parsed, resolved and printed.
#pragma once

#include <rdmacoro/coro/detail/signals_blocked.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/detail/scheme.hpp>

#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD std::string inet_endpoint::text() const {
    char host[INET6_ADDRSTRLEN] = "?";
    if (address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
        ::inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
        std::string text = std::string("[") + host;
        char interface[IF_NAMESIZE];
        if (v6.sin6_scope_id != 0 && ::if_indextoname(v6.sin6_scope_id, interface) != nullptr)
            text.append("%").append(interface);
        return text + "]:" + std::to_string(ntohs(v6.sin6_port));
    }
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    return std::string(host) + ":" + std::to_string(ntohs(v4.sin_port));
}

RDMACORO_COLD std::string inet_endpoint::url(std::string_view scheme) const {
    return std::string(scheme) + "://" + text();
}

RDMACORO_COLD bool inet_endpoint::operator==(const inet_endpoint& other) const noexcept {
    if (address.ss_family != other.address.ss_family) return false;
    if (address.ss_family == AF_INET) {
        const auto& a = reinterpret_cast<const sockaddr_in&>(address);
        const auto& b = reinterpret_cast<const sockaddr_in&>(other.address);
        return a.sin_addr.s_addr == b.sin_addr.s_addr && a.sin_port == b.sin_port;
    }
    const auto& a = reinterpret_cast<const sockaddr_in6&>(address);
    const auto& b = reinterpret_cast<const sockaddr_in6&>(other.address);
    return std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof a.sin6_addr) == 0 && a.sin6_port == b.sin6_port;
}

RDMACORO_COLD bool inet_endpoint::connected_to_itself(int fd) noexcept {
    const inet_endpoint peer = inet_endpoint::peer(fd);
    const bool of_internet = peer.address.ss_family == AF_INET || peer.address.ss_family == AF_INET6;
    return of_internet && local(fd) == peer;
}

RDMACORO_COLD bool inet_endpoint::is_loopback() const noexcept {
    if (address.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        return (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    }
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

RDMACORO_COLD inet_endpoint inet_endpoint::every_address() const noexcept {
    inet_endpoint all = *this;
    if (address.ss_family == AF_INET) {
        reinterpret_cast<sockaddr_in&>(all.address).sin_addr.s_addr = htonl(INADDR_ANY);
    } else {
        reinterpret_cast<sockaddr_in6&>(all.address).sin6_addr = in6addr_any;
    }
    return all;
}

RDMACORO_COLD bool inet_endpoint::same_host(const inet_endpoint& other) const noexcept {
    if (address.ss_family != other.address.ss_family) return false;
    if (is_loopback()) return true;
    if (address.ss_family == AF_INET) {
        const auto& a = reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr;
        const auto& b = reinterpret_cast<const sockaddr_in&>(other.address).sin_addr.s_addr;
        return a == b;
    }
    const auto& a = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    const auto& b = reinterpret_cast<const sockaddr_in6&>(other.address).sin6_addr;
    return std::memcmp(&a, &b, sizeof a) == 0;
}

RDMACORO_COLD inet_endpoint inet_endpoint::ask(int fd, int (*question)(int, sockaddr*,
                                                                       socklen_t*) noexcept) noexcept {
    inet_endpoint answer;
    answer.bytes = sizeof answer.address;
    if (question(fd, answer.get(), &answer.bytes) != 0) answer.bytes = 0;
    // A v4 connection of a socket for both families.
    const auto v6 = reinterpret_cast<const sockaddr_in6&>(answer.address);
    if (answer.bytes != 0 && v6.sin6_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) != 0) {
        answer = {};
        auto& v4 = reinterpret_cast<sockaddr_in&>(answer.address);
        v4.sin_family = AF_INET;
        v4.sin_port = v6.sin6_port;
        std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
        answer.bytes = sizeof v4;
    }
    return answer;
}

/// The same for all addresses of a v6 network of 64 bits: one host may have any of them.
RDMACORO_COLD std::uint8_t host_hash(const inet_endpoint& peer) noexcept {
    std::uint64_t number = 0;
    if (peer.address.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer.address).sin6_addr;
        std::memcpy(&number, v6.s6_addr, sizeof number);
    } else {
        number = reinterpret_cast<const sockaddr_in&>(peer.address).sin_addr.s_addr;
    }
    return static_cast<std::uint8_t>((number * 0x9e3779b97f4a7c15) >> 56);
}

/// Whether a v6 address in text is one of fe80::/10.
RDMACORO_COLD bool is_link_local(std::string_view host) noexcept {
    const auto lower = [&](std::size_t at) { return static_cast<char>(host[at] | 0x20); };
    return host.size() > 4 && host[4] == ':' && lower(0) == 'f' && lower(1) == 'e' &&
           (host[2] == '8' || host[2] == '9' || lower(2) == 'a' || lower(2) == 'b');
}

RDMACORO_COLD inet_address inet_address::parse(std::string_view scheme, std::string_view text,
                                               std::string_view advice) {
    inet_address parsed;
    parsed.whole = std::string(text);
    const auto refuse = [&](const std::string& why) {
        throw_error(errc::address_invalid, std::string(scheme) + " address \"" + parsed.whole + "\": " + why +
                                               "; write host:port or [v6 address]:port" +
                                               std::string(advice));
    };
    if (const std::string wrong = wrong_scheme(scheme, text); !wrong.empty()) refuse(wrong);
    text = without_scheme(scheme, text);
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || (text.front() == '[' && text.back() == ']')) refuse("no port");
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (!host.empty() && host.front() == '[') {
        if (host.size() < 3 || host.back() != ']') refuse("no ] after the v6 address");
        host = host.substr(1, host.size() - 2);
        if (is_link_local(host) && host.find('%') == std::string_view::npos)
            refuse("a link-local address needs its interface, as in [fe80::1%eth0]:7471");
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

RDMACORO_COLD inet_resolved inet_resolved::ask(const inet_address& address, int flags) {
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
    // Its answer is the same as for a name that does not exist where it cannot open its files or a socket.
    if (answer.failure != 0 && (flags & AI_NUMERICHOST) == 0) {
        const int one_more = ::eventfd(0, EFD_CLOEXEC);
        if (one_more < 0) {
            answer.no_descriptors = true;
        } else {
            ::close(one_more);
        }
    }
    return answer;
}

RDMACORO_COLD void inet_resolved::throw_none(const std::string& prefix, const inet_address& asked) const {
    const std::string where = prefix + ": " + asked.whole + ": ";
    if (no_descriptors)
        throw error(errc::no_resources,
                    where + "no descriptor is left to look its name up with; see ulimit -n");
    if (failure == EAI_MEMORY) throw error(errc::no_resources, where + "no memory to look its name up with");
    throw error(errc::address_invalid, where + "its address is not known (" +
                                           ::gai_strerror(failure != 0 ? failure : EAI_NONAME) +
                                           "); check the name, or write the address in numbers");
}

RDMACORO_COLD void inet_resolve::start() noexcept {
    try {
        answer_ = inet_resolved::ask(address_, flags_ | AI_NUMERICHOST);
        if (answer_.failure != EAI_NONAME) return complete();
        question_ = std::make_shared<question>(*owner_, *this, address_, flags_);
        auto handed_over = std::make_unique<std::shared_ptr<question>>(question_);
        pthread_t thread{};
        const signals_blocked for_thread;
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

RDMACORO_COLD void inet_resolve::cancel() noexcept {
    if (question_ == nullptr || !question_->forget()) return;  // the answer is on its way already
    question_.reset();
    canceled_ = true;
    complete();
}

RDMACORO_COLD result<inet_resolved> inet_resolve::outcome() noexcept {
    if (canceled_) return errc::canceled;
    return std::move(answer_);
}

RDMACORO_COLD void* inet_resolve::run(void* handed_over) noexcept {
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

}  // namespace rdmacoro::detail
