#include <rdmacoro/service/detail/call_failure.hpp>

#include "support/catch.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

namespace test_service_detail_call_failure {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

constexpr method_facts asked{"shop.price", 1, 2, 3};

struct failed {
    std::error_code code;
    std::string text;
};
/// The error of a call with that answer; no code: the answer has a value.
failed outcome_of(std::span<const std::byte> answer) {
    try {
        check_answer(asked, answer);
    } catch (const std::system_error& e) {
        return {e.code(), e.what()};
    }
    return {};
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a failure is the error that it was set to, with its text, at the caller") {
    call_failure failure;
    CHECK_FALSE(failure);
    failure.set(call_errc::handler_failed, "closed on Sundays");
    CHECK(failure);
    const failed of_call = outcome_of(failure.bytes());
    CHECK(of_call.code == call_errc::handler_failed);
    CHECK(has(of_call.text, "call of shop.price, which answered: closed on Sundays"));
    failure.set(errc::no_resources, "");
    const failed of_toolkit = outcome_of(failure.bytes());
    CHECK(of_toolkit.code == errc::no_resources);
    CHECK_FALSE(has(of_toolkit.text, "which answered"));
}

TEST_CASE("text of any length and of any bytes is cut and made printable") {
    call_failure failure;
    failure.set(call_errc::handler_failed, "two\nlines\x7f" + std::string(10 * longest_error_text, 'x'));
    CHECK(failure.bytes().size() == sizeof(answer_head) + longest_error_text);
    const failed got = outcome_of(failure.bytes());
    CHECK(has(got.text, "two?lines?xxx"));
    CHECK(got.text.size() < 2 * longest_error_text);
}

TEST_CASE("an answer without a head, or of an outcome that does not exist, is malformed") {
    std::array<std::byte, sizeof(answer_head)> raw{};
    const auto answered = [&](const answer_head& head) {
        std::memcpy(raw.data(), &head, sizeof head);
        return outcome_of(raw).code;
    };
    CHECK(outcome_of(std::span(raw).first(sizeof raw - 1)).code == call_errc::malformed_answer);
    CHECK_FALSE(answered({static_cast<std::uint32_t>(outcome_kind::value), 0}));
    CHECK(answered({77, 1}) == call_errc::malformed_answer);
    CHECK(answered({static_cast<std::uint32_t>(outcome_kind::call_error), 0}) == call_errc::malformed_answer);
    CHECK(answered({static_cast<std::uint32_t>(outcome_kind::call_error), 1000}) ==
          call_errc::malformed_answer);
    CHECK(answered({static_cast<std::uint32_t>(outcome_kind::system_error), EPIPE}) ==
          std::error_code(EPIPE, std::system_category()));
}

}  // namespace test_service_detail_call_failure
