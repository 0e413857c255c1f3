// What a scheduler polls: one object for each transport that is in use.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>

namespace rdmacoro {

/// Something that must be polled for work to go on, such as the links of one transport.
///
/// The scheduler calls `poll` each turn. Before it sleeps it calls `arm`, polls once more, and sleeps on the `wake_fd` of
/// every source; after that it calls `disarm`. A wake-up that comes between `arm` and the sleep must make the descriptor
/// readable, or the last poll move something.
class progress_source : public detail::list_node<progress_source> {
public:
    progress_source() noexcept = default;
    virtual ~progress_source() { unlink(); }

    /// Moves what can be moved without waiting. True when anything did.
    virtual bool poll() noexcept = 0;

    /// A descriptor that becomes readable when there is something to poll, valid while armed. -1: this source can't wake
    /// anybody, and the scheduler yields instead of parking.
    [[nodiscard]] virtual int wake_fd() noexcept { return -1; }

    /// From now on until `disarm`, work that appears must make `wake_fd` readable. A source that is added between the two
    /// sees only `disarm`, one that is removed only `arm`.
    virtual void arm() noexcept {}
    virtual void disarm() noexcept {}
};

}  // namespace rdmacoro
