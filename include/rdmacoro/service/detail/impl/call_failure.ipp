// Bodies of detail/call_failure.hpp.
#pragma once

#include <rdmacoro/service/detail/call_failure.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>

#include <algorithm>
#include <exception>
#include <new>
#include <string>

namespace rdmacoro::detail {

RDMACORO_COLD void call_failure::set(outcome_kind kind, int code, std::string_view text) noexcept {
    head_ = {static_cast<std::uint32_t>(kind), code};
    length_ = std::min(text.size(), sizeof text_);
    if (length_ != 0) std::memcpy(text_, text.data(), length_);
}
RDMACORO_COLD void call_failure::set(call_errc code, std::string_view text) noexcept {
    set(outcome_kind::call_error, static_cast<int>(code), text);
}

RDMACORO_COLD void call_failure::set(errc code, std::string_view text) noexcept {
    set(outcome_kind::toolkit_error, static_cast<int>(code), text);
}

RDMACORO_COLD void call_failure::set_current(const call_context& of) noexcept {
    try {
        throw;
    } catch (const std::system_error& failed) {
        const std::error_code code = failed.code();
        if (code == errc::canceled || code == errc::timed_out) {  // the handler's own are its errors
            if (of.remaining() == duration::zero()) return set(call_errc::expired);
            if (of.canceled() || of.over_.stopping()) return set(call_errc::stopped);
        }
        std::string text;
        try {
            text = failed.what();
        } catch (const std::bad_alloc&) {  // then without text
        }
        if (!code) return set(call_errc::handler_failed, text);  // an exception without a code, as others
        if (code.category() == error_category()) return set(outcome_kind::toolkit_error, code.value(), text);
        if (code.category() == call_category() && is_call_error(code.value()))
            return set(outcome_kind::call_error, code.value(), text);
        if (code.category() == std::system_category())
            return set(outcome_kind::system_error, code.value(), text);
        if (code.category() == std::generic_category())
            return set(outcome_kind::generic_error, code.value(), text);
        set(call_errc::handler_failed, text);
    } catch (const std::exception& failed) {
        set(call_errc::handler_failed, failed.what());
    } catch (...) {
        set(call_errc::handler_failed, "an exception of another type");
    }
}

RDMACORO_COLD void throw_answer(const method_facts& of, std::span<const std::byte> answer) {
    answer_head head{};
    std::memcpy(&head, answer.data(), sizeof head);
    std::string text = "call of " + std::string(of.name);
    const auto said = answer.subspan(sizeof head);
    if (!said.empty()) text += ", which answered: ";
    for (const std::byte one : said.first(std::min(said.size(), longest_error_text))) {
        const auto c = static_cast<unsigned char>(one);
        text += c < 0x20 || c == 0x7f ? '?' : static_cast<char>(c);
    }
    const bool none = head.code == 0;  // no error's code
    error_facts facts;
    facts.info = answered_info;
    switch (none ? outcome_kind::value : static_cast<outcome_kind>(head.outcome)) {
        case outcome_kind::call_error:
            if (!is_call_error(head.code)) break;
            if (head.code == static_cast<int>(call_errc::expired) && said.empty()) facts.info = expired_info;
            throw error(std::error_code(head.code, call_category()), text, facts);
        case outcome_kind::toolkit_error:
            throw error(std::error_code(head.code, error_category()), text, facts);
        case outcome_kind::system_error:
            throw error(std::error_code(head.code, std::system_category()), text, facts);
        case outcome_kind::generic_error:
            throw error(std::error_code(head.code, std::generic_category()), text, facts);
        default: break;
    }
    throw_malformed_answer(of, "an outcome that does not exist");
}

RDMACORO_COLD void throw_malformed_answer(const method_facts& of, const char* why) {
    throw error(make_error_code(call_errc::malformed_answer), "call of " + std::string(of.name) + ": " + why);
}

RDMACORO_COLD void throw_call_failure(const method_facts& of, const std::error_code& code,
                                      const error_facts& facts) {
    throw error(code, "call of " + std::string(of.name), facts);
}
RDMACORO_COLD error lent_failure(const method_facts& of, const char* what, const std::error_code& code,
                                 const error_facts& facts) {
    std::string text = "call of " + std::string(of.name);
    if (code == errc::truncated)
        text.append(": ").append(what) += " is longer than mailbox_options::lent_bytes";
    return error(code, text, facts);
}
RDMACORO_COLD void throw_call_unsent(const method_facts& of, const error& why) {
    const std::string context = why.context();
    throw error(why.code(), "call of " + std::string(of.name) + (context.empty() ? "" : ": ") + context,
                why.facts());
}

}  // namespace rdmacoro::detail
