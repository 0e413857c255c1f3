// A connected endpoint of any transport and protocol list, as one type: benchmarks are compiled once, the lists are
// chosen at run time. An operation costs two or three virtual calls more than the endpoint's own, a few nanoseconds.
#pragma once

#include "../../tools/pingpong/carried.hpp"

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/protocol/metrics.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace bench {

namespace rc = rdmacoro;

/// A started send or receive of an endpoint, with its type erased.
class started_operation {
public:
    started_operation() = default;
    started_operation(const started_operation&) = delete;
    started_operation& operator=(const started_operation&) = delete;
    virtual ~started_operation() = default;

    virtual void bind(const rc::environment& env) noexcept = 0;
    virtual bool await_ready() noexcept = 0;
    virtual void await_suspend(std::coroutine_handle<> awaiting) noexcept = 0;
    virtual rc::received await_resume() = 0;
};

/// Where one of them is made.
struct operation_place {
    alignas(64) std::array<std::byte, 704> memory;
};

/// One peer. The functions are those of `rdmacoro::endpoint`.
class peer {
public:
    peer() = default;
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;
    virtual ~peer() = default;

    [[nodiscard]] virtual started_operation*
    begin_send(operation_place& place, std::span<const std::byte> from, rc::tag_type tag) = 0;
    [[nodiscard]] virtual started_operation* begin_recv(operation_place& place, std::span<std::byte> into,
                                                        rc::tag_type tag) = 0;
    [[nodiscard]] virtual rc::task<> probe(rc::tag_type tag) = 0;
    [[nodiscard]] virtual rc::task<> close() = 0;
    [[nodiscard]] virtual bool is_open() const noexcept = 0;
    [[nodiscard]] virtual const rc::metrics& counts() const noexcept = 0;
    /// The policy that is chosen for a message of so many bytes; "none" when it is too long for all.
    [[nodiscard]] virtual std::string policy_for(std::size_t bytes) = 0;
};

/// A send or receive that has begun, like what `rdmacoro::start` gives: stays where it is made, and must be awaited.
class pending {
public:
    pending(const pending&) = delete;
    pending& operator=(const pending&) = delete;
    ~pending() { operation_->~started_operation(); }

    [[nodiscard]] static pending send(peer& to, std::span<const std::byte> from, rc::tag_type tag) {
        return pending(to, from, tag);
    }
    [[nodiscard]] static pending recv(peer& of, std::span<std::byte> into, rc::tag_type tag) {
        return pending(of, into, tag);
    }

    void bind(const rc::environment& env) noexcept { operation_->bind(env); }
    bool await_ready() noexcept { return operation_->await_ready(); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { operation_->await_suspend(awaiting); }
    rc::received await_resume() { return operation_->await_resume(); }

private:
    pending(peer& to, std::span<const std::byte> from, rc::tag_type tag)
        : operation_(to.begin_send(place_, from, tag)) {}
    pending(peer& of, std::span<std::byte> into, rc::tag_type tag)
        : operation_(of.begin_recv(place_, into, tag)) {}

    operation_place place_;
    started_operation* operation_;
};

}  // namespace bench
