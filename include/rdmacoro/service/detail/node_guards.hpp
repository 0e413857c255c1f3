// Objects that mark what a node has under way with others for as long as they live: connections accepted and attempts made.
#pragma once

#include <rdmacoro/coro/detail/counted.hpp>
#include <rdmacoro/coro/local_stop.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/detail/node_core.hpp>

#include <utility>

namespace rdmacoro::detail {

/// An accepted connection without a hello of its peer yet, or with one that is refused. The node counted it as one of its `strangers` before.
class node_stranger : public list_node<node_stranger> {
public:
    explicit node_stranger(node_core& of) noexcept : of_(of), since_(of.owner.now()) {
        of_.silent.push_back(*this);
    }
    node_stranger(const node_stranger&) = delete;
    node_stranger& operator=(const node_stranger&) = delete;
    ~node_stranger() {
        spoke();
        --of_.strangers;
        of_.stranger_gone.set();
        of_.stranger_gone.reset();
    }

    /// Its hello has arrived: it need not give way any more.
    void spoke() noexcept { unlink(); }
    /// Its hello is refused: it gives way as one that is silent from now on.
    void refused() noexcept {
        unlink();
        since_ = of_.owner.now();
        of_.silent.push_back(*this);
    }
    /// Ends the wait for its hello, or for its end, in favor of another one.
    void give_way() noexcept {
        spoke();
        gives_way_.request_stop();
    }
    /// Stopped when it has to give way.
    [[nodiscard]] local_stop_token token() noexcept { return gives_way_.get_token(); }
    [[nodiscard]] time_point since() const noexcept { return since_; }

private:
    node_core& of_;
    time_point since_;
    local_stop_source gives_way_;
};

/// Awaits room for one more that has not said which node it is. Where there is none, the one that has been silent, or refused, for the longest
/// time gives way, after a tenth of the limit for a hello at the earliest: silent ones cannot keep nodes out for as long as they like.
[[nodiscard]] task<> room_for_stranger(node_core& of);

/// A connection of the peer's that waits for room. This side makes no attempt of its own meanwhile.
class node_accepting {
public:
    explicit node_accepting(counted_ptr<node_peer> from) noexcept : from_(std::move(from)) {
        ++from_->accepting;
        ++from_->own;
    }
    node_accepting(const node_accepting&) = delete;
    node_accepting& operator=(const node_accepting&) = delete;
    ~node_accepting() {
        --from_->accepting;
        --from_->own;
        from_->change();
    }

private:
    counted_ptr<node_peer> from_;
};

/// An accepted connection that the other node has not taken yet: that one may give its attempt up, and the connection is none then.
class node_agreeing {
public:
    explicit node_agreeing(node_core& in) noexcept : in_(in) { ++in_.agreeing; }
    node_agreeing(const node_agreeing&) = delete;
    node_agreeing& operator=(const node_agreeing&) = delete;
    ~node_agreeing() {
        --in_.agreeing;
        in_.agreed.set();
        in_.agreed.reset();
    }
    /// Longer than the other node's attempt, where both have the same limits: of two ends of a connection the one that connects
    /// gives it up.
    [[nodiscard]] duration limit() const noexcept {
        const time_point now = in_.owner.now();
        return deadline_after(deadline_after(now, in_.options.hello_limit), in_.options.attempt_limit) - now;
    }

private:
    node_core& in_;
};

/// An attempt to connect to the peer, which `node_peer::attempt` can end, unless another one took its place.
class node_attempt {
public:
    explicit node_attempt(node_peer& to) noexcept : to_(to) { to_.attempt = &abandon_; }
    node_attempt(const node_attempt&) = delete;
    node_attempt& operator=(const node_attempt&) = delete;
    ~node_attempt() {
        if (to_.attempt == &abandon_) to_.attempt = nullptr;
    }
    [[nodiscard]] local_stop_token token() noexcept { return abandon_.get_token(); }

private:
    node_peer& to_;
    local_stop_source abandon_;
};

/// An attempt to connect to the peer, which says hello meanwhile or not.
class node_hello_said {
public:
    explicit node_hello_said(node_peer& to) noexcept : to_(to) {}
    node_hello_said(const node_hello_said&) = delete;
    node_hello_said& operator=(const node_hello_said&) = delete;
    ~node_hello_said() { to_.hello_sent = false; }

private:
    node_peer& to_;
};

/// The coroutine that makes connections to the peer, from its first attempt until it gives up or has succeeded.
class node_connecting {
public:
    explicit node_connecting(counted_ptr<node_peer> to) noexcept : to_(std::move(to)) { ++to_->own; }
    node_connecting(const node_connecting&) = delete;
    node_connecting& operator=(const node_connecting&) = delete;
    ~node_connecting() {
        to_->connecting = false;
        --to_->own;
        to_->change();
    }
    [[nodiscard]] node_peer& to() const noexcept { return *to_; }

private:
    counted_ptr<node_peer> to_;
};

/// Gives a place among the connections back, unless a connection has it.
class node_place {
public:
    explicit node_place(node_core& of) noexcept : of_(&of) {}
    node_place(node_place&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    node_place& operator=(node_place&&) = delete;
    ~node_place() {
        if (of_ != nullptr) of_->give_place();
    }
    /// A connection has it from now on.
    void taken() noexcept { of_ = nullptr; }

private:
    node_core* of_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/node_guards.ipp>
#endif
