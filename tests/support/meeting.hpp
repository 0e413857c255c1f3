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
