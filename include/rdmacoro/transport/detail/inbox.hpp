// inbox: messages of one link that have arrived, until its listener takes them.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/transport/detail/session_link.hpp>
#include <rdmacoro/transport/detail/slots.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// The session that owns the inbox:
///  1. `recycle(slot)` makes the slot free to be received into;
///  2. `consumed(slot)` does so and returns a credit to the peer for it.
template <class Owner, class Slot>
concept inbox_owner = requires(Owner& owner, Slot& s) {
    { owner.recycle(s) } noexcept;
    { owner.consumed(s) } noexcept;
};

/// The pool that lends a message's slot to a user:
///  1. `lend(slot)` is false where too many are lent;
///  2. `give_back_lent(slot)` ends the loan, after the link, too.
template <class Lender, class Slot>
concept slot_lender = requires(Lender& lender, Slot& s) {
    { lender.lend(s) } noexcept -> std::same_as<bool>;
    { lender.give_back_lent(s) } noexcept;
};

/// The first failure of a link, by which it ends.
class link_failure {
public:
    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(code_); }
    [[nodiscard]] status code() const noexcept { return code_; }
    /// The first failure counts. `seen` says how far the completion queue is read: with a greater number all that is in it now has been
    /// taken. It may be how often the queue was seen empty so far.
    void set(status code, std::uint64_t seen) noexcept {
        if (code_) return;
        code_ = code;
        seen_ = seen;
    }
    /// Whether the link may go down. Everything that arrived before the failure is delivered first: `seen` must be greater than at the
    /// failure, and the inbox be empty. A peer that violated the protocol is cut off at once, even if the listener defers some of its
    /// messages.
    [[nodiscard]] bool may_go_down(bool all_delivered, std::uint64_t seen) const noexcept {
        return code_ && seen > seen_ && (all_delivered || std::error_code(code_) == errc::protocol_violation);
    }

private:
    status code_{};
    std::uint64_t seen_ = 0;  // at the failure
};

/// Queue of slots that hold a message: `WordBytes` of the transport's own, the protocol's header, the payload. `Slot` has
/// `next`, `data` and `bytes`.
template <class Slot, std::size_t WordBytes>
class inbox {
public:
    static constexpr std::size_t frame_bytes = WordBytes + message_header_bytes;

    /// Messages go to `listener` from now on.
    void attach(session_listener& listener) noexcept { listener_ = &listener; }
    /// Nothing is delivered any more. The listener that there was, if any.
    session_listener* detach() noexcept { return std::exchange(listener_, nullptr); }
    [[nodiscard]] session_listener* listener() const noexcept { return listener_; }

    [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
    void push(Slot& s) noexcept { waiting_.push_back(s); }
    [[nodiscard]] Slot* pop() noexcept { return waiting_.pop_front(); }

    /// Delivers up to `budget` messages in order. Stops when the listener defers one, which is delivered again by the next call,
    /// and when the listener closes the link or detaches itself. Returns how many were taken; one that is answered with a pause counts
    /// as all of the budget that is left.
    template <inbox_owner<Slot> Owner>
    unsigned deliver(unsigned budget, Owner& owner) noexcept {
        unsigned taken = 0;
        while (taken < budget && listener_ != nullptr) {
            Slot* s = waiting_.pop_front();
            if (s == nullptr) break;
            current_ = s;
            lent_ = false;
            const auto& header = *reinterpret_cast<const message_header*>(s->data + WordBytes);
            const delivery answer =
                listener_->deliver(header, {s->data + frame_bytes, s->bytes - frame_bytes});
            current_ = nullptr;
            if (answer != delivery::taken) [[unlikely]] {
                if (answer == delivery::defer) {
                    if (listener_ != nullptr) {
                        waiting_.push_front(*s);
                    } else {
                        owner.recycle(*s);
                    }
                    break;
                }
                taken = budget - 1;
            }
            ++taken;
            if (!lent_) owner.consumed(*s);
        }
        return taken;
    }

    /// Called by the listener inside `deliver`: lends it the message's payload, without a copy. Empty: the lender has too few
    /// slots.
    template <slot_lender<Slot> Lender>
    [[nodiscard]] lent_buffer keep(Lender& lender) noexcept {
        if (current_ == nullptr || lent_ || !lender.lend(*current_)) return {};
        lent_ = true;
        return lent_buffer(
            {current_->data + frame_bytes, current_->bytes - frame_bytes},
            [](void* of, std::uint64_t token) noexcept {
                static_cast<Lender*>(of)->give_back_lent(*reinterpret_cast<Slot*>(token));
            },
            &lender, reinterpret_cast<std::uintptr_t>(current_));
    }

private:
    slot_queue<Slot> waiting_;
    Slot* current_ = nullptr;  // being delivered
    bool lent_ = false;        // `current_` is lent
    session_listener* listener_ = nullptr;
};

}  // namespace rdmacoro::detail
