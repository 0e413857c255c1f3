#pragma once

// A user namespace for a process that a test has made.

#include <string>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

namespace rdmacoro::test {

/// Moves this process, of one thread, to a user namespace that maps no user, and which shows all as user 65534, also this one. False where the
/// system gives none.
inline bool enter_user_namespace() { return ::unshare(CLONE_NEWUSER) == 0; }

/// The same, and then maps this process's user and group as `number` there.
inline bool enter_user_namespace_as(uid_t number) {
    const auto write_to = [](const char* path, const std::string& text) {
        const int file = ::open(path, O_WRONLY | O_CLOEXEC);
        if (file < 0) return false;
        const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
        ::close(file);
        return written;
    };
    const auto map = [number](unsigned outer) {
        return std::to_string(number) + ' ' + std::to_string(outer) + " 1\n";
    };
    const std::string users = map(::geteuid());
    const std::string groups = map(::getegid());
    return enter_user_namespace() && write_to("/proc/self/uid_map", users) &&
           write_to("/proc/self/setgroups", "deny") && write_to("/proc/self/gid_map", groups);
}

}  // namespace rdmacoro::test
