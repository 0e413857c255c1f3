// Bodies of host_arrivals.hpp.
#pragma once

#include <rdmacoro/transport/detail/close_elsewhere.hpp>
#include <rdmacoro/transport/detail/host_arrivals.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rdmacoro::detail {

/// The abstract name of a rank's mark. A job's name may be longer than there is room for: then its end counts, and its length.
struct arrival_name {
    arrival_name(std::string_view job, std::uint32_t rank) {
        std::string text = "rdmacoro-" + std::to_string(::getuid()) + '-' + std::to_string(rank) + '-' +
                           std::to_string(job.size()) + '-';
        const std::size_t room = sizeof of.sun_path - 1 - text.size();
        text += job.size() > room ? job.substr(job.size() - room) : job;
        of.sun_family = AF_UNIX;
        std::memcpy(of.sun_path + 1, text.data(), text.size());
        bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    }
    [[nodiscard]] const sockaddr* address() const noexcept { return reinterpret_cast<const sockaddr*>(&of); }

    sockaddr_un of{};
    socklen_t bytes = 0;
};

RDMACORO_COLD host_arrivals::host_arrivals(std::string_view job, std::uint32_t rank,
                                           std::vector<std::uint32_t> ranks)
    : rank_(rank), ranks_(std::move(ranks)), seen_(ranks_.size()), process_(::getpid()) {
    saw(rank);
    silent_.reserve(ranks_.size());
    const arrival_name own(job, rank);
    listening_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    // First the mark, then the knocks: of two that come at a time each finds the other, or is found.
    if (listening_ >= 0 &&
        (::bind(listening_, own.address(), own.bytes) != 0 ||
         ::listen(listening_, static_cast<int>(std::min<std::size_t>(ranks_.size(), 4096))) != 0)) {
        ::close(listening_);
        listening_ = -1;
    }
    for (const std::uint32_t other : ranks_) {
        if (other != rank && knock(job, other)) saw(other);
    }
}

RDMACORO_COLD host_arrivals::~host_arrivals() {
    for (const int fd : silent_) ::close(fd);
    if (listening_ < 0) return;
    if (::getpid() == process_) {
        close_listener(listening_);
    } else {
        ::close(listening_);
    }
}

RDMACORO_COLD bool host_arrivals::knock(std::string_view job, std::uint32_t rank) const noexcept {
    if (closing_elsewhere() >= most_closing) return false;  // the name may be another user's
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const arrival_name there(job, rank);
    const bool reached = ::connect(fd, there.address(), there.bytes) == 0;
    if (reached && !is_own_user(fd)) {
        close_elsewhere(fd);
        return false;
    }
    // Bytes that were written before it was closed are found all the same.
    const bool said = reached && ::send(fd, &rank_, sizeof rank_, MSG_NOSIGNAL) == sizeof rank_;
    ::close(fd);
    return said;
}

RDMACORO_COLD void host_arrivals::saw(std::uint32_t rank) {
    const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
    if (at != ranks_.end() && *at == rank) seen_[static_cast<std::size_t>(at - ranks_.begin())] = true;
}

RDMACORO_COLD bool host_arrivals::hear(int fd) {
    std::uint32_t rank = 0;
    const ssize_t bytes = ::recv(fd, &rank, sizeof rank, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (bytes == sizeof rank) saw(rank);
    ::close(fd);
    return false;
}

RDMACORO_COLD std::vector<std::uint32_t> host_arrivals::unseen() {
    const std::lock_guard held(lock_);
    std::erase_if(silent_, [this](int fd) { return !hear(fd); });
    // Clients of other users may come as fast as they are taken.
    std::size_t most = listening_ < 0 ? 0 : ranks_.size() + most_closing;
    for (; most != 0 && closing_elsewhere() < most_closing; --most) {
        const int fd = ::accept4(listening_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) break;
        if (!is_own_user(fd)) {
            close_elsewhere(fd);
            continue;
        }
        if (!hear(fd)) continue;
        if (silent_.size() < ranks_.size()) {
            silent_.push_back(fd);
        } else {
            ::close(fd);
        }
    }
    std::vector<std::uint32_t> missing;
    for (std::size_t at = 0; at < ranks_.size(); ++at) {
        if (!seen_[at]) missing.push_back(ranks_[at]);
    }
    return missing;
}

}  // namespace rdmacoro::detail
