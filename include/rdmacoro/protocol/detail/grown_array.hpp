// grown_array: an array of plain values that grows and never throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

namespace rdmacoro::detail {

/// Values of a trivially copyable type, found by number; they move when it grows. A fraction of `std::vector`'s code in each
/// unit, and memory that is short is an answer, not an exception.
template <class T>
class grown_array {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    grown_array() noexcept = default;
    grown_array(const grown_array&) = delete;
    grown_array& operator=(const grown_array&) = delete;
    ~grown_array() { std::free(all_); }

    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    [[nodiscard]] T& operator[](std::uint32_t index) noexcept { return all_[index]; }
    [[nodiscard]] T* begin() noexcept { return all_; }
    [[nodiscard]] T* end() noexcept { return all_ + size_; }

    /// Room for `capacity` values. False when memory is short.
    [[nodiscard]] bool reserve(std::uint32_t capacity) noexcept {
        if (capacity <= capacity_) return true;
        const std::uint32_t wanted = capacity < 2 * capacity_ ? 2 * capacity_ : capacity;
        void* larger = std::realloc(static_cast<void*>(all_), std::size_t{wanted} * sizeof(T));
        if (larger == nullptr) return false;
        all_ = static_cast<T*>(larger);
        capacity_ = wanted;
        return true;
    }
    /// At least `size` values, new ones as `T{}`. False when memory is short.
    [[nodiscard]] bool reach(std::uint32_t size) noexcept {
        if (!reserve(size)) return false;
        while (size_ < size) all_[size_++] = T{};
        return true;
    }
    /// Precondition: there is room, by `reserve`.
    void push_back(T value) noexcept { all_[size_++] = value; }
    /// Takes the first value out. Linear.
    T pop_front() noexcept {
        const T first = all_[0];
        --size_;
        for (std::uint32_t i = 0; i < size_; ++i) all_[i] = all_[i + 1];
        return first;
    }
    [[nodiscard]] bool contains(T value) const noexcept {
        for (std::uint32_t i = 0; i < size_; ++i) {
            if (all_[i] == value) return true;
        }
        return false;
    }
    void clear() noexcept { size_ = 0; }

private:
    T* all_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint32_t capacity_ = 0;
};

}  // namespace rdmacoro::detail
