// How something ended: a value, or the exception it threw.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace rdmacoro::detail {

/// Empty, a `T`, or an exception.
template <class T>
class outcome {
public:
    template <class U>
    void set(U&& value) {
        value_.emplace(static_cast<U&&>(value));
    }
    void fail(std::exception_ptr failure) noexcept { failure_ = std::move(failure); }
    [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }

    /// The value, or throws. Once.
    T take() {
        if (failure_) std::rethrow_exception(std::exchange(failure_, {}));
        return *std::move(value_);
    }

private:
    std::optional<T> value_;
    std::exception_ptr failure_;
};

template <class T>
class outcome<T&> {
public:
    void set(T& value) noexcept { value_ = std::addressof(value); }
    void fail(std::exception_ptr failure) noexcept { failure_ = std::move(failure); }
    [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }
    T& take() {
        if (failure_) std::rethrow_exception(std::exchange(failure_, {}));
        return *value_;
    }

private:
    T* value_ = nullptr;
    std::exception_ptr failure_;
};

template <>
class outcome<void> {
public:
    void fail(std::exception_ptr failure) noexcept { failure_ = std::move(failure); }
    [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }
    void take() {
        if (failure_) std::rethrow_exception(std::exchange(failure_, {}));
    }

private:
    std::exception_ptr failure_;
};

}  // namespace rdmacoro::detail
