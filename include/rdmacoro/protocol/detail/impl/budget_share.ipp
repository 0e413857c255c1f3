// Bodies of detail/budget_share.hpp.
#pragma once

#include <rdmacoro/protocol/detail/budget_share.hpp>

#include <algorithm>

namespace rdmacoro::detail {

RDMACORO_COLD budget_share::budget_share(pool_state& pool, std::uint32_t wanted, bool rises,
                                         function when_short, void* of) noexcept
    : pool_holder(when_short, of),
      pool_(pool),
      least_(rises ? least_grant : least_budget),
      budget_(wanted),
      rises_(rises) {
    pool_.use();
    if (!rises_) {
        static_cast<void>(take(budget_));
        budget_ = grant();
    } else if (pool_.taken() <= pool_.total() / 2) {
        static_cast<void>(take(least_budget));
    }
}

RDMACORO_COLD std::uint32_t budget_share::take(std::uint32_t wanted) noexcept {
    const std::uint64_t most = pool_.most(held_);
    if (wanted <= grant() || most <= held_) return 0;
    const std::uint32_t more =
        std::min(wanted - grant(), static_cast<std::uint32_t>(std::min<std::uint64_t>(most - held_, wanted)));
    if (held_ == 0 && rises_) pool_.holds(*this);
    held_ += more;
    pool_.take(more);
    return more;
}

RDMACORO_COLD std::uint32_t budget_share::rise(std::uint32_t wanted) noexcept {
    return take(std::min(wanted, budget_));
}

RDMACORO_COLD std::uint32_t budget_share::rise_in_need() noexcept {
    const std::uint32_t more = take(budget_);
    if (grant() < budget_) pool_.run_short(*this);
    return more;
}

RDMACORO_COLD std::uint32_t budget_share::excess() const noexcept {
    const std::uint64_t most = pool_.most(held_);
    return held_ > most ? held_ - static_cast<std::uint32_t>(most) : 0;
}

RDMACORO_COLD void budget_share::leave(std::uint32_t stored) noexcept {
    const std::uint32_t needed = stored > least_ ? stored - least_ : 0;
    if (needed < held_) shrink(held_ - needed);
}

}  // namespace rdmacoro::detail
