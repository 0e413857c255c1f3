// The handler of SIGUSR1.
#pragma once

#include <rdmacoro/coro/detail/describe_signal.hpp>

#include <cerrno>
#include <csignal>
#include <system_error>

#include <sched.h>

namespace rdmacoro::detail {

// `owner` and `handlers`: a handler counts itself and then reads the owner; the destructor clears the owner and then reads the count. All four
// are sequentially consistent, so a handler that has found the owner is waited for.
RDMACORO_COLD void describe_signal::handle(int) noexcept {
    const int error = errno;
    for (signal_place& at : signal_places) {
        at.handlers.fetch_add(1);
        scheduler* const owner = at.owner.load();
        if (owner != nullptr && !at.asked.exchange(true)) owner->post(at);
        at.handlers.fetch_sub(1);
    }
    errno = error;
}

RDMACORO_COLD describe_signal::describe_signal(scheduler& owner) {
    for (signal_place& at : signal_places) {
        if (at.taken.exchange(true)) continue;
        own_ = &at;
        break;
    }
    if (own_ == nullptr) throw_error(errc::no_resources, "SIGUSR1 describes 64 schedulers at most");
    own_->call = [](posted_node& node) noexcept {
        signal_place& at = static_cast<signal_place&>(node);
        at.asked.store(false);  // the node can be posted again
        if (scheduler* const of = at.owner.load()) of->print_description("asked by SIGUSR1");
    };
    own_->asked.store(false);
    own_->owner.store(&owner);
    struct sigaction action{};
    action.sa_handler = [](int number) { handle(number); };
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    if (::sigaction(SIGUSR1, &action, nullptr) != 0) {
        const int failed = errno;
        own_->owner.store(nullptr);
        own_->taken.store(false);
        throw_error(std::error_code(failed, std::generic_category()));
    }
}

RDMACORO_COLD describe_signal::~describe_signal() {
    scheduler* const owner = own_->owner.exchange(nullptr);
    while (own_->handlers.load() != 0) ::sched_yield();  // a handler posts, and returns
    if (own_->asked.load()) static_cast<void>(owner->withdraw(*own_));
    own_->taken.store(false);
}

}  // namespace rdmacoro::detail
