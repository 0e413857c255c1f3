// The common part of the programs that measure calls of other libraries as bench/calls measures ours: two processes on two CPUs, an
// 8-byte number there and one back over TCP on loopback, one at a time, and 64 under way on one connection.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <csignal>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rpc_peer {

inline constexpr std::size_t window = 64;
inline constexpr unsigned limit_seconds = 300;  ///< of the whole run
using steady = std::chrono::steady_clock;

[[noreturn]] inline void fail(const std::string& what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

inline void pin_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) fail("pinning to CPU " + std::to_string(cpu));
}

/// A socket on loopback; `port` 0: of any free port.
class loopback_socket {
public:
    explicit loopback_socket(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        if (fd_ < 0) fail("socket");
        to_.sin_family = AF_INET;
        to_.sin_port = htons(port);
        to_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    loopback_socket(const loopback_socket&) = delete;
    loopback_socket& operator=(const loopback_socket&) = delete;
    ~loopback_socket() { ::close(fd_); }

    std::uint16_t bound() {
        socklen_t length = sizeof to_;
        if (::bind(fd_, reinterpret_cast<sockaddr*>(&to_), length) != 0 ||
            ::getsockname(fd_, reinterpret_cast<sockaddr*>(&to_), &length) != 0)
            fail("bind");
        return ntohs(to_.sin_port);
    }
    bool connects() { return ::connect(fd_, reinterpret_cast<sockaddr*>(&to_), sizeof to_) == 0; }

private:
    sockaddr_in to_{};
    int fd_;
};

inline void wait_until_listening(std::uint16_t port) {
    const auto until = steady::now() + std::chrono::seconds(20);
    while (!loopback_socket(port).connects()) {
        if (steady::now() > until) throw std::runtime_error("the server does not listen");
        static_cast<void>(::poll(nullptr, 0, 2));
    }
}

/// The figures of a run.
class figures {
public:
    /// Calls `one(i)` for each of `rounds` numbers, in a row, after as many as a tenth of them that are not counted.
    template <class One>
    void one_at_a_time(std::size_t rounds, One one) {
        for (std::size_t i = 0; i < rounds / 10; ++i) one(i);
        ns_.reserve(rounds);
        for (std::size_t i = 0; i < rounds; ++i) {
            const auto before = steady::now();
            one(i);
            ns_.push_back(std::chrono::duration<double, std::nano>(steady::now() - before).count());
        }
        std::sort(ns_.begin(), ns_.end());
    }
    /// Calls `many(rounds)`, twice; the second counts.
    template <class Many>
    void under_way(std::size_t rounds, Many many) {
        many(rounds);
        const auto before = steady::now();
        many(rounds);
        rate_ =
            static_cast<double>(rounds) / std::chrono::duration<double>(steady::now() - before).count() / 1e6;
    }
    /// The samples of a client that has measured by itself, in the same way.
    void set(std::vector<double> ns, double millions_per_second) {
        ns_ = std::move(ns);
        std::sort(ns_.begin(), ns_.end());
        rate_ = millions_per_second;
    }
    void print(const char* name) const {
        std::printf("{\"name\": \"%s\", \"median_ns\": %.1f, \"p99_ns\": %.1f, \"p999_ns\": %.1f, "
                    "\"window\": %zu, \"millions_per_second\": %.5f}\n",
                    name, at(0.5), at(0.99), at(0.999), window, rate_);
    }

private:
    [[nodiscard]] double at(double part) const {
        const auto rank = static_cast<std::size_t>(part * static_cast<double>(ns_.size()));
        return ns_.empty() ? 0 : ns_[std::min(rank, ns_.size() - 1)];
    }
    std::vector<double> ns_;
    double rate_ = 0;
};

inline void check(std::uint64_t got, std::uint64_t wanted) {
    if (got != wanted) throw std::runtime_error("a wrong answer");
}

/// `program [ROUNDS [CPU CPU]]`. `serve(port)` serves in a process of its own, until that is ended; `measure(port, rounds, into)` is the
/// client. Each library is first used behind the fork.
template <class Serve, class Measure>
int run(int argc, char** argv, const char* name, Serve serve, Measure measure) {
    try {
        const std::size_t rounds = argc > 1 ? std::stoul(argv[1]) : 50000;
        const int client_cpu = argc > 3 ? std::stoi(argv[2]) : 0;
        const int server_cpu = argc > 3 ? std::stoi(argv[3]) : 1;
        const std::uint16_t port = loopback_socket(0).bound();
        const pid_t parent = ::getpid();
        const pid_t server = ::fork();
        if (server < 0) fail("fork");
        ::alarm(limit_seconds);
        if (server == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(1);
            pin_to(server_cpu);
            serve(port);
            ::_exit(0);
        }
        pin_to(client_cpu);
        wait_until_listening(port);
        figures into;
        measure(port, rounds, into);
        into.print(name);
        std::fflush(stdout);
        ::kill(server, SIGKILL);
        int status = 0;
        ::waitpid(server, &status, 0);
        ::_exit(0);  // threads of a library may still run
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", name, error.what());
        std::_Exit(1);
    }
}

}  // namespace rpc_peer
