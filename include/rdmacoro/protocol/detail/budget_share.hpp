// A link's share of its pool: how much of its budget it may be granted.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/message_pool.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// A link's part of a pool: its grant without the least, which every link has beside the pool. All in `credit_bytes`.
class budget_share : private pool_holder {
public:
    /// `wanted`: the budget, at least `least_budget`. `rises`: less of it may be granted at first; that takes a list of
    /// protocols with messages that go ahead of their turn, as one that costs more than the grant waits for ever otherwise.
    /// Without it the budget is what the pool has for the link now. `when_short(of)` is called when it holds
    /// something and others want more.
    budget_share(pool_state& pool, std::uint32_t wanted, bool rises, function when_short = nullptr,
                 void* of = nullptr) noexcept;
    budget_share(const budget_share&) = delete;
    budget_share& operator=(const budget_share&) = delete;
    ~budget_share() {
        shrink(held_);
        pool_.release();
    }

    [[nodiscard]] std::uint32_t budget() const noexcept { return budget_; }
    [[nodiscard]] std::uint32_t grant() const noexcept { return least_ + held_; }
    [[nodiscard]] std::uint32_t held() const noexcept { return held_; }
    [[nodiscard]] bool rises() const noexcept { return rises_; }

    /// Takes more of the pool, for a grant of `wanted` at most. Returns by how much the grant rises.
    [[nodiscard]] std::uint32_t rise(std::uint32_t wanted) noexcept;
    /// For the whole budget, as the peer waits; when there is less, other links hear that memory is short.
    [[nodiscard]] std::uint32_t rise_in_need() noexcept;
    /// The part to be given back, as the pool is short.
    [[nodiscard]] std::uint32_t excess() const noexcept;
    /// The grant has shrunk. Precondition: not below the least.
    void shrink(std::uint32_t units) noexcept {
        held_ -= units;
        pool_.give(units);
        if (held_ == 0 && linked()) unlink();
    }
    /// The link is down: it keeps what its stored messages take.
    void leave(std::uint32_t stored) noexcept;

private:
    [[nodiscard]] std::uint32_t take(std::uint32_t wanted) noexcept;

    pool_state& pool_;
    std::uint32_t least_;
    std::uint32_t budget_;
    std::uint32_t held_ = 0;
    bool rises_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/budget_share.ipp>
#endif
