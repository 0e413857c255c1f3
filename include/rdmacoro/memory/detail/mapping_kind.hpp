// Whether memory is such that no file descriptor and no other process can change what lies behind it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace rdmacoro::detail {

/// Reads the kernel's list of this process's mappings. Allocates nothing. After a fork the child's asks about the parent.
///
/// Only private anonymous memory of ordinary pages is `private_anonymous`. A hole punched through the descriptor of a
/// memfd, or by another process that shares the memory, takes pages away without any notice to those who map them.
class mapping_kind {
public:
    /// How to ask: `query` is one system call a mapping (since Linux 6.11), `text` reads /proc/self/maps.
    enum class way : std::uint8_t { query_or_text, text };

    explicit mapping_kind(way how = way::query_or_text) noexcept : how_(how) {
        if (how == way::query_or_text) maps_ = ::open(path, O_RDONLY | O_CLOEXEC);
    }
    mapping_kind(const mapping_kind&) = delete;
    mapping_kind& operator=(const mapping_kind&) = delete;
    ~mapping_kind() {
        if (maps_ >= 0) ::close(maps_);
    }

    /// Whether all of [start, end) is mapped, private, and of no file. False when the kernel does not tell.
    [[nodiscard]] bool private_anonymous(std::uintptr_t start, std::uintptr_t end) noexcept {
        if (how_ == way::query_or_text && maps_ >= 0) {
            while (start < end) {
                mapping found;
                if (!ask(start, found)) break;
                if (!found.private_anonymous || found.start > start || found.end <= start) return false;
                start = found.end;
            }
            if (start >= end) return true;
            if (errno != ENOTTY) return false;
            how_ = way::text;
        }
        return read_text(start, end);
    }

private:
    static constexpr const char* path = "/proc/self/maps";

    struct mapping {
        std::uintptr_t start = 0;
        std::uintptr_t end = 0;
        bool private_anonymous = false;
    };

    /// `struct procmap_query` of linux/fs.h, which headers older than Linux 6.11 lack.
    struct query {
        __u64 size, flags, address, start, end, mapping_flags, page_bytes, offset, inode;
        __u32 major, minor, name_bytes, build_id_bytes;
        __u64 name, build_id;
    };
    static_assert(sizeof(query) == 104);
    static constexpr __u64 shared_mapping = 8;

    bool ask(std::uintptr_t address, mapping& found) const noexcept {
        query asked{};
        asked.size = sizeof asked;
        asked.address = address;
        if (::ioctl(maps_, _IOWR('f', 17, query), &asked) != 0) return false;
        found = {static_cast<std::uintptr_t>(asked.start), static_cast<std::uintptr_t>(asked.end),
                 asked.inode == 0 && (asked.mapping_flags & shared_mapping) == 0};
        return true;
    }

    /// Lines are "start-end rwxp offset major:minor inode name", in the order of addresses.
    static bool read_text(std::uintptr_t start, std::uintptr_t end) noexcept {
        const int file = ::open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) return false;
        char text[4096];
        std::size_t have = 0;
        bool bad = false;
        while (!bad && start < end) {
            const ssize_t now = ::read(file, text + have, sizeof text - have);
            if (now < 0 && errno == EINTR) continue;
            if (now <= 0) break;
            have += static_cast<std::size_t>(now);
            std::size_t line = 0;
            for (;;) {
                const void* newline = std::memchr(text + line, '\n', have - line);
                if (newline == nullptr) break;
                const std::size_t next =
                    static_cast<std::size_t>(static_cast<const char*>(newline) - text) + 1;
                const mapping found = parse(text + line, text + next);
                line = next;
                if (found.end <= start || start >= end) continue;
                if (!found.private_anonymous || found.start > start) bad = true;
                start = found.end;
            }
            std::memmove(text, text + line, have - line);
            have -= line;
            if (have == sizeof text) bad = true;  // a name longer than any path
        }
        ::close(file);
        return !bad && start >= end;
    }

    static mapping parse(const char* at, const char* end) noexcept {
        mapping found;
        found.start = number(at, end, 16);
        if (at != end) ++at;  // '-'
        found.end = number(at, end, 16);
        if (end - at < 6) return found;
        const bool is_private = at[4] == 'p';
        at += 5;
        for (int field = 0; field < 2; ++field) {  // offset, device
            while (at != end && *at == ' ') ++at;
            while (at != end && *at != ' ') ++at;
        }
        while (at != end && *at == ' ') ++at;
        if (at == end) return found;
        found.private_anonymous = number(at, end, 10) == 0 && is_private;
        return found;
    }

    static std::uintptr_t number(const char*& at, const char* end, std::uintptr_t base) noexcept {
        std::uintptr_t value = 0;
        for (; at != end; ++at) {
            const bool digit = *at >= '0' && *at <= '9';
            const bool letter = base == 16 && *at >= 'a' && *at <= 'f';
            if (!digit && !letter) break;
            value = value * base + static_cast<std::uintptr_t>(digit ? *at - '0' : *at - 'a' + 10);
        }
        return value;
    }

    way how_;
    int maps_ = -1;
};

}  // namespace rdmacoro::detail
