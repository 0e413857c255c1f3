// A growing array of trivially copyable values: std::vector's job with a tenth of the code in each unit.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstddef>
#include <new>
#include <type_traits>

namespace rdmacoro::detail {

/// The memory of a `plain_vector`, compiled once for all element types.
class plain_storage {
public:
    plain_storage() noexcept = default;
    plain_storage(plain_storage&& other) noexcept
        : data_(other.data_), size_(other.size_), capacity_(other.capacity_) {
        other.data_ = nullptr;
        other.size_ = other.capacity_ = 0;
    }
    plain_storage& operator=(plain_storage&& other) noexcept;
    ~plain_storage() { ::operator delete(data_); }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    void clear() noexcept { size_ = 0; }

protected:
    /// Room for `elements` in all, at least doubled. False when memory is short; then nothing has changed.
    [[nodiscard]] bool grow(std::size_t elements, std::size_t element_bytes) noexcept;
    /// Moves the elements from `at` on to the next place, or the ones after `at` to the one before. There is room.
    void open_gap(std::size_t at, std::size_t element_bytes) noexcept;
    void close_gap(std::size_t at, std::size_t element_bytes) noexcept;

    void* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

/// Values of a trivially copyable type, in order. Moves, does not copy.
template <class T>
    requires std::is_trivially_copyable_v<T>
class plain_vector : public plain_storage {
public:
    [[nodiscard, gnu::always_inline]] T* data() const noexcept { return static_cast<T*>(data_); }
    [[nodiscard, gnu::always_inline]] T* begin() const noexcept { return data(); }
    [[nodiscard, gnu::always_inline]] T* end() const noexcept { return data() + size_; }
    [[nodiscard, gnu::always_inline]] T& operator[](std::size_t at) const noexcept { return data()[at]; }
    [[nodiscard, gnu::always_inline]] T& front() const noexcept { return data()[0]; }
    [[nodiscard, gnu::always_inline]] T& back() const noexcept { return data()[size_ - 1]; }

    /// Room for `elements` in all. False when memory is short.
    [[nodiscard, gnu::always_inline]] bool try_reserve(std::size_t elements) noexcept {
        return elements <= capacity_ || grow(elements, sizeof(T));
    }
    /// False when memory is short; then nothing has changed.
    [[nodiscard, gnu::always_inline]] bool try_push_back(T value) noexcept {
        if (!try_reserve(size_ + 1)) return false;
        data()[size_++] = value;
        return true;
    }
    /// Throws `std::bad_alloc`.
    [[gnu::always_inline]] void push_back(T value) {
        if (!try_push_back(value)) throw std::bad_alloc();
    }
    [[gnu::always_inline]] void pop_back() noexcept { --size_; }

    /// Before the element `at`. False when memory is short; then nothing has changed.
    [[nodiscard]] bool try_insert(std::size_t at, T value) noexcept {
        if (!try_reserve(size_ + 1)) return false;
        this->open_gap(at, sizeof(T));
        data()[at] = value;
        return true;
    }
    [[gnu::always_inline]] void erase(std::size_t at) noexcept { this->close_gap(at, sizeof(T)); }
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/plain_vector.ipp>
#endif
