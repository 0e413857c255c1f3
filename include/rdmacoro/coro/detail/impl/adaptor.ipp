// The part of adaptors that does not depend on the operation.
#pragma once

#include <rdmacoro/coro/detail/adaptor.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL environment stopping_hooks::bind(const environment& env) noexcept {
    owner_ = env.owner;
    source_.follow(env.stop);
    return {env.owner, source_.get_token()};
}

RDMACORO_COLD scheduler& stopping_hooks::owner() {
    if (owner_ == nullptr) owner_ = &running_scheduler();
    return *owner_;
}

}  // namespace rdmacoro::detail
