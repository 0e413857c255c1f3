// The errors of calls: what a peer answered instead of a value.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>

#include <chrono>
#include <cstdint>
#include <system_error>

namespace rdmacoro {

/// How a call can end besides the errors of its messages and codes that a handler threw: of `errc`, `std::system_category` and
/// `std::generic_category`.
enum class call_errc {
    handler_failed =
        1,  ///< the handler ended by an exception without a code, or with one of another category; the error's text is the exception's
    unknown_method,      ///< the peer has no service with such a method
    signature_mismatch,  ///< the peer's method of that name has other types
    malformed_request,   ///< the peer could not read the arguments
    malformed_answer,    ///< what the peer answered is no value of the method's type
    expired,             ///< the call's time was over before its handler had ended
    stopped,             ///< the service ends, or the handler ended because it was asked to stop
    reader_left,         ///< the handler has ended before the stream that its caller writes
};

}  // namespace rdmacoro

template <>
struct std::is_error_code_enum<rdmacoro::call_errc> : std::true_type {};

namespace rdmacoro {

/// The category of `call_errc`; its name is "rdmacoro.call".
[[nodiscard]] RDMACORO_DECL const std::error_category& call_category() noexcept;

/// For `std::error_code`'s constructor and comparisons.
[[nodiscard]] inline std::error_code make_error_code(call_errc code) noexcept {
    return {static_cast<int>(code), call_category()};
}

namespace detail {
/// `error::info()` of what a peer has answered.
inline constexpr std::uint64_t answered_info = 0x616e737765726564;
/// The same where the service itself has answered that the time of this call is over: no handler has ended by `call_errc::expired`.
inline constexpr std::uint64_t expired_info = answered_info + 1;

/// Called in a handler of `ended`, by which a call with this limit has ended: throws it again, or `errc::timed_out` where the peer was the first
/// to say that the time is over.
[[noreturn]] void rethrow_within(const error& ended, std::chrono::nanoseconds limit);
}  // namespace detail

/// Whether a call has ended by what its peer answered: its handler has ended by this error, or its service has not taken the request. False: by
/// what its own messages met. `errc::peer_lost` is the loss of the call's peer then; in an answer it is one that the handler has met.
[[nodiscard]] bool was_answered(const error& failed) noexcept;

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/call_error.ipp>
#endif
