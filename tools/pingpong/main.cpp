// pingpong: how fast two processes exchange messages, over any transport and protocol list of rdmacoro.

#include "failure.hpp"
#include "options.hpp"
#include "pair.hpp"
#include "run.hpp"

#include <csignal>
#include <cstdio>
#include <exception>

namespace {

int run(int argc, char** argv) {
    using namespace pingpong;
    const std::optional<options> asked = parse_options(argc, argv);
    if (!asked) return 0;
    switch (asked->as) {
        case options::role::pair: return run_pair(*asked);
        case options::role::connect: run_connecting(*asked); break;
        case options::role::listen:
            run_listening(*asked, [](const std::string& address) {
                std::printf("listening on %s\n", address.c_str());
                std::fflush(stdout);
            });
            break;
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    // Libraries below libfabric catch these before main begins, write a file, and end with another status.
    for (const int one : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE})
        std::signal(one, SIG_DFL);
    try {
        return run(argc, argv);
    } catch (const pingpong::usage_error& error) {
        std::fprintf(stderr, "pingpong: %s\n", error.what());
        return pingpong::status_usage;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "pingpong: %s\n", error.what());
        return pingpong::status_failed;
    }
}
