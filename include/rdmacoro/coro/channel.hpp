// channel<T>: a bounded queue between coroutines of one scheduler.
#pragma once

#include <rdmacoro/coro/detail/wait_node.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <optional>
#include <vector>

namespace rdmacoro {

namespace detail {
inline constexpr wait_facts channel_send_facts{"channel send", "the channel is full",
                                               next_actor::this_program};
inline constexpr wait_facts channel_receive_facts{"channel receive", "the channel is empty",
                                                  next_actor::this_program};
}  // namespace detail

/// Values in order from any number of senders to any number of receivers; at most `capacity` of them are queued. With
/// capacity 0 a send completes when its value is received. Memory is allocated only by the constructor. Destroying it while
/// a coroutine sends or receives ends the process with a message. For one thread; see `thread_channel` for several.
template <class T>
    requires std::is_nothrow_move_constructible_v<T>
class channel {
    struct sender_tag;
    struct receiver_tag;

public:
    /// `capacity`: values that wait for a receiver before `send` suspends; 0: each `send` waits for its receiver.
    /// `receives`: how waiting receives are described; the toolkit's to set.
    [[gnu::cold]] explicit channel(std::size_t capacity,
                                   const detail::wait_facts& receives = detail::channel_receive_facts)
        : slots_(capacity), receive_facts_(&receives) {}
    channel(const channel&) = delete;
    channel& operator=(const channel&) = delete;
    [[gnu::cold]] ~channel() {
        if (!senders_.empty() || !receivers_.empty())
            detail::fatal("a channel was destroyed while somebody sends or receives");
    }

    /// The operation of `send`. Described at `send`.
    class send_operation final : public basic_operation<send_operation, void>,
                                 private detail::wait_node<sender_tag> {
        using base = basic_operation<send_operation, void>;

    public:
        send_operation(channel& to, T&& value) noexcept : base(nullptr), to_(&to), value_(std::move(value)) {}

    private:
        friend base;
        friend class channel;
        friend class detail::intrusive_list<send_operation, sender_tag>;

        void start() noexcept {
            if (to_->closed_) {
                end(errc::closed);
            } else if (to_->put(value_)) {
                this->complete();
            } else {
                to_->senders_.push_back(*this);
                this->park(*this, detail::channel_send_facts);
            }
        }
        [[gnu::cold]] void cancel() noexcept {
            this->unlink();
            end(errc::canceled);
        }
        void end(errc with) noexcept {
            ended_ = with;
            this->complete();
        }
        void finish_canceled() noexcept { ended_ = errc::canceled; }
        result<> outcome() noexcept { return ended_; }

        channel* to_;
        T value_;
        errc ended_ = errc::ok;
    };

    /// The operation of `receive`. Described at `receive`.
    class receive_operation final : public basic_operation<receive_operation, T>,
                                    private detail::wait_node<receiver_tag> {
        using base = basic_operation<receive_operation, T>;

    public:
        explicit receive_operation(channel& from) noexcept : base(nullptr), from_(&from) {}

        /// Only before it begins.
        receive_operation(receive_operation&& other) noexcept : base(std::move(other)), from_(other.from_) {}

    private:
        friend base;
        friend class channel;
        friend class detail::intrusive_list<receive_operation, receiver_tag>;

        void start() noexcept {
            from_->try_receive_into(value_);
            if (value_) {
                this->complete();
            } else if (from_->closed_) {
                end(errc::closed);
            } else {
                from_->receivers_.push_back(*this);
                this->park(*this, *from_->receive_facts_);
            }
        }
        [[gnu::cold]] void cancel() noexcept {
            this->unlink();
            end(errc::canceled);
        }
        void end(errc with) noexcept {
            ended_ = with;
            this->complete();
        }
        void finish_canceled() noexcept { ended_ = errc::canceled; }
        result<T> outcome() noexcept {
            if (value_) return *std::move(value_);
            return ended_;
        }

        channel* from_;
        std::optional<T> value_;
        errc ended_ = errc::ok;
    };

    /// Awaitable.
    /// Completes: when the value is queued or received; at once while there is room.
    /// Buffers: holds the value until then; it is destroyed when this ends with an error.
    /// Concurrency: any number may send; values keep the order in which the sends began.
    /// Errors: `errc::closed` when the channel is, or is closed while this waits.
    /// Cancellation: ends at once with `errc::canceled`; the value was not sent.
    /// Example:
    ///     co_await jobs.send(std::move(job));
    [[nodiscard]] send_operation send(T value) noexcept { return send_operation(*this, std::move(value)); }

    /// Awaitable.
    /// Completes: with the next value; at once when one is queued.
    /// Buffers: none.
    /// Concurrency: any number may receive; each value goes to the receiver that has waited longest.
    /// Errors: `errc::closed` when the channel is closed and empty.
    /// Cancellation: ends at once with `errc::canceled`; no value is lost.
    /// Example:
    ///     while (auto job = co_await as_result(jobs.receive())) run(*job);
    [[nodiscard]] receive_operation receive() noexcept { return receive_operation(*this); }

    /// Sends without waiting. False, and `value` as it was, when there is no room or the channel is closed.
    [[nodiscard]] bool try_send(T&& value) noexcept { return !closed_ && put(value); }

    /// Receives without waiting; empty when the channel is.
    [[nodiscard]] std::optional<T> try_receive() noexcept {
        std::optional<T> taken;
        try_receive_into(taken);
        return taken;
    }

    /// Later sends fail; queued values can still be received. Operations that wait end with `errc::closed`.
    [[gnu::cold]] void close() noexcept {
        closed_ = true;
        while (send_operation* sender = senders_.pop_front()) {
            sender->ended_ = errc::closed;
            sender->complete_by_user();
        }
        while (receive_operation* receiver = receivers_.pop_front()) {
            receiver->ended_ = errc::closed;
            receiver->complete_by_user();
        }
    }

    /// Whether `close` was called.
    [[nodiscard]] bool closed() const noexcept { return closed_; }
    /// Values sent and not yet received.
    [[nodiscard]] std::size_t size() const noexcept { return used_; }
    /// The constructor's argument.
    [[nodiscard]] std::size_t capacity() const noexcept { return slots_.size(); }

private:
    // Invariant: receivers wait only while no value is queued and no sender waits; senders wait only while it is full.
    bool put(T& value) noexcept {
        if (receive_operation* receiver = receivers_.pop_front()) {
            receiver->value_.emplace(std::move(value));
            receiver->complete_by_user();
            return true;
        }
        if (used_ == slots_.size()) return false;
        store(value);
        return true;
    }
    /// Into an empty one.
    void try_receive_into(std::optional<T>& taken) noexcept {
        if (used_ > 0) {
            taken.emplace(*std::move(slots_[first_]));
            slots_[first_].reset();
            first_ = next_of(first_);
            --used_;
            if (send_operation* sender = senders_.pop_front()) {
                store(sender->value_);
                sender->complete_by_user();
            }
        } else if (send_operation* sender = senders_.pop_front()) {
            taken.emplace(std::move(sender->value_));
            sender->complete_by_user();
        }
    }
    void store(T& value) noexcept {
        std::size_t at = first_ + used_;
        if (at >= slots_.size()) at -= slots_.size();
        slots_[at].emplace(std::move(value));
        ++used_;
    }
    [[nodiscard]] std::size_t next_of(std::size_t at) const noexcept {
        return at + 1 == slots_.size() ? 0 : at + 1;
    }

    std::vector<std::optional<T>> slots_;
    const detail::wait_facts* receive_facts_;
    std::size_t first_ = 0;
    std::size_t used_ = 0;
    detail::intrusive_list<send_operation, sender_tag> senders_;
    detail::intrusive_list<receive_operation, receiver_tag> receivers_;
    bool closed_ = false;
};

}  // namespace rdmacoro
