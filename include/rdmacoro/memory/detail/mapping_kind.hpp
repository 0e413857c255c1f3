// Whether no file descriptor and no other process can replace the pages behind a range of memory.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// Reads the kernel's list of this process's mappings. Allocates nothing. After a fork the child's object reads the
/// parent's mappings.
///
/// Only private anonymous memory of ordinary pages is `private_anonymous`. A hole punched through the descriptor of a
/// memfd, or by another process that shares the memory, removes pages without notice to the processes that map them.
class mapping_kind {
public:
    /// How to ask: `query` is one system call a mapping (since Linux 6.11), `text` reads /proc/self/maps.
    enum class way : std::uint8_t { query_or_text, text };

    explicit mapping_kind(way how = way::query_or_text) noexcept;
    mapping_kind(const mapping_kind&) = delete;
    mapping_kind& operator=(const mapping_kind&) = delete;
    ~mapping_kind();

    /// Whether all of [start, end) is mapped, private, and of no file. False when the kernel does not report it.
    [[nodiscard]] bool private_anonymous(std::uintptr_t start, std::uintptr_t end) noexcept;

private:
    struct mapping {
        std::uintptr_t start = 0;
        std::uintptr_t end = 0;
        bool private_anonymous = false;
    };

    bool ask(std::uintptr_t address, mapping& found) const noexcept;
    static bool read_text(std::uintptr_t start, std::uintptr_t end) noexcept;
    static mapping parse(const char* at, const char* end) noexcept;

    way how_;
    int maps_ = -1;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/memory/detail/impl/mapping_kind.ipp>
#endif
