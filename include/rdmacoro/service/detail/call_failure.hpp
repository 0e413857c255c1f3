// The failure of a call, on its way to the caller and as the error that the caller gets.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/service/call_error.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/method.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>

namespace rdmacoro {
class call_context;
}

namespace rdmacoro::detail {

/// Whether there is such a `call_errc`.
[[nodiscard]] constexpr bool is_call_error(std::int32_t number) noexcept {
    return number >= 1 && number <= static_cast<std::int32_t>(call_errc::reader_left);
}

/// Why a call could not end with a value, as it travels.
class call_failure {
public:
    /// Of a failed check.
    void set(call_errc code, std::string_view text = {}) noexcept;
    void set(errc code, std::string_view text) noexcept;
    /// Of the exception that is being handled. `of`: the call that it left.
    void set_current(const call_context& of) noexcept;

    [[nodiscard]] explicit operator bool() const noexcept {
        return head_.outcome != static_cast<std::uint32_t>(outcome_kind::value);
    }
    /// The whole answer.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
        return std::as_bytes(std::span(this, 1)).first(sizeof head_ + length_);
    }

private:
    void set(outcome_kind kind, int code, std::string_view text) noexcept;

    answer_head head_{};
    char text_[longest_error_text];
    std::size_t length_ = 0;
};

/// Throws what the peer answered to a call of `of`: `head`, and the text that follows it.
[[noreturn]] RDMACORO_DECL void throw_answer(const method_facts& of, std::span<const std::byte> answer);
/// Throws `call_errc::malformed_answer`.
[[noreturn]] RDMACORO_DECL void throw_malformed_answer(const method_facts& of, const char* why);
/// Throws the error of a call's message.
[[noreturn]] RDMACORO_DECL void throw_call_failure(const method_facts& of, const std::error_code& code,
                                                   const error_facts& facts);
/// The error of a call where `what` was to be received into a buffer that the link lends.
[[nodiscard]] RDMACORO_DECL error lent_failure(const method_facts& of, const char* what,
                                               const std::error_code& code, const error_facts& facts);
/// The call has no connection to be sent over: throws the error of that again, with the method in its text.
[[noreturn]] RDMACORO_DECL void throw_call_unsent(const method_facts& of, const error& why);
/// Throws unless an answer to `of` has a value.
inline void check_answer(const method_facts& of, std::span<const std::byte> answer) {
    answer_head head;
    if (answer.size() < sizeof head) [[unlikely]]
        throw_malformed_answer(of, "an answer without a head");
    std::memcpy(&head, answer.data(), sizeof head);
    if (head.outcome != static_cast<std::uint32_t>(outcome_kind::value)) [[unlikely]]
        throw_answer(of, answer);
}

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/calls_base.hpp>
#endif
