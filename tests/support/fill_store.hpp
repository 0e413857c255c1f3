#pragma once

// Blocks for stored messages before any is stored: then a test of what is allocated does not depend on how many messages have come before
// their receive at a time.

#include <rdmacoro/protocol/message_store.hpp>

#include <cstddef>
#include <cstdlib>
#include <vector>

namespace rdmacoro::test {

/// From now on the store has room for `each` messages of every size up to `longest` at a time, without another allocation; all
/// of that together must be less than what it holds of released blocks.
inline void fill_store(detail::message_store& store, std::size_t longest, std::size_t each) {
    std::vector<detail::unexpected_message*> made;
    made.reserve(each);
    for (std::size_t payload = 0;;) {
        for (std::size_t n = 0; n < each; ++n) {
            made.push_back(store.make(payload));
            if (made.back() == nullptr) std::abort();
        }
        for (detail::unexpected_message* const one : made) detail::message_store::release(*one);
        made.clear();
        if (payload >= longest) return;
        // The shortest that needs a larger block.
        payload = detail::payload_stored_in(detail::storage_bytes(payload)) + 1;
    }
}

}  // namespace rdmacoro::test
