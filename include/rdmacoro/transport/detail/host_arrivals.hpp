// host_arrivals: which of the numbered processes of a job have come on this host, for launchers that do not say it.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace rdmacoro::detail {

/// A rank's mark on its host: a listening socket of Unix with a name of the job's and the rank's. A rank that comes knocks at those of the others: it
/// finds those that were there before it, and they find its knock in their queues when they want to know. A rank that came and ended before
/// this one came is not seen. Nothing waits here; what fails, for want of descriptors or in a network namespace of its own, leaves ranks unseen. In a child made by fork its
/// end leaves the parent's mark as it is; a child does not ask it, as it would take knocks from the parent's queue.
class host_arrivals {
public:
    /// `job`: a name that no other job of the host has. `ranks`: those on this host, as the launcher says; sorted.
    host_arrivals(std::string_view job, std::uint32_t rank, std::vector<std::uint32_t> ranks);
    host_arrivals(const host_arrivals&) = delete;
    host_arrivals& operator=(const host_arrivals&) = delete;
    RDMACORO_DECL ~host_arrivals();

    /// The ranks of the host that were not seen until now. From any thread: one that waits for the launcher may be left to itself.
    [[nodiscard]] RDMACORO_DECL std::vector<std::uint32_t> unseen();
    [[nodiscard]] const std::vector<std::uint32_t>& ranks() const noexcept { return ranks_; }

private:
    /// Whether that rank is there; it hears of this one.
    [[nodiscard]] bool knock(std::string_view job, std::uint32_t rank) const noexcept;
    void saw(std::uint32_t rank);
    /// Whether a knock says nothing yet; one that does, or never will, is closed.
    [[nodiscard]] bool hear(int fd);

    std::uint32_t rank_;
    std::vector<std::uint32_t> ranks_;
    std::mutex lock_;
    std::vector<bool> seen_;  // by place in `ranks_`
    std::vector<int>
        silent_;  // knocks that were taken between their connect and their send; at most one for each rank
    int listening_ = -1;
    pid_t process_;  // that made it: in a child by fork the socket is the parent's
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/host_arrivals.ipp>
#endif
