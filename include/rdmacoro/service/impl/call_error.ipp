// The texts of call errors.
#pragma once

#include <rdmacoro/service/call_error.hpp>

#include <cstdio>
#include <string>

namespace rdmacoro {

namespace detail {
RDMACORO_COLD const char* describe(call_errc code) noexcept {
    switch (code) {
        case call_errc::handler_failed: return "the handler failed";
        case call_errc::unknown_method: return "the peer has no such method";
        case call_errc::signature_mismatch: return "the peer's method of that name has other types";
        case call_errc::malformed_request: return "the peer could not read the arguments";
        case call_errc::malformed_answer: return "the peer's answer is no value of the method's type";
        case call_errc::expired: return "the call's time is over";
        case call_errc::stopped: return "the service ends, or the handler was asked to stop";
        case call_errc::reader_left: return "the handler has ended before the stream";
    }
    return "an unknown error of a call";
}

RDMACORO_COLD void rethrow_within(const error& ended, std::chrono::nanoseconds limit) {
    if (ended.code() != call_errc::expired || ended.info() != expired_info) throw;
    char text[48];
    std::snprintf(text, sizeof text, ", in %.6g ms", static_cast<double>(limit.count()) / 1e6);
    throw error(errc::timed_out, ended.context() + text);
}
}  // namespace detail

RDMACORO_COLD const std::error_category& call_category() noexcept {
    struct category final : std::error_category {
        [[nodiscard]] const char* name() const noexcept override { return "rdmacoro.call"; }
        [[nodiscard]] std::string message(int code) const override {
            return detail::describe(static_cast<call_errc>(code));
        }
    };
    static const category only;
    return only;
}

RDMACORO_COLD bool was_answered(const error& failed) noexcept {
    return failed.info() == detail::answered_info || failed.info() == detail::expired_info;
}

}  // namespace rdmacoro
