#pragma once

// A rendezvous of ranks in this process, and strangers at it.

#include "support/pmi_server.hpp"

#include <rdmacoro/service/detail/meeting_server.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>

namespace rdmacoro::test {

inline detail::inet_endpoint loopback_endpoint(const std::string& port = "0") {
    return detail::inet_resolved::ask(detail::inet_address::parse("tcp", "127.0.0.1:" + port, ""),
                                      AI_NUMERICHOST)
        .endpoints.front();
}

/// Served by a thread, as by the program that started the ranks.
class served_meeting {
public:
    explicit served_meeting(std::uint32_t ranks, const std::string* key = nullptr)
        : server(loopback_endpoint(), ranks, detail::job_key(key), false), serving_([this] { serve(); }) {}
    served_meeting(const served_meeting&) = delete;
    served_meeting& operator=(const served_meeting&) = delete;
    ~served_meeting() {
        const std::uint64_t one = 1;
        static_cast<void>(::write(stop_, &one, sizeof one));
        serving_.join();
        ::close(stop_);
    }
    [[nodiscard]] std::map<std::string, std::string, std::less<>> variables(std::uint32_t rank,
                                                                            std::uint32_t size) const {
        return {{"RDMACORO_JOB", "tcp://" + server.address()},
                {"RDMACORO_SERVED", "1"},
                {"RDMACORO_RANK", std::to_string(rank)},
                {"RDMACORO_SIZE", std::to_string(size)}};
    }
    detail::meeting_server server;

private:
    void serve() {
        try {
            for (;;) server.turn(detail::patience(time_point::max(), stop_));
        } catch (const error&) {}  // to end
    }
    int stop_ = ::eventfd(0, EFD_CLOEXEC);
    std::thread serving_;
};

/// Stands between one rank and its rendezvous, and passes on what they say; what the rendezvous says waits here while it is held.
class withheld_answers {
public:
    /// Closes the first connections, so many, at once.
    explicit withheld_answers(const std::string& of, unsigned turned_away = 0)
        : passing_([this, of, turned_away] {
              for (unsigned n = 0; n < turned_away && !ended_; ++n) {
                  const int rank = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
                  if (rank < 0) return;
                  ++turned_away_;
                  ::close(rank);
              }
              pass(of);
          }) {}
    withheld_answers(const withheld_answers&) = delete;
    withheld_answers& operator=(const withheld_answers&) = delete;
    ~withheld_answers() {
        ended_ = true;
        ::shutdown(listening_, SHUT_RDWR);
        wake();
        passing_.join();
        ::close(listening_);
        ::close(changed_);
    }
    [[nodiscard]] std::string url() const {
        return "tcp://" + detail::inet_endpoint::local(listening_).text();
    }
    /// Connections that were closed at once.
    [[nodiscard]] unsigned turned_away() const { return turned_away_; }
    /// Bytes that the rank has said.
    [[nodiscard]] std::size_t said() const { return said_; }
    void hold(bool whether) {
        holds_ = whether;
        wake();
    }

private:
    static int listen_somewhere() {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const detail::inet_endpoint at = loopback_endpoint();
        if (::bind(fd, at.get(), at.bytes) != 0 || ::listen(fd, 1) != 0) std::abort();
        return fd;
    }
    void wake() const {
        const std::uint64_t one = 1;
        if (::write(changed_, &one, sizeof one) != sizeof one) std::abort();
    }
    static std::size_t move(int from, int to) {
        std::array<std::byte, 4096> room;
        const ssize_t got = ::recv(from, room.data(), room.size(), 0);
        if (got <= 0 || ::send(to, room.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) != got) return 0;
        return static_cast<std::size_t>(got);
    }
    void pass(const std::string& of) {
        const int rank = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
        if (rank < 0) return;
        const detail::inet_endpoint to = loopback_endpoint(of.substr(of.rfind(':') + 1));
        const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool open = ::connect(server, to.get(), to.bytes) == 0;
        while (open && !ended_) {
            std::array<pollfd, 3> on{
                {{changed_, POLLIN, 0}, {rank, POLLIN, 0}, {holds_ ? -1 : server, POLLIN, 0}}};
            if (::poll(on.data(), on.size(), -1) < 0) break;
            std::uint64_t count = 0;
            if (on[0].revents != 0 && ::read(changed_, &count, sizeof count) < 0) break;
            if (on[1].revents != 0) {
                const std::size_t bytes = move(rank, server);
                said_ += bytes;
                open = bytes != 0;
            }
            if (on[2].revents != 0 && !holds_) open = move(server, rank) != 0 && open;
        }
        ::close(rank);
        ::close(server);
    }
    int listening_ = listen_somewhere();
    int changed_ = ::eventfd(0, EFD_CLOEXEC);
    std::atomic<bool> holds_{false};
    std::atomic<bool> ended_{false};
    std::atomic<std::size_t> said_{0};
    std::atomic<unsigned> turned_away_{0};
    std::thread passing_;
};

/// A socket that is connected to "127.0.0.1:45123".
class stranger {
public:
    explicit stranger(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const detail::inet_endpoint to = loopback_endpoint(address.substr(address.rfind(':') + 1));
        if (::connect(fd_, to.get(), to.bytes) != 0) std::abort();
    }
    stranger(const stranger&) = delete;
    stranger& operator=(const stranger&) = delete;
    ~stranger() { ::close(fd_); }

    void say(std::span<const std::byte> bytes) const {
        if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;  // refused before
    }
    /// Whether the other side closes the connection before ten seconds have passed; what it says is dropped.
    [[nodiscard]] bool is_closed() const {
        std::array<std::byte, 4096> room;
        for (;;) {
            pollfd on{fd_, POLLIN, 0};
            if (::poll(&on, 1, 10'000) <= 0) return false;
            if (::recv(fd_, room.data(), room.size(), 0) <= 0) return true;
        }
    }

private:
    int fd_;
};

}  // namespace rdmacoro::test
