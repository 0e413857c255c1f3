#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <cstring>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_verbs_plain_peer {

using namespace rdmacoro;
using namespace rdmacoro::test;

// A peer that nothing here wrote any of: plain_peer.c, which knows libibverbs and docs/wire-format.md.

namespace {}  // namespace

TEST_CASE("a program written with libibverbs alone reads, writes and sends over a link") {
    FOR_EACH_VERBS_DEVICE(way);
    scheduler on{impatient{}};
    verbs_domain domain(on, way.options);
    constexpr std::size_t half = 4096;
    std::vector<std::byte> memory(2 * half);
    for (std::size_t i = 0; i < half; ++i) memory[i] = static_cast<std::byte>(i * 7 & 0xff);
    const region open = domain.register_memory(memory, access_rights::all);

    verbs_listener listening = on.run(domain.listen("*:0"));
    const std::string url = listening.address();  // "verbs://10.0.0.1:40001"
    const std::size_t begin = url.find("//") + 2;
    const std::size_t colon = url.rfind(':');
    std::string program = RDMACORO_PLAIN_PEER;
    std::string host = url.substr(begin, colon - begin);
    std::string port = url.substr(colon + 1);
    char* arguments[] = {program.data(), host.data(), port.data(), nullptr};
    pid_t child = 0;
    REQUIRE(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) == 0);

    verbs_end end;
    end.link = std::make_unique<verbs_recorded_link>(on.run(accepted_from(listening)), end.sink);
    recording_completion none;
    const remote_region told = open.remote();
    bool said = false;
    on.run_until([&] {
        said = said ||
               end.link->post(header_of(1), std::as_bytes(std::span(&told, 1)), none) == post_result::done;
        return (said && end.sink.count == 1) || end.sink.downs != 0;
    });
    CAPTURE(end.sink.reason.message());
    REQUIRE(end.sink.count == 1);
    CHECK(end.sink.messages[0].number == 2);
    REQUIRE(end.sink.messages[0].payload.size() == 4);
    CHECK(std::memcmp(end.sink.messages[0].payload.data(), "done", 4) == 0);
    bool all = true;
    for (std::size_t i = 0; i < half; ++i)
        all = all && memory[half + i] == static_cast<std::byte>((i * 7 + 1) & 0xff);
    CHECK(all);

    end.link->close(make_error_code(errc::closed));
    int status = -1;
    bool ended = false;
    on.run_until([&] { return ended = ended || ::waitpid(child, &status, WNOHANG) == child; });
    CHECK(status == 0);
}

}  // namespace test_verbs_plain_peer
