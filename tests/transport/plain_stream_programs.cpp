// plain_stream with programs that have nothing of the toolkit. In a file of its own, as a system without such a program must be seen to
// skip it.

#include <rdmacoro/transport/plain_stream.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace test_transport_plain_stream_programs {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

struct program {
    const char* works;    // whether it is there and runs
    const char* command;  // with %s for the port
};
constexpr program programs[] = {
    {"socat -V", "socat - TCP:127.0.0.1:%s"},
    {"nc -h 2>&1 | grep -e -N", "nc -N 127.0.0.1 %s"},
    {"nc.openbsd -h 2>&1 | grep -e -N", "nc.openbsd -N 127.0.0.1 %s"},
};

/// The output of a command with the standard input `hello from outside`.
std::string output_of(const std::string& command) {
    std::FILE* const pipe = ::popen(("printf 'hello from outside' | timeout 30 " + command).c_str(), "r");
    if (pipe == nullptr) return "popen failed";
    std::string all;
    char text[200];
    while (const std::size_t some = std::fread(text, 1, sizeof text, pipe)) all.append(text, some);
    return ::pclose(pipe) == 0 ? all : all + " (the program failed)";
}

task<std::string> answer(plain_listener& from) {
    auto stream = co_await from.accept();
    std::string heard;
    std::vector<char> some(7);
    while (const std::size_t got = co_await stream.read_some(std::as_writable_bytes(std::span(some))))
        heard.append(some.data(), got);
    co_await stream.write(std::string_view("hello from here"));
    co_await stream.close();
    co_return heard;
}

}  // namespace

TEST_CASE("nc and socat talk with a plain stream") {
    scheduler on;
    int talked = 0;
    for (const auto& [works, command] : programs) {
        if (std::system(("(" + std::string(works) + ") >/dev/null 2>&1").c_str()) != 0) continue;
        CAPTURE(command);
        auto listening = on.run(listen_plain("127.0.0.1:0"));
        const std::string url = listening.address();
        std::string line(command);
        line.replace(line.find("%s"), 2, url.substr(url.rfind(':') + 1));
        std::string said;
        std::thread other([&] { said = output_of(line); });
        std::string heard = "nothing";
        try {
            heard = on.run([](plain_listener& from) -> task<std::string> {
                co_return co_await timeout(answer(from), 60s);
            }(listening));
        } catch (const std::exception& failed) {
            heard = failed.what();
        }
        other.join();
        CHECK(heard == "hello from outside");
        CHECK(said == "hello from here");
        ++talked;
    }
    if (talked == 0) SKIP_TEST("neither nc nor socat is installed");
}

}  // namespace test_transport_plain_stream_programs
