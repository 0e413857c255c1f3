// How the kernel is asked for this process's mappings.
#pragma once

#include <rdmacoro/memory/detail/mapping_kind.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <fcntl.h>
#include <linux/types.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace rdmacoro::detail {

inline constexpr const char* mappings_path = "/proc/self/maps";

/// `struct procmap_query` of linux/fs.h, which headers older than Linux 6.11 lack.
struct mapping_query {
    __u64 size, flags, address, start, end, mapping_flags, page_bytes, offset, inode;
    __u32 major, minor, name_bytes, build_id_bytes;
    __u64 name, build_id;
};
static_assert(sizeof(mapping_query) == 104);
inline constexpr __u64 shared_mapping = 8;

inline std::uintptr_t hex_or_decimal(const char*& at, const char* end, std::uintptr_t base) noexcept {
    std::uintptr_t value = 0;
    for (; at != end; ++at) {
        const bool digit = *at >= '0' && *at <= '9';
        const bool letter = base == 16 && *at >= 'a' && *at <= 'f';
        if (!digit && !letter) break;
        value = value * base + static_cast<std::uintptr_t>(digit ? *at - '0' : *at - 'a' + 10);
    }
    return value;
}

RDMACORO_DECL mapping_kind::mapping_kind(way how) noexcept : how_(how) {
    if (how == way::query_or_text) maps_ = ::open(mappings_path, O_RDONLY | O_CLOEXEC);
}
RDMACORO_DECL mapping_kind::~mapping_kind() {
    if (maps_ >= 0) ::close(maps_);
}

RDMACORO_DECL bool mapping_kind::private_anonymous(std::uintptr_t start, std::uintptr_t end) noexcept {
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

RDMACORO_DECL bool mapping_kind::ask(std::uintptr_t address, mapping& found) const noexcept {
    mapping_query asked{};
    asked.size = sizeof asked;
    asked.address = address;
    if (::ioctl(maps_, _IOWR('f', 17, mapping_query), &asked) != 0) return false;
    found = {static_cast<std::uintptr_t>(asked.start), static_cast<std::uintptr_t>(asked.end),
             asked.inode == 0 && (asked.mapping_flags & shared_mapping) == 0};
    return true;
}

/// Lines are "start-end rwxp offset major:minor inode name", in the order of addresses.
RDMACORO_DECL bool mapping_kind::read_text(std::uintptr_t start, std::uintptr_t end) noexcept {
    const int file = ::open(mappings_path, O_RDONLY | O_CLOEXEC);
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
            const std::size_t next = static_cast<std::size_t>(static_cast<const char*>(newline) - text) + 1;
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

RDMACORO_DECL mapping_kind::mapping mapping_kind::parse(const char* at, const char* end) noexcept {
    mapping found;
    found.start = hex_or_decimal(at, end, 16);
    if (at != end) ++at;  // '-'
    found.end = hex_or_decimal(at, end, 16);
    if (end - at < 6) return found;
    const bool is_private = at[4] == 'p';
    at += 5;
    for (int field = 0; field < 2; ++field) {  // offset, device
        while (at != end && *at == ' ') ++at;
        while (at != end && *at != ' ') ++at;
    }
    while (at != end && *at == ' ') ++at;
    if (at == end) return found;
    found.private_anonymous = hex_or_decimal(at, end, 10) == 0 && is_private;
    return found;
}

}  // namespace rdmacoro::detail
