// The error category of the toolkit, the exception that `co_await` throws, and the code each operation can end with.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

namespace rdmacoro {

/// Everything an operation can end with besides a value. One category for all rooms and transports; codes of the
/// operating system travel as `std::system_category` codes beside these.
enum class errc {
    ok = 0,
    canceled,            ///< its stop token asked for it, or its owner was stopped
    timed_out,           ///< the duration given to `timeout` went by
    closed,              ///< this side closed the link, or the peer did in good order
    peer_lost,           ///< the peer died or the network cut the link
    protocol_violation,  ///< the peer sent what the protocol forbids; the link is ended
    truncated,           ///< the message was longer than the receive buffer; the message is consumed
    peer_canceled,       ///< the sender gave up in mid-message
    message_too_long,    ///< longer than the link or the protocol list can carry
    version_mismatch,    ///< the peer speaks another version of the wire protocol
    protocol_mismatch,   ///< the peer was compiled with another protocol list
    address_in_use,      ///< somebody listens there already
    address_invalid,     ///< not an address of this transport
    connection_refused,  ///< nobody listens there
    permission_denied,   ///< the peer is another user's process, or the system forbids the call
    bad_key,             ///< a remote key that names no region, or one no longer registered
    out_of_bounds,       ///< a get or put past the end of its region
    access_denied,       ///< the region does not carry the right that was asked of it
    no_resources,        ///< memory, descriptors or a limit of the system ran out
    unsupported,         ///< this transport, kernel or device cannot do it
    invalid_argument,    ///< the caller broke a stated precondition that could be checked
};

}  // namespace rdmacoro

template <>
struct std::is_error_code_enum<rdmacoro::errc> : std::true_type {};

namespace rdmacoro {

/// The category of `errc`; its name is "rdmacoro".
[[nodiscard]] inline const std::error_category& error_category() noexcept;

/// `errc::ok` is the code that means no error, as every category has it: a success compares equal to it.
[[nodiscard]] inline std::error_code make_error_code(errc code) noexcept {
    if (code == errc::ok) return {};
    return {static_cast<int>(code), error_category()};
}

/// One sentence for a person, without the code's own name.
[[nodiscard]] inline const char* describe(errc code) noexcept {
    switch (code) {
        case errc::ok: return "success";
        case errc::canceled: return "the operation was canceled";
        case errc::timed_out: return "the operation did not end in the time it was given";
        case errc::closed: return "the link is closed";
        case errc::peer_lost: return "the peer is gone: its process died or the network cut the link";
        case errc::protocol_violation:
            return "the peer sent something the protocol forbids; the link was ended";
        case errc::truncated: return "the message is longer than the receive buffer; it was consumed";
        case errc::peer_canceled: return "the sender canceled the message before all of it was sent";
        case errc::message_too_long: return "the message is longer than the link can carry";
        case errc::version_mismatch: return "the peer speaks another version of the wire protocol";
        case errc::protocol_mismatch: return "the peer was built with another protocol list";
        case errc::address_in_use: return "another listener has this address";
        case errc::address_invalid: return "this is not an address of the transport";
        case errc::connection_refused: return "nobody listens at this address";
        case errc::permission_denied: return "permission denied";
        case errc::bad_key: return "the remote key names no registered region";
        case errc::out_of_bounds: return "the access goes past the end of the remote region";
        case errc::access_denied: return "the remote region does not grant this access";
        case errc::no_resources: return "a limit of the system is reached";
        case errc::unsupported: return "not supported here";
        case errc::invalid_argument: return "invalid argument";
    }
    return "unknown error";
}

namespace detail {
class error_category_type final : public std::error_category {
public:
    const char* name() const noexcept override { return "rdmacoro"; }
    std::string message(int value) const override { return describe(static_cast<errc>(value)); }
};
}  // namespace detail

inline const std::error_category& error_category() noexcept {
    static const detail::error_category_type category;
    return category;
}

/// What `co_await` throws. `code()` compares with `errc`; `what()` adds the context it was given, such as an address.
class error : public std::system_error {
public:
    explicit error(errc code) : std::system_error(make_error_code(code)) {}
    error(errc code, const std::string& context) : std::system_error(make_error_code(code), context) {}
    explicit error(std::error_code code) : std::system_error(code) {}
    error(std::error_code code, const std::string& context) : std::system_error(code, context) {}
    error(std::error_code code, std::uint64_t info) : std::system_error(code), info_(info) {}

    /// A number that belongs to the code, or 0. For `errc::truncated`: the message's true length in bytes.
    [[nodiscard]] std::uint64_t info() const noexcept { return info_; }

private:
    std::uint64_t info_ = 0;
};

namespace detail {
/// An error code in the making: what `std::error_code` says, but a trivial zero when there is none. The standard one asks a
/// library function for its category each time it is made, also on the path where nothing failed.
struct status {
    int value = 0;
    const std::error_category* category = nullptr;

    constexpr status() noexcept = default;
    status(errc code) noexcept
        : value(static_cast<int>(code)), category(code == errc::ok ? nullptr : &error_category()) {}
    status(std::error_code code) noexcept
        : value(code.value()), category(code ? &code.category() : nullptr) {}

    [[nodiscard]] explicit operator bool() const noexcept { return category != nullptr; }
    operator std::error_code() const noexcept {
        return category != nullptr ? std::error_code(value, *category) : std::error_code();
    }
};

/// Out of line so that the throw does not weigh on the hot functions that call it.
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_error(std::error_code code, std::uint64_t info = 0) {
    throw error(code, info);
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_error(errc code) { throw error(code); }
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_error(errc code, const std::string& context) {
    throw error(code, context);
}
/// Ends the process after a line on stderr: for broken preconditions that must not be survived.
[[noreturn, gnu::cold, gnu::noinline]] inline void fatal(const char* what) noexcept {
    std::fprintf(stderr, "rdmacoro: %s\n", what);
    std::abort();
}
}  // namespace detail
}  // namespace rdmacoro
