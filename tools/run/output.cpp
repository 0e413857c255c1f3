#include "output.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include <unistd.h>

namespace run {

void common_output::write(std::string_view all) {
    // What is writable takes so much without blocking.
    constexpr std::size_t most_at_once = PIPE_BUF;
    while (!over_ && !all.empty()) {
        if (!until_writable_(to_)) {
            over_ = true;
            return;
        }
        const ssize_t wrote = ::write(to_, all.data(), std::min(all.size(), most_at_once));
        if (wrote >= 0) {
            all.remove_prefix(static_cast<std::size_t>(wrote));
        } else if (errno != EINTR &&
                   errno != EAGAIN) {  // another program that shares the output may be faster
            over_ = true;
            failed_ = errno != EPIPE;
            if (failed_)
                say_(std::string("run: the standard ") + (to_ == STDOUT_FILENO ? "output" : "error") + ": " +
                     std::strerror(errno) + ": the rest is dropped\n");
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

std::size_t tagged_output::forward() {
    std::array<char, 16384> room;
    const ssize_t got = ::read(from_, room.data(), room.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (got <= 0) {
        end();
        return 0;
    }
    unread_.append(room.data(), static_cast<std::size_t>(got));
    std::string lines;
    std::size_t begin = 0;
    for (std::size_t newline; (newline = unread_.find('\n', begin)) != std::string::npos; begin = newline + 1)
        lines.append(tag_).append(unread_, begin, newline + 1 - begin);
    unread_.erase(0, begin);
    if (unread_.size() >= longest) lines.append(tag_).append(std::exchange(unread_, {})) += '\n';
    to_->write(lines);
    return static_cast<std::size_t>(got);
}

void tagged_output::end() {
    if (from_ >= 0) ::close(std::exchange(from_, -1));
    if (!unread_.empty()) to_->write(tag_ + std::exchange(unread_, {}) + '\n');
}

}  // namespace run
