// The time limit of an operation.
#pragma once

#include <rdmacoro/coro/timeout.hpp>

#include <cstdio>
#include <new>
#include <string>

namespace rdmacoro::detail {

/// The operation has begun: it is ended rather than left without a limit.
RDMACORO_COLD void time_limit::before_wait() noexcept try {
    scheduler& on = owner();
    timer_.self = this;
    timer_.deadline = deadline_after(on.now(), limit_);
    timer_.expired = [](timer_node& timer) noexcept {
        time_limit& self = *static_cast<timer_hook&>(timer).self;
        if (self.source_.stop_requested()) return;
        self.canceled_by_ = errc::timed_out;
        self.source_.request_stop();
    };
    on.add_timer(timer_);
} catch (const std::bad_alloc&) {
    if (source_.stop_requested()) return;
    canceled_by_ = errc::no_resources;
    without_timer_.post(owner(), source_);
}

RDMACORO_COLD void time_limit::after_end() noexcept {
    if (timer_.queued()) owner().remove_timer(timer_);
    without_timer_.withdraw();
}

RDMACORO_COLD void time_limit::rethrow(const std::system_error& ended) const {
    if (canceled_by_ == errc::ok || ended.code() != errc::canceled) throw;
    std::string context;
    error_facts facts;
    if (const auto* const own = dynamic_cast<const error*>(&ended)) {
        context = own->context();
        facts = own->facts();
    }
    if (canceled_by_ == errc::no_resources)
        throw error(make_error_code(errc::no_resources),
                    context + (context.empty() ? "" : ", ") + "no memory for its limit", facts);
    char limit[48];
    std::snprintf(limit, sizeof limit, "%sin %.6g ms", context.empty() ? "" : ", ",
                  static_cast<double>(limit_.count()) / 1e6);
    throw error(make_error_code(errc::timed_out), context + limit, facts);
}

}  // namespace rdmacoro::detail
