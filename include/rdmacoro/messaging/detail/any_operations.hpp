// Operations of a connection without the types of its transport and its list, for layers that are compiled once for all of them.
#pragma once

#include <rdmacoro/messaging/operations.hpp>

#include <concepts>
#include <coroutine>
#include <span>
#include <utility>

namespace rdmacoro::detail {

/// The functions by which an operation reaches its connection, for connections of one type.
struct connection_functions {
    void (*send)(connection_base& to, send_request& r) noexcept;
    void (*receive)(connection_base& from, receive_request& r) noexcept;
    void (*cancel_receive)(connection_base& from, receive_request& r) noexcept;
    void (*drop_unbegun)(connection_base& from, receive_request& r) noexcept;
};

template <class Connection>
struct functions_of {
    static void send(connection_base& to, send_request& r) noexcept { static_cast<Connection&>(to).send(r); }
    static void receive(connection_base& from, receive_request& r) noexcept {
        begin_receive(static_cast<Connection&>(from), r);
    }
    static void cancel_receive(connection_base& from, receive_request& r) noexcept {
        detail::cancel_receive(static_cast<Connection&>(from), r);
    }
    static void drop_unbegun(connection_base& from, receive_request& r) noexcept {
        detail::drop_unbegun(static_cast<Connection&>(from), r);
    }

    static constexpr connection_functions table{&send, &receive, &cancel_receive, &drop_unbegun};
};

/// A connection of any type. Refers to it.
class any_connection {
public:
    template <class Connection>
        requires std::derived_from<Connection, connection_base>
    any_connection(Connection& to) noexcept : to_(&to), by_(&functions_of<Connection>::table) {}

    [[nodiscard]] connection_base& base() const noexcept { return *to_; }
    [[nodiscard]] const connection_functions& functions() const noexcept { return *by_; }
    [[nodiscard]] scheduler& owner() const noexcept { return to_->mailbox().owner(); }

private:
    connection_base* to_;
    const connection_functions* by_;
};

/// As `endpoint::send`.
class [[nodiscard]] any_send final : public basic_operation<any_send, void, send_request> {
public:
    template <class Buffers>
    any_send(const any_connection& to, Buffers&& from, tag_type tag) noexcept
        : basic_operation(&to.owner(), static_cast<Buffers&&>(from), tag, false), to_(to) {}
    any_send(any_send&&) noexcept = default;

    void start() noexcept { to_.functions().send(to_.base(), *this); }
    void cancel() noexcept { to_.base().cancel_send(*this); }
    void finish_canceled() noexcept { this->fail_unbegun(errc::canceled); }
    result<void> outcome() noexcept { return this->code_; }

private:
    any_connection to_;
};

/// The common part of receives.
template <class Derived, class T>
class any_receive_base : public basic_operation<Derived, T, receive_request> {
public:
    template <class Buffers>
    any_receive_base(const any_connection& from, tag_match wanted, Buffers&& into, loan* place) noexcept
        : any_receive_base::basic_operation(&from.owner(), wanted, peer_id{0}, static_cast<Buffers&&>(into),
                                            place),
          from_(from) {}
    any_receive_base(any_receive_base&& other, loan* place) noexcept
        : any_receive_base::basic_operation(std::move(other), place), from_(other.from_) {}

    void start() noexcept { from_.functions().receive(from_.base(), *this); }
    void cancel() noexcept { from_.functions().cancel_receive(from_.base(), *this); }
    void finish_canceled() noexcept {
        this->fail_unbegun(errc::canceled);
        if (this->discards_) [[unlikely]]
            from_.functions().drop_unbegun(from_.base(), *this);
    }

private:
    any_connection from_;
};

/// As `endpoint::recv_lent`. `discards`: with `discard_if_canceled`, beyond `mailbox_options::canceled_receives` too: an answer comes for a
/// request that the peer has taken, and it limits those.
class [[nodiscard]] any_lent_receive final : public any_receive_base<any_lent_receive, message> {
public:
    any_lent_receive(const any_connection& from, tag_match wanted, bool discards = false) noexcept
        : any_receive_base(from, wanted, mutable_buffers(), &memory_) {
        this->discards_ = this->discards_always_ = discards;
    }
    any_lent_receive(any_lent_receive&& other) noexcept : any_receive_base(std::move(other), &memory_) {}

    result<message> outcome() noexcept {
        if (this->code_) [[unlikely]]
            return this->code_;
        return message(this->got_, std::move(memory_));
    }
    /// When it has ended well: the message, which stays here.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return memory_.bytes(); }

    /// Awaitable. Completes when the receive has ended, well or not, and leaves its outcome here: nothing is copied or moved.
    class [[nodiscard]] end {
    public:
        explicit end(any_lent_receive& of) noexcept : of_(of) {}
        void bind(const environment& env) noexcept { of_.bind(env); }
        bool await_ready() noexcept { return of_.await_ready(); }
        void await_suspend(std::coroutine_handle<> awaiting) noexcept { of_.await_suspend(awaiting); }
        [[nodiscard]] bool ended_at_once() const noexcept { return of_.ended_at_once(); }
        void await_resume() const noexcept {}

    private:
        any_lent_receive& of_;
    };
    [[nodiscard]] end until_ended() noexcept { return end(*this); }

private:
    loan memory_;
};

/// As `endpoint::recv`, with `discard_if_canceled`.
class [[nodiscard]] any_receive final : public any_receive_base<any_receive, received> {
public:
    any_receive(const any_connection& from, tag_match wanted, const mutable_buffers& into) noexcept
        : any_receive_base(from, wanted, into, nullptr) {
        this->discards_ = this->discards_always_ = true;
    }
    any_receive(any_receive&& other) noexcept : any_receive_base(std::move(other), nullptr) {}

    result<received> outcome() noexcept {
        if (this->code_) [[unlikely]]
            return this->code_;
        return this->got_;
    }
};

}  // namespace rdmacoro::detail
