// gate_put, gate_flush: a coroutine of another scheduler puts a message into a gate's lane, and waits until all that it has put is back.
#pragma once

#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/service/detail/gate_lane.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// The common part of both: how they end.
class gate_wait_operation : public operation_base, protected gate_wait, protected parked_wait {
public:
    void finish_canceled() noexcept { code_ = errc::canceled; }

protected:
    gate_wait_operation(gate_lane& in, gate_wait::function look) noexcept
        : operation_base(nullptr), gate_wait(look), lane_(&in) {}
    gate_wait_operation(gate_wait_operation&& other) noexcept
        : operation_base(std::move(other)), gate_wait(std::move(other)), parked_wait(), lane_(other.lane_) {}

    bool end(const status& why) noexcept {
        code_ = why;
        complete();
        return true;
    }

    gate_lane* lane_;
    status code_{};
};

/// Ends when the message has been copied into the lane.
class [[nodiscard]] gate_put final : public basic_operation<gate_put, void, gate_wait_operation> {
public:
    gate_put(gate_lane& in, std::uint32_t to, const const_buffers& from, tag_type tag) noexcept
        : basic_operation(in, &look), peer_(to), from_(from), tag_(tag) {}

    RDMACORO_DECL void start() noexcept;
    RDMACORO_DECL void cancel() noexcept;
    result<void> outcome() noexcept { return code_; }

private:
    RDMACORO_DECL static bool look(gate_wait& at) noexcept;
    [[nodiscard]] RDMACORO_DECL bool goes() noexcept;

    std::uint32_t peer_;
    const_buffers from_;
    tag_type tag_;
    gate_flow* flow_ = nullptr;
};

/// Ends when all that was put into the lane before it is back.
class [[nodiscard]] gate_flush final : public basic_operation<gate_flush, void, gate_wait_operation> {
public:
    explicit gate_flush(gate_lane& in) noexcept : basic_operation(in, &look) {}

    RDMACORO_DECL void start() noexcept;
    RDMACORO_DECL void cancel() noexcept;
    result<void> outcome() noexcept { return code_; }

private:
    RDMACORO_DECL static bool look(gate_wait& at) noexcept;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/gate_put.ipp>
#endif
