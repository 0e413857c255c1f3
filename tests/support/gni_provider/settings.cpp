#include "settings.hpp"

#include "rules.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace stand_in {

settings read_settings() {
    settings read;
    read.registrations = most_registrations;
    if (const char* text = std::getenv("RDMACORO_STAND_IN_OVER"); text != nullptr && *text != '\0')
        read.over = text;
    if (const char* text = std::getenv("RDMACORO_STAND_IN_SEED")) read.seed = std::strtoull(text, nullptr, 0);
    if (const char* text = std::getenv("RDMACORO_STAND_IN_MR_CNT"))
        read.registrations = std::strtoull(text, nullptr, 0);
    if (const char* text = std::getenv("RDMACORO_STAND_IN_ORDER")) {
        if (std::strcmp(text, "any") == 0) read.order = completion_order::any;
        if (std::strcmp(text, "kept") == 0) read.order = completion_order::kept;
    }
    return read;
}

int violated(const char* rule, int error, const char* format, ...) {
    char line[512];
    int used = std::snprintf(line, sizeof line, "stand-in %s: %s: ", enforced.name, rule);
    std::va_list arguments;
    va_start(arguments, format);
    const std::size_t room = sizeof line - static_cast<std::size_t>(used);
    const int more = std::vsnprintf(line + used, room, format, arguments);
    va_end(arguments);
    used += more < static_cast<int>(room) ? more : static_cast<int>(room) - 1;
    if (used > static_cast<int>(sizeof line) - 2) used = static_cast<int>(sizeof line) - 2;
    line[used++] = '\n';

    const auto bytes = static_cast<std::size_t>(used);
    [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line, bytes);
    if (const char* file = std::getenv("RDMACORO_STAND_IN_LOG"); file != nullptr && *file != '\0') {
        const int log = ::open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (log >= 0) {
            written = ::write(log, line, bytes);
            ::close(log);
        }
    }
    return -error;
}

}  // namespace stand_in
