// How a plain_vector grows.
#pragma once

#include <rdmacoro/coro/detail/plain_vector.hpp>

#include <cstring>

namespace rdmacoro::detail {

RDMACORO_COLD plain_storage& plain_storage::operator=(plain_storage&& other) noexcept {
    if (this != &other) {
        ::operator delete(data_);
        data_ = other.data_;
        size_ = other.size_;
        capacity_ = other.capacity_;
        other.data_ = nullptr;
        other.size_ = other.capacity_ = 0;
    }
    return *this;
}

RDMACORO_COLD bool plain_storage::grow(std::size_t elements, std::size_t element_bytes) noexcept {
    std::size_t capacity = capacity_ < 4 ? 4 : 2 * capacity_;
    if (capacity < elements) capacity = elements;
    if (capacity > static_cast<std::size_t>(-1) / 2 / element_bytes) return false;
    void* const larger = ::operator new(capacity * element_bytes, std::nothrow);
    if (larger == nullptr) return false;
    if (size_ != 0) std::memcpy(larger, data_, size_ * element_bytes);
    ::operator delete(data_);
    data_ = larger;
    capacity_ = capacity;
    return true;
}

RDMACORO_COLD void plain_storage::open_gap(std::size_t at, std::size_t element_bytes) noexcept {
    char* const from = static_cast<char*>(data_) + at * element_bytes;
    std::memmove(from + element_bytes, from, (size_ - at) * element_bytes);
    ++size_;
}

RDMACORO_COLD void plain_storage::close_gap(std::size_t at, std::size_t element_bytes) noexcept {
    char* const to = static_cast<char*>(data_) + at * element_bytes;
    std::memmove(to, to + element_bytes, (size_ - at - 1) * element_bytes);
    --size_;
}

}  // namespace rdmacoro::detail
