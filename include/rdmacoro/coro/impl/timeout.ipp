// The time limit of an operation.
#pragma once

#include <rdmacoro/coro/timeout.hpp>

#include <cstdio>
#include <string>

namespace rdmacoro::detail {

RDMACORO_COLD void time_limit::before_wait() noexcept {
    scheduler& on = owner();
    timer_.self = this;
    timer_.deadline = deadline_after(on.now(), limit_);
    timer_.expired = [](timer_node& timer) noexcept {
        time_limit& self = *static_cast<timer_hook&>(timer).self;
        if (self.source_.stop_requested()) return;
        self.is_over_ = true;
        self.source_.request_stop();
    };
    on.add_timer(timer_);
}

RDMACORO_COLD void time_limit::after_end() noexcept {
    if (timer_.queued()) owner().remove_timer(timer_);
    source_.unfollow();  // the token around it may end before this does
}

RDMACORO_COLD void time_limit::rethrow(const std::system_error& ended) const {
    if (!is_over_ || ended.code() != errc::canceled) throw;
    std::string context;
    error_facts facts;
    if (const auto* const own = dynamic_cast<const error*>(&ended)) {
        context = own->context();
        facts = own->facts();
    }
    char limit[48];
    std::snprintf(limit, sizeof limit, "%sin %.6g ms", context.empty() ? "" : ", ",
                  static_cast<double>(limit_.count()) / 1e6);
    throw error(make_error_code(errc::timed_out), context + limit, facts);
}

}  // namespace rdmacoro::detail
