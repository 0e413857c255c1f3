// Bodies of recycled_pool.hpp that are no templates.
#pragma once

#include <rdmacoro/transport/detail/recycled_pool.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL bool pool_addresses::add(void* object) noexcept {
    try {
        addresses_.push_back(object);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace rdmacoro::detail
