// Long copies and reductions of a rank's own memory, with a turn of the scheduler behind each piece.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/buffers.hpp>

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <span>
#include <utility>

namespace rdmacoro::detail {

/// Bytes that a collective copies or combines in one go, in a tenth or two of a millisecond: timers and other links wait for no more. Not less:
/// in a turn messages come, and those for which a rank has posted no receive yet, as it copies before it does, are stored.
inline constexpr std::size_t in_one_go = std::size_t{1} << 20;

/// Bytes of the whole elements of a piece: of one element at least.
[[nodiscard]] constexpr std::size_t whole_elements(std::size_t element) noexcept {
    return element < in_one_go ? in_one_go - in_one_go % element : element;
}

/// Base of awaitables that do work in pieces. No stop of the awaiting task ends it: a collective has its own.
class work_in_turns {
public:
    work_in_turns() = default;
    work_in_turns(const work_in_turns&) = delete;
    work_in_turns& operator=(const work_in_turns&) = delete;

    void bind(const environment& env) noexcept { owner_ = env.owner; }
    /// Without memory for turns the work is done in one go.
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting);
    void await_resume() {
        if (begun_) std::move(rest_).operator co_await().await_resume();
    }

protected:
    ~work_in_turns() = default;
    /// Does a piece; false: it was the last one.
    virtual bool next_piece() = 0;
    /// All of them, behind a turn each.
    [[nodiscard]] task<> pieces();
    /// Runs `work`, and then the awaiting coroutine.
    [[nodiscard]] std::coroutine_handle<> begin(task<> work, std::coroutine_handle<> awaiting) noexcept {
        begun_ = true;
        rest_ = std::move(work);
        rest_.bind({owner_, {}});
        return std::move(rest_).operator co_await().await_suspend(awaiting);
    }

private:
    scheduler* owner_ = nullptr;
    bool begun_ = false;
    task<> rest_;
};

/// Copies; both may be empty, and the same, but do not overlap otherwise. `since_turn`: the bytes of this collective that were copied and
/// combined since its last turn; much short work gives turns, too.
class [[nodiscard]] copy_in_turns final : public work_in_turns {
public:
    copy_in_turns(std::size_t& since_turn, std::span<std::byte> into,
                  std::span<const std::byte> from) noexcept
        : since_turn_(since_turn), into_(into), from_(from) {}

    bool await_ready() noexcept {
        if (into_.data() == from_.data()) return true;
        since_turn_ += from_.size();
        if (since_turn_ > in_one_go) return false;
        copy_long(into_.data(), from_.data(), from_.size());
        return true;
    }

private:
    bool next_piece() override {
        const std::size_t bytes = std::min(from_.size() - done_, in_one_go);
        copy_long(into_.data() + done_, from_.data() + done_, bytes);
        done_ += bytes;
        since_turn_ = bytes;
        return done_ != from_.size();
    }

    std::size_t& since_turn_;
    std::span<std::byte> into_;
    std::span<const std::byte> from_;
    std::size_t done_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/in_turns.ipp>
#endif
