#include "program.hpp"

#include "failure.hpp"
#include "output.hpp"

#include <cstdio>
#include <exception>

namespace pingpong {

int run_program(const char* name, const std::function<int()>& body) {
    int status = 0;
    try {
        status = body();
        check_written();
        return status;
    } catch (const usage_error& error) {
        std::fprintf(stderr, "%s: %s\n", name, error.what());
        return status_usage;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", name, error.what());
        return status != 0 ? status : status_failed;
    }
}

}  // namespace pingpong
