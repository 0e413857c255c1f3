// Sends, receives, probes and closes of endpoints and mailboxes: values that live in the frame that awaits them.
#pragma once

#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/memory/detail/owning_temporary.hpp>
#include <rdmacoro/messaging/detail/way.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/protocol/connection.hpp>

#include <concepts>
#include <utility>

namespace rdmacoro {

/// For `recv` and `recv_lent`: if the receive is canceled, the message that it would have taken is dropped. See `endpoint::recv`.
struct discard_if_canceled_t {};
inline constexpr discard_if_canceled_t
    discard_if_canceled{};  ///< `peer.recv(buffer, tag, discard_if_canceled)`

namespace detail {

// clang-format off: compilers show these lines with their comments

/// The overloads of an endpoint that refuse memory of any other type than the name says.
struct takes_text_vectors_and_spans {
    template <class Refused> requires(!sendable<Refused>)
    void send(Refused&&, ...) = delete;  // takes ranges of trivially copyable elements in a row; a value as bytes_of(value), a literal as std::string_view
    template <class Refused> requires(!sendable<Refused>)
    void ssend(Refused&&, ...) = delete;  // takes ranges of trivially copyable elements in a row; a value as bytes_of(value), a literal as std::string_view
    template <class Refused> requires(!receivable<Refused>)
    void recv(Refused&&, ...) = delete;  // takes ranges of trivially copyable elements in a row, neither const nor temporary; a value as bytes_of(value)
    template <class Refused> requires(!one_piece_to_write<Refused>)
    void rdma_get(const remote_region&, Refused&&) = delete;  // takes one range of trivially copyable elements in a row, neither const nor temporary; a value as bytes_of(value)
    template <class Refused> requires(!one_piece_to_read<Refused>)
    void rdma_put(Refused&&, const remote_region&) = delete;  // takes one range of trivially copyable elements in a row; a value as bytes_of(value), a literal as std::string_view
};
/// The same for a mailbox.
struct mailbox_takes_text_vectors_and_spans {
    template <class Refused> requires(!sendable<Refused>)
    void send(peer_id, Refused&&, ...) = delete;  // takes ranges of trivially copyable elements in a row; a value as bytes_of(value), a literal as std::string_view
    template <class Refused> requires(!sendable<Refused>)
    void ssend(peer_id, Refused&&, ...) = delete;  // takes ranges of trivially copyable elements in a row; a value as bytes_of(value), a literal as std::string_view
    template <class Refused> requires(!receivable<Refused>)
    void recv(Refused&&, ...) = delete;  // takes ranges of trivially copyable elements in a row, neither const nor temporary; a value as bytes_of(value)
    template <class Refused> requires(!one_piece_to_write<Refused>)
    void rdma_get(peer_id, const remote_region&, Refused&&) = delete;  // takes one range of trivially copyable elements in a row, neither const nor temporary; a value as bytes_of(value)
    template <class Refused> requires(!one_piece_to_read<Refused>)
    void rdma_put(peer_id, Refused&&, const remote_region&) = delete;  // takes one range of trivially copyable elements in a row; a value as bytes_of(value), a literal as std::string_view
};

// clang-format on

}  // namespace detail

/// A send. Described at `endpoint::send`.
template <class Connection>
class [[nodiscard]] send_operation
    : public basic_operation<send_operation<Connection>, void, detail::send_request> {
public:
    template <class Buffers>
    send_operation(detail::way<Connection> via, Buffers&& from, tag_type tag, bool synchronous) noexcept
        : send_operation::basic_operation(via.owner(), static_cast<Buffers&&>(from), tag, synchronous),
          connection_(via.to()) {}
    send_operation(send_operation&&) noexcept = default;

    void start() noexcept { connection_->send(*this); }
    void cancel() noexcept { connection_->cancel_send(*this); }
    void finish_canceled() noexcept { this->fail_unbegun(errc::canceled); }
    void finish_of_nothing() noexcept { this->fail_unbegun(errc::invalid_argument); }
    result<void> outcome() noexcept { return this->code_; }

private:
    Connection* connection_;
};

namespace detail {

/// A poller that leaves matching of receives and probes to its links.
template <class Poller>
concept delegating_poller = requires { requires Poller::delegates; };

/// The source that a receive or probe names, when it begins. One of an endpoint is of its peer, whatever that is called by then:
/// the endpoint may have been attached to a mailbox after the operation was made.
template <class Poller>
[[nodiscard, gnu::always_inline]] inline peer_id source_for(Poller& poller,
                                                            [[maybe_unused]] peer_id named) noexcept {
    if constexpr (requires { poller.source(); }) {
        return poller.source();
    } else {
        return named;
    }
}

/// A receive that drops its message when it is canceled.
template <class Receive>
[[nodiscard, gnu::always_inline]] inline Receive discarding(Receive made) noexcept {
    made.discards_ = true;
    return made;
}

/// The connection of a source, for the text of an error; nullptr: any, or none.
template <class Poller>
[[nodiscard, gnu::cold]] connection_base* connection_of(Poller& poller, peer_id source) noexcept {
    if constexpr (std::derived_from<Poller, connection_base>) {
        return &poller;
    } else if constexpr (requires { poller.find(source); }) {
        return source != any_source ? poller.find(source) : nullptr;
    } else {
        return nullptr;
    }
}

/// The message of a canceled receive is dropped when it comes.
template <class Poller>
[[gnu::cold]] void discard_later(Poller& poller, receive_request& r) noexcept {
    if (poller.why_not_from(r.source_)) return;
    discarding_receive* const instead = poller.mailbox().make_discarding(r);
    if (instead == nullptr) return;
    if constexpr (delegating_poller<Poller>) {
        poller.receive_here(*instead);
    } else {
        poller.mailbox().matching().post(*instead);
    }
}

/// A receive was canceled before it began: its message is dropped all the same.
template <class Poller>
[[gnu::cold]] void drop_unbegun(Poller& poller, receive_request& r) noexcept {
    r.source_ = source_for(poller, r.source_);
    mailbox_base& box = poller.mailbox();
    unexpected_message* const m = box.matching().find(r.source_, r.wanted_);
    if (m == nullptr) {
        discard_later(poller, r);
    } else {
        static_cast<void>(box.discard(*m));
    }
}

/// A receive begins: it takes a stored message, or is posted. `Poller` is a connection or a mailbox's state.
template <class Poller>
[[gnu::always_inline]] inline void begin_receive(Poller& poller, receive_request& r) noexcept {
    r.source_ = source_for(poller, r.source_);
    mailbox_base& box = poller.mailbox();
    if (box.matching().unexpected() != 0) {
        if (unexpected_message* m = box.matching().find(r.source_, r.wanted_)) {
            box.matching().remove(*m);
            connection_base::match(*m, r);
            return;
        }
    }
    if (const status why = poller.why_not_from(r.source_)) [[unlikely]] {
        r.filling_ = connection_of(poller, r.source_);
        r.finish(why);
        return;
    }
    if constexpr (delegating_poller<Poller>) {
        poller.receive(r);
        if (r.done()) return;
    } else {
        box.matching().post(r);
    }
    poller.poll_for(r.source_);
    if constexpr (Poller::speculates) {
        if (!r.done() && r.filling_ == nullptr) poller.posted(r);
    }
}

/// A receive that has begun is canceled; it ends now, or when neither a device nor the peer writes to its memory any more.
template <class Poller>
void cancel_receive(Poller& poller, receive_request& r) noexcept {
    if (r.filling_ != nullptr) {
        const bool with_link = delegating_poller<Poller> && r.posted_.place == receive_request::stage::posted;
        if (!r.filling_->forget_receive(r)) return;  // a device or the peer still writes to it
        if (with_link && r.discards_) discard_later(poller, r);
    } else {
        if constexpr (Poller::speculates) {
            if (!poller.cancel_posted(r))
                return;  // its buffer was announced, or that of a later receive behind it
        }
        poller.mailbox().leave(r);
    }
    r.filling_ = connection_of(poller, r.source_);
    r.finish(errc::canceled);
}

/// The common part of both kinds of receives. `Poller` is a connection or a mailbox's state.
template <class Derived, class T, class Poller>
class receive_base : public basic_operation<Derived, T, receive_request> {
public:
    template <class Buffers>
    receive_base(way<Poller> poller, tag_match wanted, peer_id source, Buffers&& into, loan* place) noexcept
        : receive_base::basic_operation(poller.owner(), wanted, source, static_cast<Buffers&&>(into), place),
          poller_(poller.to()) {}
    receive_base(receive_base&& other, loan* place) noexcept
        : receive_base::basic_operation(std::move(other), place), poller_(other.poller_) {}

    void start() noexcept { begin_receive(*poller_, *this); }
    void cancel() noexcept { cancel_receive(*poller_, *this); }
    void finish_canceled() noexcept {
        this->fail_unbegun(errc::canceled);
        if (this->discards_ && poller_ != nullptr) [[unlikely]]
            drop_unbegun(*poller_, *this);
    }
    void finish_of_nothing() noexcept { this->fail_unbegun(errc::invalid_argument); }

private:
    Poller* poller_;
};

}  // namespace detail

/// A receive into memory. Described at `endpoint::recv`.
template <class Poller>
class [[nodiscard]] receive_operation
    : public detail::receive_base<receive_operation<Poller>, received, Poller> {
public:
    template <class Buffers>
    receive_operation(detail::way<Poller> poller, Buffers&& into, tag_match wanted, peer_id source) noexcept
        : receive_operation::receive_base(poller, wanted, source, static_cast<Buffers&&>(into), nullptr) {}
    receive_operation(receive_operation&& other) noexcept
        : receive_operation::receive_base(std::move(other), nullptr) {}

    result<received> outcome() noexcept {
        if (this->code_) [[unlikely]]
            return this->code_;
        return this->got_;
    }
};

/// A receive of a lent message. Described at `endpoint::recv_lent`.
template <class Poller>
class [[nodiscard]] lent_receive_operation
    : public detail::receive_base<lent_receive_operation<Poller>, message, Poller> {
public:
    lent_receive_operation(detail::way<Poller> poller, tag_match wanted, peer_id source) noexcept
        : lent_receive_operation::receive_base(poller, wanted, source, mutable_buffers(), &memory_) {}
    lent_receive_operation(lent_receive_operation&& other) noexcept
        : lent_receive_operation::receive_base(std::move(other), &memory_) {}

    result<message> outcome() noexcept {
        if (this->code_) [[unlikely]]
            return this->code_;
        return message(this->got_, std::move(memory_));
    }

private:
    detail::loan memory_;
};

/// A probe. Described at `endpoint::probe`.
template <class Poller>
class [[nodiscard]] probe_operation
    : public basic_operation<probe_operation<Poller>, received, detail::probe_request> {
public:
    probe_operation(detail::way<Poller> poller, tag_match wanted, peer_id source) noexcept
        : probe_operation::basic_operation(poller.owner(), wanted, source), poller_(poller.to()) {}
    probe_operation(probe_operation&&) noexcept = default;

    void start() noexcept {
        this->source_ = detail::source_for(*poller_, this->source_);
        detail::matcher& matching = poller_->mailbox().matching();
        if (detail::unexpected_message* m = matching.find(this->source_, this->wanted_)) {
            this->got_ = {m->bytes, m->tag, m->source};
            this->finish({});
            return;
        }
        if (const detail::status why = poller_->why_not_from(this->source_)) {
            this->finish(why);
            return;
        }
        matching.add_probe(*this);
        if constexpr (detail::delegating_poller<Poller>) {
            poller_->look_for(this->source_);
            if (this->done()) return;
        }
        poller_->poll_for(this->source_);
    }
    void cancel() noexcept {
        poller_->mailbox().matching().withdraw(*this);
        this->finish(errc::canceled);
    }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    void finish_of_nothing() noexcept { this->code_ = errc::invalid_argument; }
    result<received> outcome() noexcept {
        if (this->code_) return this->code_;
        return this->got_;
    }

private:
    Poller* poller_;
};

/// An orderly close. Described at `endpoint::close`.
class [[nodiscard]] close_operation : public basic_operation<close_operation, void>,
                                      private detail::phase_waiter {
public:
    explicit close_operation(detail::way<detail::connection_base> of) noexcept
        : close_operation::basic_operation(of.owner()), of_(of.to()) {}
    close_operation(close_operation&&) noexcept = default;

    void start() noexcept {
        this->reached = [](detail::phase_waiter& self, std::error_code) noexcept {
            static_cast<close_operation&>(self).complete();
        };
        of_->begin_close(*this);
    }
    void cancel() noexcept {
        outcome_ = make_error_code(errc::canceled);
        of_->close(make_error_code(errc::closed));  // completes this
    }
    void finish_canceled() noexcept {
        outcome_ = make_error_code(errc::canceled);
        of_->close(make_error_code(errc::closed));
    }
    void finish_of_nothing() noexcept { outcome_ = make_error_code(errc::invalid_argument); }
    result<void> outcome() noexcept { return outcome_; }

private:
    detail::connection_base* of_;
    std::error_code outcome_{};
};

}  // namespace rdmacoro
