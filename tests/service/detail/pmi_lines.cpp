#include <rdmacoro/service/detail/pmi_lines.hpp>

#include "support/catch.hpp"
#include "support/pmi_server.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include <unistd.h>

namespace test_service_detail_pmi_lines {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("a message of PMI is cut into its fields, in both versions") {
    const detail::pmi_message first("cmd=get_result rc=0 msg value=(vector,(0,1,1))", ' ');
    REQUIRE(first.find("value") != nullptr);
    CHECK(*first.find("cmd") == "get_result");
    CHECK(*first.find("value") == "(vector,(0,1,1))");
    CHECK(first.find("msg") == nullptr);
    const detail::pmi_message second("cmd=x;value=a;;b=c;rc=0;", ';');
    CHECK(*second.find("value") == "a;b=c");
    CHECK(*second.find("rc") == "0");
    CHECK(detail::pmi_message("", ' ').find("cmd") == nullptr);
    CHECK(detail::pmi_message("=x = ==", ' ').find("") == nullptr);
}

TEST_CASE("what a launcher answers is checked, and each wrong answer ends with its own error") {
    struct wrong {
        std::string answer;
        std::error_code code;
        std::string text;
    };
    const std::vector<wrong> all = {
        {"close", make_error_code(errc::peer_lost), "closed PMI_FD"},
        {"cmd=other\n", make_error_code(errc::protocol_violation), "answered \"cmd=other\""},
        {"\n", make_error_code(errc::protocol_violation), "answered \"\""},
        {"cmd=\x01\x02\n", make_error_code(errc::protocol_violation), "no text"},
        {std::string(70'000, 'x'), make_error_code(errc::protocol_violation), "has no end"},
        {"cmd=answer", make_error_code(errc::timed_out), "did not answer"},
    };
    for (const wrong& one : all) {
        INFO(one.answer.substr(0, 40));
        scripted_pmi launcher({one.answer});
        detail::pmi_lines lines(launcher.client());
        const auto [code, text] =
            error_of([&] { static_cast<void>(lines.ask("cmd=ask", "answer", patience_of(200ms))); });
        CHECK(code == one.code);
        CHECK_THAT(text, contains(one.text) && contains("cmd=ask"));
        lines.close();
    }
}

TEST_CASE("in version 2 a message has its length before it, on either side of the spaces") {
    for (const std::string head : {"    12", "12    ", "000012", "  12  "}) {
        INFO(head);
        scripted_pmi launcher({head + "cmd=ok;rc=0;"});
        detail::pmi_lines lines(launcher.client());
        lines.use_version(2);
        // The script answers lines.
        CHECK(*lines.ask("cmd=ask\n", "ok", patience_of(5s)).find("rc") == "0");
        lines.close();
    }
    for (const std::string head : {"      ", "-1    ", "1 2   ", "0x0d  ", "999999", "12cmd="}) {
        INFO(head);
        scripted_pmi launcher({head + "cmd=ok;rc=0;"});
        detail::pmi_lines lines(launcher.client());
        lines.use_version(2);
        const auto [code, text] =
            error_of([&] { static_cast<void>(lines.ask("cmd=ask\n", patience_of(5s))); });
        CHECK(code == errc::protocol_violation);
        CHECK_THAT(text, contains("length"));
        lines.close();
    }
}

TEST_CASE("a descriptor that is not open is refused") {
    const auto [code, text] = error_of([] { detail::pmi_lines lines(987); });
    CHECK(code == errc::unsupported);
    CHECK_THAT(text, contains("PMI_FD is 987"));
}

TEST_CASE("a descriptor that is a file now is refused before a word is written to it") {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    const int fd = ::fileno(file);
    REQUIRE(::write(fd, "precious", 8) == 8);
    REQUIRE(::lseek(fd, 0, SEEK_SET) == 0);
    const auto [code, text] = error_of([&] {
        detail::pmi_lines lines(fd);
        static_cast<void>(lines.ask("cmd=init", "response_to_init", patience_of(5s)));
    });
    CHECK(code == errc::unsupported);
    CHECK_THAT(text, contains("PMI_FD is " + std::to_string(fd) + ", which is no socket"));
    std::array<char, 16> room{};
    CHECK(::pread(fd, room.data(), room.size(), 0) == 8);
    CHECK(std::string(room.data()) == "precious");
    std::fclose(file);
}

}  // namespace test_service_detail_pmi_lines
