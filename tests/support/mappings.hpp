#pragma once

// The memory mappings of this process, for tests that nothing is left mapped. Reading them allocates nothing.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace rdmacoro::test {

/// The content of /proc/self/maps at one moment. Large: keep it in static storage.
class mappings {
public:
    void read() noexcept {
        bytes_ = 0;
        const int file = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        for (ssize_t n = 1; n > 0 && bytes_ < text_.size();) {
            n = ::read(file, text_.data() + bytes_, text_.size() - bytes_);
            if (n > 0) bytes_ += static_cast<std::size_t>(n);
        }
        ::close(file);
    }

    /// How many there are and how long they are together, without the heap and the stack, which grow by need.
    struct totals {
        std::size_t count = 0;
        std::uint64_t bytes = 0;
        bool operator==(const totals&) const = default;
    };
    [[nodiscard]] totals sum() const noexcept {
        totals all;
        for_each([&](std::uint64_t bytes, std::string_view, std::string_view path) {
            if (path == "[heap]" || path == "[stack]") return;
            ++all.count;
            all.bytes += bytes;
        });
        return all;
    }

    /// One line for each mapping that only one of the two has: "+ rw-p 524288 anonymous".
    [[nodiscard]] static std::string difference(const mappings& before, const mappings& after) {
        const std::vector<std::string> old = before.lines();
        const std::vector<std::string> now = after.lines();
        std::vector<std::string> gone;
        std::vector<std::string> added;
        std::set_difference(old.begin(), old.end(), now.begin(), now.end(), std::back_inserter(gone));
        std::set_difference(now.begin(), now.end(), old.begin(), old.end(), std::back_inserter(added));
        std::string text;
        for (const std::string& one : gone) text += "- " + one + '\n';
        for (const std::string& one : added) text += "+ " + one + '\n';
        return text;
    }

private:
    /// Calls `f(length, rights, path)` for each line: "55d0c000-55d0e000 r--p 00000000 08:01 1234    /usr/bin/cat".
    template <class Function>
    void for_each(Function f) const {
        const std::string_view text(text_.data(), bytes_);
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const std::string_view line = text.substr(at, end - at);
            at = end + 1;
            const std::size_t rights = line.find(' ') + 1;
            const std::size_t inode = line.find(' ', line.find(' ', rights + 5) + 1) + 1;
            const std::size_t path =
                std::min(line.find_first_not_of(' ', line.find(' ', inode)), line.size());
            char* dash = nullptr;
            const std::uint64_t begin = std::strtoull(line.data(), &dash, 16);
            const std::uint64_t bytes = std::strtoull(dash + 1, nullptr, 16) - begin;
            f(bytes, line.substr(rights, 4), line.substr(path));
        }
    }
    [[nodiscard]] std::vector<std::string> lines() const {
        std::vector<std::string> all;
        for_each([&](std::uint64_t bytes, std::string_view rights, std::string_view path) {
            all.push_back(std::string(rights) + ' ' + std::to_string(bytes) + ' ' +
                          (path.empty() ? "anonymous" : std::string(path)));
        });
        std::sort(all.begin(), all.end());
        return all;
    }

    std::array<char, 1 << 18> text_{};
    std::size_t bytes_ = 0;
};

}  // namespace rdmacoro::test
