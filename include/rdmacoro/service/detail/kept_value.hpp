// kept_value and apart_value: a value of any type, kept until its owner ends.
#pragma once

#include <rdmacoro/coro/frame_pool.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// A `T` in memory from the pool of coroutine frames.
template <class T>
struct in_frame_memory {
    template <class... From>
    explicit in_frame_memory(From&&... from) : value(static_cast<From&&>(from)...) {}

    static void* operator new(std::size_t bytes) { return frame_pool::allocate(bytes); }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        frame_pool::deallocate(memory, bytes);
    }
    static void* operator new(std::size_t bytes, std::align_val_t to) { return ::operator new(bytes, to); }
    static void operator delete(void* memory, std::align_val_t to) noexcept { ::operator delete(memory, to); }

    T value;
};

/// A value of any type in such memory, which stays where it is when its owner moves.
class apart_value {
public:
    apart_value() noexcept = default;
    apart_value(apart_value&& other) noexcept : at_(other.at_), end_(std::exchange(other.end_, nullptr)) {}
    apart_value& operator=(apart_value&&) = delete;
    ~apart_value() {
        if (end_ != nullptr) end_(at_);
    }

    /// Keeps `value`. Once.
    template <class T>
    T& keep(T&& value) {
        static_assert(!std::is_reference_v<T>);
        auto* const made = new in_frame_memory<T>(std::move(value));
        at_ = made;
        end_ = [](void* at) noexcept { delete static_cast<in_frame_memory<T>*>(at); };
        return made->value;
    }

private:
    void* at_ = nullptr;
    void (*end_)(void*) noexcept = nullptr;
};

/// The same in one place, and short ones without other memory.
class kept_value {
public:
    kept_value() noexcept {}  // NOLINT: the place has no value yet
    kept_value(const kept_value&) = delete;
    kept_value& operator=(const kept_value&) = delete;
    ~kept_value() { clear(); }

    /// Makes a `T` of `from`, in place of the value before.
    template <class T, class... From>
    T& make(From&&... from) {
        clear();
        if constexpr (sizeof(T) <= sizeof place_ && alignof(T) <= alignof(std::max_align_t)) {
            T* const made = ::new (static_cast<void*>(place_)) T(static_cast<From&&>(from)...);
            if constexpr (!std::is_trivially_destructible_v<T>) {
                at_ = made;
                end_ = [](void* at) noexcept { std::destroy_at(static_cast<T*>(at)); };
            }
            return *made;
        } else {
            auto* const made = new in_frame_memory<T>(static_cast<From&&>(from)...);
            at_ = made;
            end_ = [](void* at) noexcept { delete static_cast<in_frame_memory<T>*>(at); };
            return made->value;
        }
    }
    /// The same of a value that there is.
    template <class T>
    std::remove_cvref_t<T>& keep(T&& value) {
        return make<std::remove_cvref_t<T>>(static_cast<T&&>(value));
    }
    /// Ends the value that it has.
    void clear() noexcept {
        if (end_ != nullptr) std::exchange(end_, nullptr)(at_);
    }

private:
    alignas(std::max_align_t) std::byte place_[64];
    void* at_;  // set while there is an `end_`
    void (*end_)(void*) noexcept = nullptr;
};

}  // namespace rdmacoro::detail
