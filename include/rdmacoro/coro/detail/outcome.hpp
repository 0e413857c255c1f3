// outcome<T>: how an awaited object ended, by a value or an exception.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/detail/maybe.hpp>

#include <exception>
#include <utility>

namespace rdmacoro::detail {

/// The exception of an outcome, if any.
class outcome_base {
public:
    void fail(std::exception_ptr failure) noexcept { failure_ = std::move(failure); }
    [[nodiscard]] const std::exception_ptr& failure() const noexcept { return failure_; }

protected:
    /// Throws the exception. Once.
    void check();

private:
    std::exception_ptr failure_;
};

/// Empty, a `T`, or an exception.
template <class T>
class outcome : public outcome_base {
public:
    template <class U>
    [[gnu::always_inline]] void set(U&& value) {
        value_.emplace(static_cast<U&&>(value));
    }

    /// The value, or throws. Once.
    [[gnu::always_inline]] T take() {
        check();
        return *std::move(value_);
    }

private:
    maybe<T> value_;
};

template <class T>
class outcome<T&> : public outcome_base {
public:
    void set(T& value) noexcept { value_ = __builtin_addressof(value); }
    T& take() {
        check();
        return *value_;
    }

private:
    T* value_ = nullptr;
};

template <>
class outcome<void> : public outcome_base {
public:
    void take() { check(); }
};

/// `errc::canceled` as an exception that was caught.
[[nodiscard]] RDMACORO_DECL std::exception_ptr canceled_exception() noexcept;

/// Whether an exception is a `std::system_error` with `errc::canceled`.
[[nodiscard]] RDMACORO_DECL bool is_canceled(const std::exception_ptr& failure) noexcept;

/// Writes one line to stderr about an exception that is dropped unseen. `where`: what dropped it, and what would have seen it.
RDMACORO_DECL void report_dropped(const char* where, const std::exception_ptr& failure) noexcept;

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/detail/impl/outcome.ipp>
#endif
