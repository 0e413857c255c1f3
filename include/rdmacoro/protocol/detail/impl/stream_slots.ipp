// Bodies of detail/stream_slots.hpp.
#pragma once

#include <rdmacoro/protocol/detail/stream_slots.hpp>

#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD slot_table::~slot_table() {
    for (std::uint32_t id = 0; id < size_; ++id) type_.destroy(all_[id].slot);
    delete[] all_;
}

RDMACORO_COLD std::uint32_t slot_table::take() noexcept {
    const std::uint32_t id = free_;
    if (id != none) {
        free_ = all_[id].next_free;
        return id;
    }
    return reach(size_) ? size_ - 1 : none;
}

RDMACORO_COLD bool slot_table::reach(std::uint32_t id) noexcept {
    while (size_ <= id) {
        if (size_ == capacity_ && !grow()) return false;
        void* const made = type_.make();
        if (made == nullptr) return false;
        all_[size_++] = {made, none, unlisted};
    }
    return true;
}

RDMACORO_COLD bool slot_table::grow() noexcept {
    const std::uint32_t capacity = capacity_ == 0 ? 4 : 2 * capacity_;
    entry* const larger = new (std::nothrow) entry[capacity];
    if (larger == nullptr) return false;
    for (std::uint32_t i = 0; i < size_; ++i) larger[i] = all_[i];
    delete[] all_;
    all_ = larger;
    capacity_ = capacity;
    return true;
}

RDMACORO_COLD bool slot_table::remember(std::uint32_t id) noexcept {
    if (all_[id].next_unsent != unlisted) return false;
    all_[id].next_unsent = none;
    (unsent_count_ == 0 ? first_unsent_ : all_[last_unsent_].next_unsent) = id;
    last_unsent_ = id;
    ++unsent_count_;
    return true;
}

RDMACORO_COLD bool slot_table::remember_first(std::uint32_t id) noexcept {
    if (all_[id].next_unsent != unlisted) return false;
    if (unsent_count_ == 0) return remember(id);
    all_[id].next_unsent = first_unsent_;
    first_unsent_ = id;
    ++unsent_count_;
    return true;
}

RDMACORO_COLD std::uint32_t slot_table::take_remembered() noexcept {
    if (unsent_count_ == 0) return none;
    const std::uint32_t oldest = first_unsent_;
    first_unsent_ = std::exchange(all_[oldest].next_unsent, unlisted);
    --unsent_count_;
    return oldest;
}

}  // namespace rdmacoro::detail
