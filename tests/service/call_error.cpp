#include <rdmacoro/service/call_error.hpp>

#include "support/catch.hpp"

#include <set>
#include <string>

namespace test_service_call_error {

using namespace rdmacoro;

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
