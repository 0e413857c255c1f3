// result<T>: a value or an error code, given by `co_await as_result(op)` instead of throwing.
#pragma once

#include <rdmacoro/coro/detail/maybe.hpp>
#include <rdmacoro/coro/error.hpp>

#include <type_traits>
#include <utility>

namespace rdmacoro {

namespace detail {
/// What a result takes for an error: as its value it could not be told from one.
template <class T>
inline constexpr bool is_result_error =
    std::is_same_v<T, std::error_code> || std::is_same_v<T, errc> || std::is_same_v<T, status>;
struct no_result_value;
}  // namespace detail

/// A value of type `T`, or the `std::error_code` of its failure. Allocates nothing.
template <class T = void>
class [[nodiscard]] result {
    static_assert(!detail::is_result_error<T>,
                  "a result of an error code would not tell it from an error; put it in a struct");
    using given = std::conditional_t<detail::is_result_error<T>, detail::no_result_value*, T>;

public:
    using value_type = T;

    /// A value.
    [[gnu::always_inline]] result(given value) : value_(std::move(value)) {}
    /// An error.
    [[gnu::always_inline]] result(std::error_code code) noexcept : code_(code) {}
    [[gnu::always_inline]] result(detail::status code) noexcept : code_(code) {}
    /// An error of the toolkit's.
    [[gnu::always_inline]] result(errc code) noexcept : code_(code) {}
    [[gnu::always_inline]] result(detail::status code, std::uint64_t info) noexcept : code_(code) {
        facts_.info = info;
    }
    [[gnu::always_inline]] result(detail::status code, const error_facts& facts) noexcept
        : code_(code), facts_(facts) {}

    /// Whether there is a value and not an error.
    [[nodiscard, gnu::always_inline]] bool has_value() const noexcept { return value_.has_value(); }
    [[nodiscard, gnu::always_inline]] explicit operator bool() const noexcept { return has_value(); }

    /// The error; compares equal to `errc::ok`'s zero when there is a value.
    [[nodiscard, gnu::always_inline]] std::error_code error() const noexcept { return code_; }
    /// A number that belongs to the error, as `rdmacoro::error::info`.
    [[nodiscard, gnu::always_inline]] std::uint64_t info() const noexcept { return facts_.info; }
    /// The error's subject in numbers, as `rdmacoro::error::facts`.
    [[nodiscard, gnu::always_inline]] const error_facts& facts() const noexcept { return facts_; }
    /// For operations: an error that was made without them gets its numbers.
    void set_facts(const error_facts& facts) noexcept { facts_ = facts; }

    /// The value. Throws `rdmacoro::error` when there is none.
    T& value() & {
        check();
        return *value_;
    }
    /// As `value() &`.
    T&& value() && {
        check();
        return std::move(*value_);
    }
    /// As `value() &`.
    const T& value() const& {
        check();
        return *value_;
    }

    /// The value; there must be one.
    [[gnu::always_inline]] T& operator*() & noexcept { return *value_; }
    /// The value. Precondition: there is one.
    [[gnu::always_inline]] const T& operator*() const& noexcept { return *value_; }
    /// The value. Precondition: there is one.
    [[gnu::always_inline]] T&& operator*() && noexcept { return std::move(*value_); }
    /// The value. Precondition: there is one.
    [[gnu::always_inline]] T* operator->() noexcept { return __builtin_addressof(*value_); }
    /// The value. Precondition: there is one.
    [[gnu::always_inline]] const T* operator->() const noexcept { return __builtin_addressof(*value_); }

private:
    void check() const {
        if (!value_) detail::throw_error(code_, facts_);
    }

    detail::maybe<T> value_;
    detail::status code_{};
    error_facts facts_{};
};

/// The same without a value: success, or an error.
template <>
class [[nodiscard]] result<void> {
public:
    using value_type = void;

    result() noexcept = default;
    /// An error.
    [[gnu::always_inline]] result(std::error_code code) noexcept : code_(code) {}
    [[gnu::always_inline]] result(detail::status code) noexcept : code_(code) {}
    /// An error of the toolkit's.
    [[gnu::always_inline]] result(errc code) noexcept : code_(code) {}
    [[gnu::always_inline]] result(detail::status code, std::uint64_t info) noexcept : code_(code) {
        facts_.info = info;
    }
    [[gnu::always_inline]] result(detail::status code, const error_facts& facts) noexcept
        : code_(code), facts_(facts) {}

    /// Whether there is a value and not an error.
    [[nodiscard, gnu::always_inline]] bool has_value() const noexcept { return !code_; }
    [[nodiscard, gnu::always_inline]] explicit operator bool() const noexcept { return has_value(); }
    /// The error; compares equal to `errc::ok`'s zero on success.
    [[nodiscard, gnu::always_inline]] std::error_code error() const noexcept { return code_; }
    /// A number that belongs to the error, as `rdmacoro::error::info`.
    [[nodiscard, gnu::always_inline]] std::uint64_t info() const noexcept { return facts_.info; }
    /// The error's subject in numbers, as `rdmacoro::error::facts`.
    [[nodiscard, gnu::always_inline]] const error_facts& facts() const noexcept { return facts_; }
    /// For operations: an error that was made without them gets its numbers.
    void set_facts(const error_facts& facts) noexcept { facts_ = facts; }

    /// Throws `rdmacoro::error` when there is an error.
    void value() const {
        if (code_) detail::throw_error(code_, facts_);
    }

private:
    detail::status code_{};
    error_facts facts_{};
};

}  // namespace rdmacoro
