#include "output.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <poll.h>
#include <unistd.h>

namespace run {

void common_output::write(std::string_view all) {
    while (!over_ && !all.empty()) {
        const ssize_t wrote = ::write(to_, all.data(), all.size());
        if (wrote >= 0) {
            all.remove_prefix(static_cast<std::size_t>(wrote));
        } else if (errno == EAGAIN) {
            // Another program that shares the output has made it so.
            pollfd on{to_, POLLOUT, 0};
            ::poll(&on, 1, -1);
        } else if (errno != EINTR) {
            over_ = true;
            failed_ = errno != EPIPE;
            if (failed_)
                std::fprintf(stderr, "run: the standard %s: %s: the rest is dropped\n",
                             to_ == STDOUT_FILENO ? "output" : "error", std::strerror(errno));
        }
    }
}

tagged_output::tagged_output(std::uint32_t rank, int from, common_output& to)
    : tag_('[' + std::to_string(rank) + "] "), from_(from), to_(&to) {}
tagged_output::tagged_output(tagged_output&& other) noexcept
    : tag_(std::move(other.tag_)),
      from_(std::exchange(other.from_, -1)),
      to_(other.to_),
      unread_(std::move(other.unread_)) {}
tagged_output::~tagged_output() {
    if (from_ >= 0) ::close(from_);
}

void tagged_output::forward() {
    std::array<char, 16384> room;
    const ssize_t got = ::read(from_, room.data(), room.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return end();
    unread_.append(room.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t newline; (newline = unread_.find('\n', begin)) != std::string::npos; begin = newline + 1)
        say(std::string_view(unread_).substr(begin, newline - begin));
    unread_.erase(0, begin);
    if (unread_.size() >= longest) say(std::exchange(unread_, {}));
}

void tagged_output::end() {
    if (!unread_.empty()) say(std::exchange(unread_, {}));
    if (from_ >= 0) ::close(std::exchange(from_, -1));
}

void tagged_output::say(std::string_view line) {
    std::string all = tag_;
    all.append(line) += '\n';
    to_->write(all);
}

}  // namespace run
