// The error category of the toolkit, the exception that `co_await` throws, and the code each operation can end with.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstdint>
#include <string>
#include <system_error>

namespace rdmacoro {

/// Errors an operation can end with. One category for all rooms and transports; errors of the operating system are
/// reported as codes of `std::system_category`.
enum class errc {
    ok = 0,
    canceled,            ///< its stop token was stopped
    timed_out,           ///< the duration given to `timeout` has passed
    closed,              ///< the link was closed in good order, by this side or the peer
    peer_lost,           ///< the peer died or ended the link without closing it, or the network lost it
    protocol_violation,  ///< the peer sent a message that the protocol forbids; the link is ended
    truncated,           ///< the message was longer than the receive buffer; the message is consumed
    peer_canceled,       ///< the sender canceled the message before it was sent completely
    message_too_long,    ///< longer than the link or the protocol list can carry
    version_mismatch,    ///< the peer speaks another version of the wire protocol
    protocol_mismatch,   ///< the peer was compiled with another protocol list
    address_in_use,      ///< another listener has this address
    address_invalid,     ///< not an address of this transport
    connection_refused,  ///< no listener has this address
    permission_denied,   ///< the peer is another user's process, or the system forbids the call
    bad_key,             ///< a remote key that names no region, or one no longer registered
    out_of_bounds,       ///< a get or put beyond the end of its region
    access_denied,       ///< the region does not grant the access
    no_resources,        ///< memory, descriptors or a limit of the system ran out
    unsupported,         ///< this transport, kernel or device cannot do it
    invalid_argument,    ///< the caller broke a stated precondition that could be checked
};

}  // namespace rdmacoro

template <>
struct std::is_error_code_enum<rdmacoro::errc> : std::true_type {};

namespace rdmacoro {

/// The category of `errc`; its name is "rdmacoro".
[[nodiscard]] RDMACORO_DECL const std::error_category& error_category() noexcept;

/// `errc::ok` is the code that means no error, as every category has it: a success compares equal to it.
[[nodiscard]] RDMACORO_DECL std::error_code make_error_code(errc code) noexcept;

/// One sentence for a person, without the code's own name.
[[nodiscard]] RDMACORO_DECL const char* describe(errc code) noexcept;

/// The subject of an error in numbers, as far as they are known: of sends, receives and probes, and of `timeout` around them.
struct error_facts {
    static constexpr std::uint32_t no_peer = 0xffffffff;  ///< `peer`: none, or any

    std::uint64_t info =
        0;  ///< a number that belongs to the code; for `errc::truncated` the message's true length in bytes, for a send's `errc::canceled` 1 where the peer gets nothing of it
    std::uint64_t bytes = 0;  ///< length of the operation's memory: what it sends, or has room for
    std::uint64_t tag =
        0;  ///< the tag that it was sent with, or that was asked for; of `errc::truncated` the message's
    std::uint64_t tag_mask = 0;    ///< which bits of the tag count; 0: any tag
    std::uint32_t peer = no_peer;  ///< its number within the mailbox; 0 at an endpoint
};

/// Thrown by `co_await`. `code()` compares with `errc`; `what()` adds the context: an address, or the operation with its peer, tag
/// and lengths.
class error : public std::system_error {
public:
    /// An error of the toolkit's.
    explicit error(errc code);
    /// `context` begins the text of `what()`.
    error(errc code, const char* context);
    /// `context` begins the text of `what()`.
    error(errc code, const std::string& context) : error(code, context.c_str()) {}
    /// An error of any category.
    explicit error(std::error_code code);
    /// `context` begins the text of `what()`.
    error(std::error_code code, const char* context);
    /// `context` begins the text of `what()`.
    error(std::error_code code, const std::string& context) : error(code, context.c_str()) {}
    /// With a number that belongs to the error: see `info`.
    error(std::error_code code, std::uint64_t info);
    /// With more of them.
    error(std::error_code code, const error_facts& facts);
    /// The same with text before it.
    error(std::error_code code, const std::string& context, const error_facts& facts);
    error(const error&) = default;
    error& operator=(const error&) = default;
    RDMACORO_DECL ~error() override;

    /// A number that belongs to the code, or 0. For `errc::truncated`: the message's true length in bytes.
    [[nodiscard]] std::uint64_t info() const noexcept { return facts_.info; }
    /// The subject in numbers.
    [[nodiscard]] const error_facts& facts() const noexcept { return facts_; }
    /// The part of `what()` before the code's own text: the operation, its peer, tag and lengths, or an address.
    [[nodiscard]] std::string context() const;

private:
    error_facts facts_{};
};

namespace detail {
/// As `std::error_code`, but all zero when there is no error. The standard one calls a library function for its category
/// each time it is constructed, also where nothing failed.
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

// Out of line: a throw makes the hot functions that it stands in larger.
[[noreturn, gnu::cold]] void throw_error(std::error_code code, const error_facts& facts = {});
[[noreturn, gnu::cold]] void throw_error(errc code);
[[noreturn, gnu::cold]] void throw_error(errc code, const char* context);
[[noreturn, gnu::cold]] inline void throw_error(errc code, const std::string& context) {
    throw_error(code, context.c_str());
}
/// Ends the process after a line on stderr: for broken preconditions after which no operation is safe. A second line says when an exception
/// was under way: its text is lost.
[[noreturn, gnu::cold]] void fatal(const char* reason) noexcept;
}  // namespace detail
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/error.ipp>
#endif
