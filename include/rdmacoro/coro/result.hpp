// result<T>: a value or an error code, what `co_await as_result(op)` gives instead of throwing.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <optional>

namespace rdmacoro {

/// A value of type `T`, or the `std::error_code` it failed with. Small and without allocation.
template <class T = void>
class [[nodiscard]] result {
public:
    using value_type = T;

    result(T value) : value_(std::move(value)) {}
    result(std::error_code code) noexcept : code_(code) {}
    result(detail::status code) noexcept : code_(code) {}
    result(errc code) noexcept : code_(code) {}
    result(detail::status code, std::uint64_t info) noexcept : code_(code), info_(info) {}

    [[nodiscard]] bool has_value() const noexcept { return value_.has_value(); }
    [[nodiscard]] explicit operator bool() const noexcept { return has_value(); }

    /// The error; compares equal to `errc::ok`'s zero when there is a value.
    [[nodiscard]] std::error_code error() const noexcept { return code_; }
    /// As `rdmacoro::error::info`: a number that belongs to the error.
    [[nodiscard]] std::uint64_t info() const noexcept { return info_; }

    /// The value. Throws `rdmacoro::error` when there is none.
    T& value() & {
        check();
        return *value_;
    }
    T&& value() && {
        check();
        return std::move(*value_);
    }
    const T& value() const& {
        check();
        return *value_;
    }

    /// The value; there must be one.
    T& operator*() & noexcept { return *value_; }
    const T& operator*() const& noexcept { return *value_; }
    T&& operator*() && noexcept { return std::move(*value_); }
    T* operator->() noexcept { return &*value_; }
    const T* operator->() const noexcept { return &*value_; }

private:
    void check() const {
        if (!value_) detail::throw_error(code_, info_);
    }

    std::optional<T> value_;
    detail::status code_{};
    std::uint64_t info_ = 0;
};

template <>
class [[nodiscard]] result<void> {
public:
    using value_type = void;

    result() noexcept = default;
    result(std::error_code code) noexcept : code_(code) {}
    result(detail::status code) noexcept : code_(code) {}
    result(errc code) noexcept : code_(code) {}
    result(detail::status code, std::uint64_t info) noexcept : code_(code), info_(info) {}

    [[nodiscard]] bool has_value() const noexcept { return !code_; }
    [[nodiscard]] explicit operator bool() const noexcept { return has_value(); }
    [[nodiscard]] std::error_code error() const noexcept { return code_; }
    /// As `rdmacoro::error::info`: a number that belongs to the error.
    [[nodiscard]] std::uint64_t info() const noexcept { return info_; }

    /// Throws `rdmacoro::error` when there is an error.
    void value() const {
        if (code_) detail::throw_error(code_, info_);
    }

private:
    detail::status code_{};
    std::uint64_t info_ = 0;
};

}  // namespace rdmacoro
