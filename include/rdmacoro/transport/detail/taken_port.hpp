// taken_port: for how long a listener tries again to have a TCP port that is taken.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <string>
#include <system_error>

namespace rdmacoro::detail {

/// The attempts of one `listen`. The kernel ends the io_uring of a process that was killed after the process itself has been waited
/// for, and until then, for some ten milliseconds, the accept that was under way keeps the port: a server that is restarted at
/// once finds it taken.
class taken_port {
public:
    static constexpr duration patience = std::chrono::milliseconds(200);  ///< for how long in all
    static constexpr duration pause = std::chrono::milliseconds(2);       ///< between two attempts

    /// From now on. Port 0 is not tried again: where it is taken, all are.
    taken_port(scheduler& on, const inet_address& address);

    /// An attempt has failed with `why`. False: it was the last one, as another would fail, too, or the time is over.
    [[nodiscard]] bool may_come_free(std::error_code why) noexcept;

    /// Until the next attempt. Ends with `errc::canceled` at once.
    [[nodiscard]] task<> wait();

private:
    scheduler& on_;
    std::string address_;
    time_point until_;
    bool any_port_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/taken_port.ipp>
#endif
