// The process at the other end of a link, known by a descriptor of its address space instead of by its number.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <cstddef>
#include <cstdint>

#include <sys/types.h>

namespace rdmacoro::detail::shm {

/// A process and its memory. The number of a process that has ended is given to another one, and a process that calls exec
/// keeps its number; the descriptor that is held here (/proc/PID/mem) stays bound to one address space for ever, and reads
/// and writes nothing once that has gone. Short copies go through the descriptor, which is also the faster way for them.
/// Long ones are process_vm_readv's and process_vm_writev's, which take the number: the descriptor is looked at before each
/// copy to the process and after each copy from it.
class peer_process {
public:
    peer_process() noexcept = default;
    /// The process of `pidfd`, which this process knows as `pid`. Not `reachable()` when the system refuses.
    peer_process(int pidfd, pid_t pid) noexcept;

    /// Whether its memory may be read and written.
    [[nodiscard]] bool reachable() const noexcept { return static_cast<bool>(memory_); }
    /// Whether its address space exists still. One system call, of about the cost of `poll`. Precondition: `reachable()`.
    [[nodiscard]] bool alive() const noexcept;

    /// Copies from `address` of the process, or to it. `errc::peer_lost` when the process has ended or runs another program;
    /// `errc::out_of_bounds` for memory that is not mapped there. Precondition: `reachable()`.
    [[nodiscard]] errc copy(bool read, std::uint64_t address, std::byte* local, std::size_t bytes) noexcept;

    /// Up to here a copy goes through the descriptor: beyond that its second copy, page by page in the kernel, costs more
    /// than the other system calls' setting up.
    static constexpr std::size_t most_by_descriptor = 16384;

private:
    [[nodiscard]] errc by_descriptor(bool read, std::uint64_t address, std::byte* local,
                                     std::size_t bytes) noexcept;
    [[nodiscard]] errc by_number(bool read, std::uint64_t address, std::byte* local,
                                 std::size_t bytes) noexcept;

    unique_fd memory_;
    pid_t pid_ = -1;
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/peer_process.ipp>
#endif
