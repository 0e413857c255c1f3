// How another process's address space is opened, looked at and copied.
#pragma once

#include <rdmacoro/transport/shm/peer_process.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

namespace rdmacoro::detail::shm {

/// The number of the process in the name space of the mounted /proc, which need not be this process's; 0: none.
[[nodiscard]] RDMACORO_COLD long number_in_proc(int pidfd) noexcept {
    char text[512];
    std::snprintf(text, sizeof text, "/proc/self/fdinfo/%d", pidfd);
    const unique_fd facts(::open(text, O_RDONLY | O_CLOEXEC));
    if (!facts) return 0;
    const ssize_t bytes = ::read(facts.get(), text, sizeof text - 1);
    if (bytes <= 0) return 0;
    text[bytes] = '\0';
    const char* const line = std::strstr(text, "\nPid:");
    return line != nullptr ? std::strtol(line + 5, nullptr, 10) : 0;
}

RDMACORO_COLD peer_process::peer_process(int pidfd, pid_t pid) noexcept : pid_(pid) {
    const long number = number_in_proc(pidfd);
    if (number <= 0 || pid <= 0) return;
    char path[40];
    std::snprintf(path, sizeof path, "/proc/%ld/mem", number);
    memory_ = unique_fd(::open(path, O_RDWR | O_CLOEXEC));
    // A process that has not ended yet had that number all the while.
    if (poll_now(pidfd, POLLIN) != 0) memory_.reset();
}

RDMACORO_DECL bool peer_process::alive() const noexcept {
    // Beyond every address of a program: an error, but no bytes as soon as there is no address space any more.
    constexpr off_t nowhere = 0x7ffffffffffff000;
    char nothing = 0;
    return ::pread(memory_.get(), &nothing, 1, nowhere) < 0;
}

RDMACORO_DECL errc peer_process::copy(bool read, std::uint64_t address, std::byte* local,
                                      std::size_t bytes) noexcept {
    return bytes <= most_by_descriptor ? by_descriptor(read, address, local, bytes)
                                       : by_number(read, address, local, bytes);
}

RDMACORO_DECL errc peer_process::by_descriptor(bool read, std::uint64_t address, std::byte* local,
                                               std::size_t bytes) noexcept {
    while (bytes > 0) {
        const auto at = static_cast<off_t>(address);
        const ssize_t moved =
            read ? ::pread(memory_.get(), local, bytes, at) : ::pwrite(memory_.get(), local, bytes, at);
        if (moved == 0) return errc::peer_lost;
        if (moved < 0) {
            if (errno == EINTR) continue;
            // A registered region that is not mapped is the owner's mistake, not a lost right.
            return errno == EIO || errno == EFAULT || errno == EINVAL ? errc::out_of_bounds
                                                                      : errc::unsupported;
        }
        local += moved;
        address += static_cast<std::uint64_t>(moved);
        bytes -= static_cast<std::size_t>(moved);
    }
    return errc::ok;
}

RDMACORO_DECL errc peer_process::by_number(bool read, std::uint64_t address, std::byte* local,
                                           std::size_t bytes) noexcept {
    if (!read && !alive()) return errc::peer_lost;
    ssize_t moved = 0;
    while (bytes > 0) {
        iovec here{local, bytes};
        iovec there{reinterpret_cast<void*>(address), bytes};
        moved = read ? ::process_vm_readv(pid_, &here, 1, &there, 1, 0)
                     : ::process_vm_writev(pid_, &here, 1, &there, 1, 0);
        if (moved <= 0) break;
        local += moved;
        address += static_cast<std::uint64_t>(moved);
        bytes -= static_cast<std::size_t>(moved);
    }
    const int why = errno;
    if (read && !alive()) return errc::peer_lost;
    if (bytes == 0) return errc::ok;
    if (moved == 0 || why == EFAULT) return errc::out_of_bounds;
    // Refused, as by a filter of system calls; the descriptor works all the same.
    return by_descriptor(read, address, local, bytes);
}

}  // namespace rdmacoro::detail::shm
