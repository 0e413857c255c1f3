// Messages of PMI, cut from what came.
#pragma once

#include <rdmacoro/service/detail/pmi_lines.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD pmi_message::pmi_message(std::string_view text, char between) : text_(text) {
    std::string one;
    const auto take = [&] {
        const std::size_t equals = one.find('=');
        if (equals != std::string::npos && equals != 0)
            fields_.emplace_back(one.substr(0, equals), one.substr(equals + 1));
        one.clear();
    };
    for (std::size_t n = 0; n < text.size(); ++n) {
        if (text[n] != between) {
            one += text[n];
        } else if (between == ';' && n + 1 < text.size() && text[n + 1] == ';') {
            one += text[n++];
        } else {
            take();
        }
    }
    take();
}
RDMACORO_COLD const std::string* pmi_message::find(std::string_view key) const noexcept {
    const auto found =
        std::find_if(fields_.begin(), fields_.end(), [&](const auto& field) { return field.first == key; });
    return found == fields_.end() ? nullptr : &found->second;
}

RDMACORO_COLD pmi_lines::pmi_lines(int fd) : fd_(fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags < 0)
        throw error(errc::unsupported,
                    "PMI_FD is " + std::to_string(fd) +
                        ", which is no open descriptor: a program between the launcher and "
                        "this one may have closed it");
    // Launchers give one end of a pair of sockets. Words that are written to a file by its number would spoil it.
    struct stat what{};
    if (::fstat(fd, &what) != 0 || !S_ISSOCK(what.st_mode))
        throw error(errc::unsupported,
                    "PMI_FD is " + std::to_string(fd) +
                        ", which is no socket: a program between the launcher and this one may have closed "
                        "it and opened something else");
    static_cast<void>(::fcntl(fd, F_SETFD, flags | FD_CLOEXEC));
}
RDMACORO_COLD void pmi_lines::close() noexcept { ::close(std::exchange(fd_, -1)); }

RDMACORO_COLD pmi_message pmi_lines::ask(std::string_view text, std::string_view answer,
                                         const patience& limit) {
    pmi_message got = ask(text, limit);
    const std::string* const command = got.find("cmd");
    if (command == nullptr || *command != answer)
        throw error(errc::protocol_violation,
                    "PMI: the launcher answered " + in_quotes(got.text()) + " to " + in_quotes(text));
    return got;
}
RDMACORO_COLD pmi_message pmi_lines::ask(std::string_view text, const patience& limit) {
    try {
        say(text, in_time(limit));
        try {
            return hear(in_time(limit));
        } catch (const error& failed) {
            if (failed.code() != errc::timed_out) throw;
        }
        return hear(in_time(limit));
    } catch (const error& failed) {
        const std::string context = failed.context();
        throw error(failed.code(), "PMI: the launcher did not answer " + in_quotes(text) +
                                       (context.empty() ? "" : ": " + context) + late_text(late_by_));
    }
}

RDMACORO_COLD pmi_message pmi_lines::hear(const patience& limit) {
    for (;;) {
        pmi_message got(read(limit), version_ == 1 ? ' ' : ';');
        const std::string* const command = got.find("cmd");
        if (command == nullptr) return got;
        const auto dropped = std::find(given_up_.begin(), given_up_.end(), *command);
        if (dropped == given_up_.end()) return got;
        given_up_.erase(dropped);
    }
}

RDMACORO_COLD patience pmi_lines::in_time(const patience& limit) noexcept {
    constexpr duration longest = std::chrono::seconds(1);
    const time_point now = monotonic_now();
    if (now < limit.until()) return limit;
    if (!late_until_) {
        late_by_ = now - limit.until();
        late_until_ = now + std::min(late_by_, longest);
    }
    return patience(*late_until_, limit.stop_fd());
}

RDMACORO_COLD void pmi_lines::write(std::string_view text, const patience& limit) {
    std::string all;
    if (version_ == 1) {
        all = std::string(text) + '\n';
    } else {
        std::array<char, 16> head{};
        std::snprintf(head.data(), head.size(), "%6zu", text.size());
        all = head.data() + std::string(text);
    }
    std::string_view left = all;
    for (;;) {
        const ssize_t sent = ::send(fd_, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            throw error(errc::peer_lost, std::string("it has closed PMI_FD: ") + std::strerror(errno));
        if (sent > 0) left.remove_prefix(static_cast<std::size_t>(sent));
        if (left.empty()) return;
        limit.wait(fd_, POLLOUT);
    }
}

RDMACORO_COLD void pmi_lines::fill(const patience& limit) {
    std::array<char, 4096> room;
    for (;;) {
        limit.wait(fd_, POLLIN);
        const ssize_t got = ::read(fd_, room.data(), room.size());
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) throw error(errc::peer_lost, "it has closed PMI_FD");
        unread_.append(room.data(), static_cast<std::size_t>(got));
        return;
    }
}

RDMACORO_COLD std::string pmi_lines::read(const patience& limit) {
    const auto take = [this](std::size_t skip, std::size_t bytes, std::size_t end) {
        std::string message = unread_.substr(skip, bytes);
        unread_.erase(0, end);
        if (std::any_of(message.begin(), message.end(), [](char c) { return c < ' ' || c > '~'; }))
            throw error(errc::protocol_violation, "its answer is no text: " + in_quotes(message));
        return message;
    };
    if (version_ == 1) {
        std::size_t end = 0;
        while ((end = unread_.find('\n')) == std::string::npos) {
            if (unread_.size() > most_bytes)
                throw error(errc::protocol_violation, "its answer has no end: " + in_quotes(unread_));
            fill(limit);
        }
        return take(0, end, end + 1);
    }
    constexpr std::size_t head = 6;
    while (unread_.size() < head) fill(limit);
    // Spaces are before the number (Hydra) or behind it (Slurm).
    std::string_view number = std::string_view(unread_).substr(0, head);
    number.remove_prefix(std::min(number.find_first_not_of(' '), head));
    number = number.substr(0, number.find_last_not_of(' ') + 1);
    std::size_t bytes = 0;
    const char* const end = number.data() + number.size();
    const auto counted = std::from_chars(number.data(), end, bytes);
    if (counted.ec != std::errc() || counted.ptr != end || bytes > most_bytes)
        throw error(errc::protocol_violation,
                    "its answer does not begin with a length: " + in_quotes(unread_));
    while (unread_.size() < head + bytes) fill(limit);
    return take(head, bytes, head + bytes);
}

}  // namespace rdmacoro::detail
