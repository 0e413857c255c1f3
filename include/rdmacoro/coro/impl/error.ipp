// Error texts, the category, and the throwing functions.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace rdmacoro {

RDMACORO_COLD const char* describe(errc code) noexcept {
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
        case errc::message_too_long:
            return "the message is longer than the link or its protocol list can carry";
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

RDMACORO_COLD const std::error_category& error_category() noexcept {
    static const detail::error_category_type category;
    return category;
}

RDMACORO_COLD std::error_code make_error_code(errc code) noexcept {
    if (code == errc::ok) return {};
    return {static_cast<int>(code), error_category()};
}

RDMACORO_COLD error::error(errc code) : std::system_error(make_error_code(code)) {}
RDMACORO_COLD error::error(errc code, const char* context) : error(make_error_code(code), context) {}
RDMACORO_COLD error::error(std::error_code code) : std::system_error(code) {}
RDMACORO_COLD error::error(std::error_code code, const char* context)
    : std::system_error(code, std::string(context)) {}
RDMACORO_COLD error::error(std::error_code code, std::uint64_t info) : std::system_error(code) {
    facts_.info = info;
}
RDMACORO_COLD error::error(std::error_code code, const error_facts& facts)
    : std::system_error(code), facts_(facts) {}
RDMACORO_COLD error::error(std::error_code code, const std::string& context, const error_facts& facts)
    : std::system_error(code, context), facts_(facts) {}
RDMACORO_COLD std::string error::context() const {
    std::string text = what();
    const std::string own = code().message();
    if (text.size() < own.size() + 2) return {};  // ": " between the two
    return text.substr(0, text.size() - own.size() - 2);
}
RDMACORO_COLD error::~error() = default;

namespace detail {

[[gnu::noinline]] RDMACORO_DECL void throw_error(std::error_code code, const error_facts& facts) {
    throw error(code, facts);
}
[[gnu::noinline]] RDMACORO_DECL void throw_error(errc code) { throw error(code); }
[[gnu::noinline]] RDMACORO_DECL void throw_error(errc code, const char* context) {
    throw error(code, context);
}

[[gnu::noinline]] RDMACORO_DECL void fatal(const char* reason) noexcept {
    std::fprintf(stderr, "rdmacoro: %s\n", reason);
    if (std::uncaught_exceptions() != 0)
        std::fputs("rdmacoro: an exception was on its way; catch it in the scope that it leaves, to see what "
                   "it says\n",
                   stderr);
    std::abort();
}

}  // namespace detail
}  // namespace rdmacoro
