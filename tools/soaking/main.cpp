// soak: processes that exchange random messages for hours, and are killed, stopped and restarted meanwhile.

#include "options.hpp"
#include "overseer.hpp"

#include "../pingpong/program.hpp"

#include <csignal>

#include <sys/resource.h>

int main(int argc, char** argv) {
    // Libraries below libfabric catch these before main begins, write a file, and end with another status.
    for (const int one : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE})
        std::signal(one, SIG_DFL);
    // A link over shared memory takes two descriptors, and a worker has hundreds of links.
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
        descriptors.rlim_cur = descriptors.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &descriptors);
    }
    return pingpong::run_program("soak", [&]() -> int {
        const auto asked = soak::parse_options(argc, argv);
        return asked ? soak::oversee(*asked) : soak::status_well;
    });
}
