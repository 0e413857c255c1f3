#pragma once

// The resources of this process, for tests that nothing is left behind.

#include "support/counting_new.hpp"
#include "support/mappings.hpp"

#include <cstddef>

#include <dirent.h>
#include <malloc.h>

namespace rdmacoro::test {

inline std::size_t open_descriptors() {
    std::size_t count = 0;
    DIR* directory = ::opendir("/proc/self/fd");
    while (::readdir(directory) != nullptr) ++count;
    ::closedir(directory);
    return count;
}

/// The resources of this process that connections take.
struct held {
    std::size_t descriptors = 0;
    mappings::totals mapped;  ///< 0 where a sanitizer maps memory of its own as it goes
    std::size_t heap = 0;     ///< bytes in use; 0 where a sanitizer has a heap of its own

    /// `text` receives the list of mappings.
    [[nodiscard]] static held now(mappings& text) {
        held seen;
        seen.descriptors = open_descriptors();
        if (counts_allocations) {
            text.read();
            seen.mapped = text.sum();
            const auto heap = ::mallinfo2();
            seen.heap = heap.uordblks + heap.hblkhd;
        }
        return seen;
    }
    [[nodiscard]] bool same_resources(const held& other) const {
        return descriptors == other.descriptors && mapped == other.mapped;
    }
};

}  // namespace rdmacoro::test
