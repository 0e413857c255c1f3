// run: starts the ranks of a job, on this machine or by ssh on several, and ends them together.

#include "jobs.hpp"
#include "options.hpp"

#include <cstdio>
#include <exception>

int main(int argc, char** argv) {
    try {
        const auto asked = run::parse_options(argc, argv);
        return asked ? run::run_job(*asked) : run::status_well;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "run: %s\n", error.what());
        return run::status_failure;
    }
}
