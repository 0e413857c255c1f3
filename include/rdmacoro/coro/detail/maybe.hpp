// A value or none: std::optional's job with a fraction of the code in each unit.
#pragma once

#include <new>
#include <type_traits>

namespace rdmacoro::detail {

/// Empty, or a `T` in place. Copies and moves as `T` does, trivially where `T` does.
template <class T>
class maybe {
    static constexpr bool trivial = std::is_trivially_copyable_v<T>;

public:
    [[gnu::always_inline]] maybe() noexcept {}
    [[gnu::always_inline]] explicit maybe(T&& value) : full_(true) {
        ::new (address()) T(static_cast<T&&>(value));
    }
    [[gnu::always_inline]] explicit maybe(const T& value) : full_(true) { ::new (address()) T(value); }

    maybe(const maybe&)
        requires trivial
    = default;
    maybe(maybe&&)
        requires trivial
    = default;
    maybe& operator=(const maybe&)
        requires trivial
    = default;
    maybe& operator=(maybe&&)
        requires trivial
    = default;
    ~maybe()
        requires trivial
    = default;

    maybe(const maybe& other)
        requires(!trivial && std::is_copy_constructible_v<T>)
    {
        if (other.full_) emplace(other.value_);
    }
    maybe(maybe&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
        requires(!trivial)
    {
        if (other.full_) emplace(static_cast<T&&>(other.value_));
    }
    maybe& operator=(const maybe& other)
        requires(!trivial && std::is_copy_constructible_v<T>)
    {
        if (this == &other) return *this;
        reset();
        if (other.full_) emplace(other.value_);
        return *this;
    }
    maybe& operator=(maybe&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
        requires(!trivial)
    {
        if (this == &other) return *this;
        reset();
        if (other.full_) emplace(static_cast<T&&>(other.value_));
        return *this;
    }
    ~maybe()
        requires(!trivial)
    {
        reset();
    }

    /// Makes the value from `from`, in place of a former one.
    template <class... From>
    void emplace(From&&... from) {
        reset();
        if constexpr (std::is_arithmetic_v<T> && sizeof...(From) == 1) {
            ::new (address()) T(
                static_cast<T>(from)...);  // `co_return 0` of a task<std::size_t>: no warning in this header
        } else {
            ::new (address()) T(static_cast<From&&>(from)...);
        }
        full_ = true;
    }
    void reset() noexcept {
        if (!full_) return;
        full_ = false;
        if constexpr (!std::is_trivially_destructible_v<T>) destroy();
    }

    [[nodiscard, gnu::always_inline]] bool has_value() const noexcept { return full_; }
    [[nodiscard, gnu::always_inline]] explicit operator bool() const noexcept { return full_; }

    // Precondition of the rest: there is a value.

    [[nodiscard, gnu::always_inline]] T& operator*() & noexcept { return value_; }
    [[nodiscard, gnu::always_inline]] const T& operator*() const& noexcept { return value_; }
    [[nodiscard, gnu::always_inline]] T&& operator*() && noexcept { return static_cast<T&&>(value_); }
    [[nodiscard, gnu::always_inline]] T* operator->() noexcept { return __builtin_addressof(value_); }
    [[nodiscard, gnu::always_inline]] const T* operator->() const noexcept {
        return __builtin_addressof(value_);
    }

private:
    /// Not inline: g++ 12 does not see that `full_` guards the value, and warns that it may be uninitialized.
    [[gnu::noinline]] void destroy() noexcept { value_.~T(); }
    [[gnu::always_inline]] void* address() noexcept { return __builtin_addressof(value_); }

    union {
        T value_;
    };
    bool full_ = false;
};

}  // namespace rdmacoro::detail
