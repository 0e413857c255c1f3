// pingpong: how fast two processes exchange messages, over any transport and protocol list of rdmacoro.

#include "options.hpp"
#include "output.hpp"
#include "pair.hpp"
#include "program.hpp"
#include "run.hpp"

#include <csignal>
#include <optional>
#include <string>

namespace {

int run(int argc, char** argv) {
    using namespace pingpong;
    const std::optional<options> asked = parse_options(argc, argv);
    if (!asked) return 0;
    switch (asked->as) {
        case options::role::pair: return run_pair(*asked);
        case options::role::connect: run_connecting(*asked); break;
        case options::role::listen:
            run_listening(
                *asked, [](const std::string& address) { write_to("-", "listening on " + address + "\n"); });
            break;
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    // Libraries below libfabric catch these before main begins, write a file, and end with another status.
    for (const int one : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE})
        std::signal(one, SIG_DFL);
    return pingpong::run_program("pingpong", [&] { return run(argc, argv); });
}
