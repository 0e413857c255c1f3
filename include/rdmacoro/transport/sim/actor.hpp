// sim_actor: the steps of a program that the network's order of events includes.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/transport/sim/node.hpp>

#include <cstdint>
#include <utility>

namespace rdmacoro {

class sim_actor;

/// A step. Described at `sim_actor::step`.
class [[nodiscard]] sim_step : public basic_operation<sim_step, void> {
public:
    explicit sim_step(sim_actor& of) noexcept : sim_step::basic_operation(nullptr), of_(&of) {}
    sim_step(sim_step&& other) noexcept : sim_step::basic_operation(std::move(other)), of_(other.of_) {}

    void start() noexcept;
    void cancel() noexcept;
    void finish_canceled() noexcept { outcome_ = errc::canceled; }
    result<void> outcome() noexcept { return outcome_; }

private:
    struct hook : detail::sim::event {
        sim_step* self = nullptr;
    };

    sim_actor* of_;
    hook hook_;
    detail::status outcome_{};
};

/// A coroutine of a program at one node; its progress is ordered with the events of the network. Actors of different
/// nodes may share state by the network alone, unless a step that touches such state says so by `touches`.
class sim_actor {
public:
    explicit sim_actor(detail::sim::node& at) noexcept : at_(&at), number_(at.world().next_actor()) {}
    sim_actor(const sim_actor&) = delete;
    sim_actor& operator=(const sim_actor&) = delete;

    /// What it does after its steps from now on changes something of `other`, too: it breaks a link to that node, or listens where that one
    /// connects. Without this an explorer takes such a step and the events of `other` to be independent, and leaves orders of them out.
    void touches(const detail::sim::node& other) noexcept { also_ |= other.bit(); }

    /// Awaitable.
    /// Completes: when it is this actor's turn: when an explorer chooses it, or as soon as nothing else happens earlier.
    /// Buffers: none.
    /// Concurrency: one at a time for each actor.
    /// Errors: none.
    /// Cancellation: at any time.
    /// Example:
    ///     co_await actor.step();
    [[nodiscard]] sim_step step() noexcept { return sim_step(*this); }

private:
    friend class sim_step;

    detail::sim::node* at_;
    std::uint32_t number_;
    std::uint64_t steps_ = 0;
    std::uint64_t also_ = 0;  // nodes
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/sim/impl/actor.ipp>
#endif
