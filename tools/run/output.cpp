#include "output.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <unistd.h>

namespace run {

tagged_output::tagged_output(std::uint32_t rank, int from, int to)
    : tag_('[' + std::to_string(rank) + "] "), from_(from), to_(to) {}
tagged_output::tagged_output(tagged_output&& other) noexcept
    : tag_(std::move(other.tag_)),
      from_(std::exchange(other.from_, -1)),
      to_(other.to_),
      unread_(std::move(other.unread_)) {}
tagged_output::~tagged_output() {
    if (from_ >= 0) ::close(from_);
}

void tagged_output::forward() {
    constexpr std::size_t longest = 65536;
    std::array<char, 16384> room;
    const ssize_t got = ::read(from_, room.data(), room.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return end();
    unread_.append(room.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t newline; (newline = unread_.find('\n', begin)) != std::string::npos; begin = newline + 1)
        say(unread_.substr(begin, newline - begin));
    unread_.erase(0, begin);
    if (unread_.size() >= longest) say(std::exchange(unread_, {}));
}

void tagged_output::end() {
    if (!unread_.empty()) say(std::exchange(unread_, {}));
    if (from_ >= 0) ::close(std::exchange(from_, -1));
}

void tagged_output::say(const std::string& line) {
    const std::string all = tag_ + line + '\n';
    for (std::size_t done = 0; done < all.size();) {
        const ssize_t wrote = ::write(to_, all.data() + done, all.size() - done);
        if (wrote < 0 && errno != EINTR) return;  // the reader has gone
        if (wrote > 0) done += static_cast<std::size_t>(wrote);
    }
}

}  // namespace run
