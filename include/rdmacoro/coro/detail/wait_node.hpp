// A list node inside an operation, which may be moved until it begins.
#pragma once

#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>

namespace rdmacoro::detail {

/// As `list_node`; a moved one begins unlinked, so that an operation that has not begun can move. While it waits its scheduler
/// can describe it.
template <class Tag>
struct wait_node : list_node<Tag>, parked_wait {
    [[gnu::always_inline]] wait_node() noexcept {
    }  // NOLINT: not `= default`, which would be a function in each unit
    [[gnu::always_inline]] wait_node(wait_node&&) noexcept : list_node<Tag>(), parked_wait() {}

    [[nodiscard]] bool linked() const noexcept {
        const list_node<Tag>& own = *this;
        return own.linked();
    }
    void unlink() noexcept {
        list_node<Tag>& own = *this;
        own.unlink();
    }
};

}  // namespace rdmacoro::detail
