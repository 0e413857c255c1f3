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

class calls_base;

/// Answers that the transport has, and is not done with: it may copy them, or send several together, at the end of a turn. All must have ended
/// before it is destroyed.
class short_answers {
public:
    /// Of calls that `of` serves; when that token is stopped, those that still wait are withdrawn.
    short_answers(calls_base& of, local_stop_token until) noexcept;
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

    private:
        friend class short_answers;
        bool used_ = false;
        union {
            any_send send_;
        };
    };

    /// A place for the next one; nullptr: there are as many as may be.
    [[nodiscard]] place* next() noexcept {
        if (is_free(here_)) [[likely]]
            return &here_;
        return one_more();
    }
    /// Begins to send the first bytes of it. False: it waits before those of others, and is to be waited for.
    [[nodiscard]] bool begin(place& at, std::size_t bytes, tag_type tag) noexcept {
        ::new (static_cast<void*>(&at.send_)) any_send(to_, std::span<const std::byte>(at.bytes, bytes), tag);
        at.used_ = true;
        at.send_.bind({&to_.owner(), until_});
        at.send_.begin();
        if (at.send_.done()) {
            end(at);
            return true;
        }
        return at.send_.in_flight_;
    }

    /// Awaitable. Completes when the answer at a place was sent, or cannot be.
    class [[nodiscard]] sent {
    public:
        sent(short_answers& of, place& at) noexcept : of_(of), at_(at) {}

        void bind(const environment& env) noexcept {
            if (at_.used_) at_.send_.bind({env.owner, of_.until_});
        }
        bool await_ready() noexcept { return !at_.used_ || at_.send_.await_ready(); }
        void await_suspend(std::coroutine_handle<> awaiting) noexcept { at_.send_.await_suspend(awaiting); }
        void await_resume() noexcept {
            if (at_.used_) of_.end(at_);
        }

    private:
        short_answers& of_;
        place& at_;
    };
    [[nodiscard]] sent until_sent(place& at) noexcept { return {*this, at}; }
    /// Of the oldest, after `next` has answered that there is no place.
    [[nodiscard]] sent until_one_is_free() noexcept { return until_sent(more_ ? more_[turn_] : here_); }
    // All places, from the oldest on.
    [[nodiscard]] std::size_t places() const noexcept { return more_ ? most + 1 : 1; }
    [[nodiscard]] place& place_at(std::size_t n) noexcept {
        return n < places() - 1 ? more_[(turn_ + n) % most] : here_;
    }

private:
    static constexpr std::size_t most = 32;  // beside the first

    /// Whether it has no send, or one that has ended.
    [[nodiscard]] bool is_free(place& at) noexcept {
        if (!at.used_) return true;
        if (!at.send_.done()) return false;
        end(at);
        return true;
    }
    void end(place& at) noexcept {
        if (at.send_.code_) [[unlikely]]
            not_sent(at.send_);
        std::destroy_at(&at.send_);
        at.used_ = false;
    }
    void not_sent(const any_send& failed) noexcept;
    [[nodiscard]] place* one_more() noexcept;

    calls_base& of_;
    any_connection to_;
    local_stop_token until_;
    place here_;
    std::unique_ptr<place[]> more_;  // in turn; made when the first is still under way
    std::size_t turn_ = 0;
};

}  // namespace rdmacoro::detail
