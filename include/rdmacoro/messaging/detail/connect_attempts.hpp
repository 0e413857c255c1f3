// When to try again to connect, and what to say in the end.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace rdmacoro::detail {

/// Whether an attempt to connect that failed so may succeed a while later: the listener, or room for a link, may come, and so may a network, of
/// which an interface is down or a route is missing.
[[nodiscard]] bool may_connect_later(const std::error_code& why) noexcept;

/// The attempts of one `connect`: from their beginning, for a limited time.
class connect_attempts {
public:
    /// `address` spreads the attempts of several clients, and is named by the error.
    connect_attempts(std::string_view address, duration limit, time_point now);

    /// The time left.
    [[nodiscard]] duration left(time_point now) const noexcept { return until_ - now; }
    /// An attempt has failed. False: not for a reason that may pass.
    [[nodiscard]] bool failed(const std::system_error& why);
    /// The time until the next attempt: twice as long each time, and somewhere in the second half of that.
    [[nodiscard]] duration pause(time_point now) noexcept;
    /// Throws the last error of an attempt that said why. The text has the address, and the number of attempts.
    [[noreturn]] void give_up() const;

private:
    static constexpr duration first_pause = std::chrono::milliseconds(1);
    static constexpr duration longest_pause = std::chrono::milliseconds(250);

    time_point until_;
    duration limit_;
    duration pause_ = first_pause;
    std::uint64_t random_;
    std::uint64_t count_ = 0;
    std::error_code code_;
    std::string address_;
    std::string text_;  // of the last attempt that said why
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/messaging/detail/impl/connect_attempts.ipp>
#endif
