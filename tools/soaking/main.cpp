// soak: processes that exchange random messages for hours, and are killed, stopped and restarted meanwhile.

#include "options.hpp"
#include "overseer.hpp"

#include <csignal>
#include <cstdio>
#include <exception>

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
    try {
        const auto asked = soak::parse_options(argc, argv);
        return asked ? soak::oversee(*asked) : soak::status_well;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "soak: %s\n", error.what());
        return soak::status_fault;
    }
}
