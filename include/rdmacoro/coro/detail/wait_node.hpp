// A list node inside an operation, which may move until it begins.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>

namespace rdmacoro::detail {

/// As `list_node`; a moved one begins unlinked, so that an operation that has not begun can move.
template <class Tag>
struct wait_node : list_node<Tag> {
    wait_node() noexcept = default;
    wait_node(wait_node&&) noexcept : list_node<Tag>() {}
};

}  // namespace rdmacoro::detail
