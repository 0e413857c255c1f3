#include <rdmacoro/coro/error.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

#include <set>
#include <stdexcept>
#include <string>

namespace test_coro_error {

using namespace rdmacoro;

TEST_CASE("every error code has a sentence of its own") {
    std::set<std::string> sentences;
    for (int code = 0; code <= static_cast<int>(errc::invalid_argument); ++code) {
        const std::string sentence = make_error_code(static_cast<errc>(code)).message();
        INFO(code);
        CHECK(sentence != "unknown error");
        CHECK(sentences.insert(sentence).second);
    }
    CHECK(std::string(describe(static_cast<errc>(9999))) == "unknown error");
}

TEST_CASE("error codes are of one category and compare with errc") {
    const std::error_code code = errc::timed_out;
    CHECK(code == errc::timed_out);
    CHECK(code != errc::canceled);
    CHECK(std::string(code.category().name()) == "rdmacoro");
    CHECK(&code.category() == &error_category());
    CHECK_FALSE(static_cast<bool>(std::error_code(errc::ok)));
}

TEST_CASE("an error is a system_error with its context and its number") {
    const error with_context(errc::address_in_use, "tcp://localhost:1");
    CHECK(with_context.code() == errc::address_in_use);
    CHECK(std::string(with_context.what()).find("tcp://localhost:1") != std::string::npos);
    CHECK(with_context.info() == 0);
    const error with_number(make_error_code(errc::truncated), 4096);
    CHECK(with_number.info() == 4096);
    try {
        detail::throw_error(std::make_error_code(std::errc::too_many_files_open));
        FAIL("did not throw");
    } catch (const std::system_error& thrown) {
        CHECK(thrown.code() == std::errc::too_many_files_open);
    }
}

TEST_CASE("fatal says what is wrong and ends the process") {
    const test::death seen = test::dies([] { detail::fatal("the reason"); });
    CHECK(seen.aborted);
    CHECK(seen.said == "rdmacoro: the reason\n");

    // Where an exception is under way, its text would be lost without a trace.
    const test::death unwinding = test::dies([] {
        struct ends_badly {
            ~ends_badly() { detail::fatal("the reason"); }
        } one;
        throw std::runtime_error("the first reason");
    });
    CHECK(unwinding.aborted);
    CHECK_THAT(unwinding.said,
               test::contains("the reason\n") && test::contains("an exception was on its way"));
}

TEST_CASE("an error has numbers and context besides its code") {
    const error_facts about{.info = 70, .bytes = 64, .tag = 7, .tag_mask = 0xff, .peer = 3};
    const error made(make_error_code(errc::truncated), std::string("recv from x"), about);
    CHECK(made.info() == 70);
    CHECK(made.facts().bytes == 64);
    CHECK(made.facts().tag == 7);
    CHECK(made.facts().tag_mask == 0xff);
    CHECK(made.facts().peer == 3);
    CHECK(made.context() == "recv from x");
    CHECK(std::string(made.what()) == "recv from x: " + std::string(describe(errc::truncated)));
    const error bare(errc::closed);
    CHECK(bare.context().empty());
    CHECK(bare.facts().peer == error_facts::no_peer);
}

}  // namespace test_coro_error
