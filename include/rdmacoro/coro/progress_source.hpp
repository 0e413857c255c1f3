// A progress source: polled by the scheduler, one for each transport that is in use.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>

namespace rdmacoro {

class scheduler;

/// Must be polled for its operations to make progress, such as the links of one transport.
///
/// The scheduler calls `poll` each turn. Before it sleeps it calls `arm`, polls once more, and sleeps on the `wake_fd` of
/// every source; after that it calls `disarm`. A wake-up that comes between `arm` and the sleep must make the descriptor
/// readable, or the last poll return true.
class progress_source : public detail::list_node<progress_source> {
public:
    progress_source() noexcept = default;
    RDMACORO_DECL virtual ~progress_source();

    /// Leaves its scheduler. Also while that polls its sources, in the poll of any of them.
    RDMACORO_DECL void unlink() noexcept;

    /// Makes progress as far as possible without waiting. True when there was any.
    virtual bool poll() noexcept = 0;

    /// A descriptor that becomes readable when there is something to poll, valid while armed. -1: this source has none,
    /// and the scheduler yields instead of parking.
    [[nodiscard]] RDMACORO_DECL virtual int wake_fd() noexcept;

    /// Between `arm` and `disarm`, new work must make `wake_fd` readable. On a source that is added between the two only
    /// `disarm` is called, on one that is removed only `arm`.
    RDMACORO_DECL virtual void arm() noexcept;
    /// Undoes `arm`.
    RDMACORO_DECL virtual void disarm() noexcept;

private:
    friend class scheduler;
    scheduler* polled_by_ = nullptr;  // has a meaning while it is linked
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/scheduler.hpp>  // which includes the bodies
#endif
