// run: starts the ranks of a job, on this machine or by ssh on several, and ends them together.

#include "jobs.hpp"
#include "options.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <fcntl.h>
#include <unistd.h>

namespace {

/// Where the program was started without an input, an output or an error output, its own files would take their numbers, and be read and
/// written to as such, by the ranks as well.
void open_missing_standard_files() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDWR) != fd) std::abort();
    }
}

}  // namespace

int main(int argc, char** argv) {
    open_missing_standard_files();
    try {
        const auto asked = run::parse_options(argc, argv);
        return asked ? run::run_job(*asked) : run::status_well;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "run: %s\n", error.what());
        return run::status_failure;
    }
}
