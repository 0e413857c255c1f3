// short_answers: those of functions, on their way, without a coroutine for each.
#pragma once

#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/messaging/detail/any_operations.hpp>
#include <rdmacoro/service/detail/answer.hpp>

#include <coroutine>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace rdmacoro::detail {

/// Answers that the transport has, and is not done with: it may copy them, or send several together, at the end of a turn. All must have ended
/// before it is destroyed.
class short_answers {
public:
    /// Sent over `to`; when that token is stopped, those that still wait are withdrawn.
    short_answers(const any_connection& to, local_stop_token until) noexcept : to_(to), until_(until) {}
    short_answers(const short_answers&) = delete;
    short_answers& operator=(const short_answers&) = delete;
    ~short_answers() = default;

    /// An answer, and its send.
    class place : public short_answer {
    public:
        place() noexcept {}
        place(const place&) = delete;
        place& operator=(const place&) = delete;
        ~place() {
            if (used_) std::destroy_at(&send_);
        }

        /// Whether it has no send, or one that has ended.
        [[nodiscard]] bool is_free() noexcept {
            if (!used_) return true;
            if (!send_.done()) return false;
            end();
            return true;
        }

    private:
        friend class short_answers;
        void end() noexcept {
            std::destroy_at(&send_);
            used_ = false;
        }

        bool used_ = false;
        union {
            any_send send_;
        };
    };

    /// A place for the next one; nullptr: there are as many as may be.
    [[nodiscard]] place* next() noexcept {
        if (here_.is_free()) [[likely]]
            return &here_;
        return one_more();
    }
    /// Begins to send the first bytes of it. False: it waits before those of others, and is to be waited for.
    [[nodiscard]] bool begin(place& at, std::size_t bytes, tag_type tag) noexcept {
        ::new (static_cast<void*>(&at.send_)) any_send(to_, std::span<const std::byte>(at.bytes, bytes), tag);
        at.used_ = true;
        at.send_.bind({&to_.owner(), until_});
        at.send_.begin();
        return at.send_.done() || at.send_.in_flight_;
    }

    /// Awaitable. Completes when the answer at a place was sent, or cannot be.
    class [[nodiscard]] sent {
    public:
        sent(place& at, local_stop_token until) noexcept : at_(at), until_(until) {}

        void bind(const environment& env) noexcept {
            if (at_.used_) at_.send_.bind({env.owner, until_});
        }
        bool await_ready() noexcept { return !at_.used_ || at_.send_.await_ready(); }
        void await_suspend(std::coroutine_handle<> awaiting) noexcept { at_.send_.await_suspend(awaiting); }
        void await_resume() noexcept {
            if (at_.used_) at_.end();
        }

    private:
        place& at_;
        local_stop_token until_;
    };
    [[nodiscard]] sent until_sent(place& at) noexcept { return {at, until_}; }
    /// Of the oldest, after `next` has answered that there is no place.
    [[nodiscard]] sent until_one_is_free() noexcept { return until_sent(more_ ? more_[turn_] : here_); }
    /// Of all.
    [[nodiscard]] task<> until_all_are_sent();

private:
    static constexpr std::size_t most = 32;  // beside the first

    [[nodiscard]] place* one_more() noexcept;

    any_connection to_;
    local_stop_token until_;
    place here_;
    std::unique_ptr<place[]> more_;  // in turn; made when the first is still under way
    std::size_t turn_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/calls_base.hpp>
#endif
