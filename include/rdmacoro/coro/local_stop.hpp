// Stop requests within one scheduler: as std::stop_token, but for one thread, without atomics or allocation.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>

namespace rdmacoro {

class local_stop_source;

/// A reference to a `local_stop_source`, or to nothing (then it never stops). The source must outlive it. Only for use
/// on the thread that owns the scheduler; `with_stop` and `scheduler::run` bridge a `std::stop_token` to it.
class local_stop_token {
public:
    local_stop_token() noexcept = default;

    /// Whether its source, or one that the source follows, was asked to stop.
    [[nodiscard]] inline bool stop_requested() const noexcept;
    /// Whether the token has a source.
    [[nodiscard]] bool stop_possible() const noexcept { return source_ != nullptr; }

    /// Whether the token is of `whole`, or of a source that follows it, directly or not.
    [[nodiscard]] bool is_part_of(const local_stop_source& whole) const noexcept;

private:
    friend class local_stop_source;
    friend class local_stop_callback;
    explicit local_stop_token(local_stop_source* source) noexcept : source_(source) {}

    local_stop_source* source_ = nullptr;
};

/// A function called once when a source is asked to stop, while it is attached.
class local_stop_callback : private detail::list_node<local_stop_callback> {
public:
    /// Called once, on the scheduler's thread, when a stop is requested.
    using function = void (*)(local_stop_callback&) noexcept;

    local_stop_callback() noexcept = default;
    ~local_stop_callback() { unlink(); }

    /// Attaches to the token's source. Does nothing when the token has none. The token must not have been stopped yet.
    inline void attach(local_stop_token token, function call) noexcept;
    /// Is not called any more.
    void detach() noexcept { unlink(); }
    /// Whether it is still to be called.
    [[nodiscard]] bool attached() const noexcept { return linked(); }

private:
    friend class local_stop_source;
    friend class detail::intrusive_list<local_stop_callback, local_stop_callback>;

    function call_;  // set while attached
};

/// Asks everything attached to its tokens to stop, once and for good.
class local_stop_source {
public:
    local_stop_source() noexcept = default;

    /// A source that also stops when `parent` does.
    explicit local_stop_source(local_stop_token parent) noexcept { follow(parent); }

    /// Stops when `parent` does, and at once when it already has. One parent at a time, which must outlive this source or
    /// be left by `unfollow`.
    void follow(local_stop_token parent) noexcept;
    /// Undoes `follow`.
    void unfollow() noexcept;

    /// Makes this source a part of the source of `whole` (see `is_part_of`), without stopping with it. Returns the former
    /// one's token.
    local_stop_token belong_to(local_stop_token whole) noexcept;

    /// A token of this source, which must outlive the token's uses.
    [[nodiscard]] local_stop_token get_token() noexcept { return local_stop_token(this); }
    /// Whether a stop was requested.
    [[nodiscard]] bool stop_requested() const noexcept { return requested_; }

    /// Calls every attached function once. A function may attach and detach others. An operation that is asked to stop on another thread
    /// than its scheduler's ends the process with a message: other threads use a `std::stop_source`, by `with_stop` or `run`.
    void request_stop() noexcept;

private:
    friend class local_stop_callback;
    friend class local_stop_token;
    struct link_up : local_stop_callback {
        local_stop_source* owner = nullptr;
    };

    bool requested_ = false;
    local_stop_source* whole_ = nullptr;
    detail::intrusive_list<local_stop_callback, local_stop_callback> callbacks_;
    link_up upstream_;
};

inline bool local_stop_token::stop_requested() const noexcept {
    return source_ != nullptr && source_->stop_requested();
}

inline void local_stop_callback::attach(local_stop_token token, function call) noexcept {
    if (token.source_ == nullptr) return;
    call_ = call;
    token.source_->callbacks_.push_back(*this);
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/local_stop.ipp>
#endif
