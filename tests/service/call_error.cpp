#include <rdmacoro/service/call_error.hpp>

#include "support/catch.hpp"

#include <set>
#include <string>

namespace test_service_call_error {

using namespace rdmacoro;

TEST_CASE("what a peer has answered is told from what the messages of a call have met") {
    CHECK_FALSE(was_answered(error(errc::peer_lost)));
    CHECK_FALSE(was_answered(error(make_error_code(errc::truncated), std::uint64_t{70000})));
    error_facts facts;
    facts.info = detail::answered_info;
    CHECK(was_answered(error(make_error_code(errc::peer_lost), "call of m.f", facts)));
}

TEST_CASE("each error of a call has a text of its own") {
    std::set<std::string> texts;
    for (int code = 1; code <= static_cast<int>(call_errc::reader_left); ++code) {
        const std::error_code made = make_error_code(static_cast<call_errc>(code));
        CHECK(made == static_cast<call_errc>(code));
        CHECK(texts.insert(made.message()).second);
    }
    CHECK(texts.size() == 8);
    CHECK(std::string(call_category().name()) == "rdmacoro.call");
    CHECK(call_category().message(99) == "an unknown error of a call");
}

}  // namespace test_service_call_error
