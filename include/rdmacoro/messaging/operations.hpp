// The operations of endpoints and mailboxes: values that live in the frame that awaits them.
#pragma once

#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/memory/detail/owning_temporary.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/protocol/connection.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>

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

namespace detail {

/// The target of an operation, and the scheduler that runs it: a connection, a link or a mailbox's state. Without one it is an
/// operation of nothing.
template <class Target>
class way {
public:
    way() noexcept = default;
    way(Target* to, scheduler* owner) noexcept : to_(to), owner_(owner) {}
    way(Target& to) noexcept : to_(&to), owner_(owner_of(to)) {}
    /// As a way to its base.
    template <class Derived>
        requires std::derived_from<Derived, Target>
    way(const way<Derived>& other) noexcept : to_(other.to()), owner_(other.owner()) {}

    [[nodiscard]] Target* to() const noexcept { return to_; }
    [[nodiscard]] scheduler* owner() const noexcept { return owner_; }

    /// To the connection's link.
    [[nodiscard]] auto link() const noexcept {
        using link_type = std::remove_reference_t<decltype(to_->link())>;
        return to_ != nullptr ? way<link_type>(&to_->link(), owner_) : way<link_type>();
    }

private:
    [[nodiscard]] static scheduler* owner_of(Target& to) noexcept {
        if constexpr (requires { to.mailbox(); }) {
            return &to.mailbox().owner();
        } else {
            return &to.owner();
        }
    }

    Target* to_ = nullptr;
    scheduler* owner_ = no_scheduler();
};

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
    discarding_receive* const instead = poller.mailbox().make_discarding(r.wanted_, r.source_);
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

namespace detail {
/// The common part of gets, puts and atomics: how they are canceled and how they end.
template <class Derived, class Link, class Value>
class one_sided_base : public basic_operation<Derived, Value>, private parked_wait {
public:
    one_sided_base(one_sided_base&& other) noexcept
        : one_sided_base::basic_operation(std::move(other)),
          parked_wait(std::move(other)),
          link_(other.link_),
          via_(other.via_),
          there_(other.there_) {}

    void cancel() noexcept {
        if (!link_->capabilities().revokes_at_once) return;  // ends when the device is done with the memory
        static_cast<void>(link_->revoke(hook_));
        end(make_error_code(errc::canceled));
    }
    void finish_canceled() noexcept { fail_unbegun(errc::canceled); }
    void finish_of_nothing() noexcept { fail_unbegun(errc::invalid_argument); }
    [[nodiscard]] error_facts facts() const noexcept {
        return {.info = 0, .bytes = there_.length, .peer = noted_.peer};
    }

protected:
    template <class Connection>
    one_sided_base(way<Connection> via, const remote_region& there) noexcept
        : one_sided_base::basic_operation(via.owner()),
          link_(via.link().to()),
          via_(via.to()),
          there_(there) {}

    /// `post` is given the completion to call in the end.
    template <class Post>
    void begin(const wait_facts& facts, Post post) noexcept {
        hook_.self = this;
        hook_.done = [](completion& c, std::error_code outcome) noexcept {
            static_cast<hook&>(c).self->end(outcome);
        };
        const post_result answer = post(hook_);
        if (answer == post_result::posted) this->park(*this, facts);
        if (answer == post_result::done) end({});
        if (answer == post_result::failed) end(make_error_code(errc::closed));
        if (answer == post_result::retry) end(make_error_code(errc::no_resources));
    }
    void end(std::error_code outcome) noexcept {
        outcome_ = outcome;
        if (outcome) [[unlikely]]
            noted_.note(via_);
        this->complete();
    }
    [[gnu::cold]] void fail_unbegun(errc code) noexcept {
        outcome_ = make_error_code(code);
        noted_.forget();
    }

    Link* link_;
    const connection_base* via_;
    remote_region there_;
    noted_peer noted_;  // set when it has failed
    std::error_code outcome_{};

    [[gnu::cold]] static void more(const parked_wait& of, pending_operation& into) {
        const auto& self = static_cast<const one_sided_base&>(of);
        into.peer = self.link_->peer_name();
        into.bytes = static_cast<std::size_t>(self.there_.length);
        into.next = transfers_of(*self.link_);
    }

private:
    struct hook : completion {
        one_sided_base* self = nullptr;
        hook() noexcept = default;
        hook(hook&&) noexcept {}  // an operation moves only before it begins
    };
    hook hook_;
};
}  // namespace detail

/// A get or put. Described at `endpoint::rdma_get`.
template <class Link>
class [[nodiscard]] one_sided_operation
    : public detail::one_sided_base<one_sided_operation<Link>, Link, void> {
public:
    template <class Connection>
    one_sided_operation(detail::way<Connection> via, const remote_region& there, std::span<std::byte> here,
                        bool read) noexcept
        : one_sided_operation::one_sided_base(via, there), here_(here), read_(read) {}
    one_sided_operation(one_sided_operation&&) noexcept = default;

    void start() noexcept {
        if (this->there_.length != here_.size()) {
            this->end(make_error_code(errc::invalid_argument));
            return;
        }
        this->begin(read_ ? get_facts : put_facts, [this](completion& c) noexcept {
            return read_ ? this->link_->get(this->there_, here_, c)
                         : this->link_->put(here_, this->there_, c);
        });
    }
    result<void> outcome() noexcept { return this->outcome_; }
    [[nodiscard]] error_facts facts() const noexcept {
        error_facts about = base::facts();
        if (this->there_.length != here_.size()) about.info = here_.size();
        return about;
    }
    [[noreturn, gnu::cold]] void throw_failure() const {
        detail::throw_one_sided(this->outcome_, read_ ? "rdma_get of " : "rdma_put of ", this->noted_,
                                facts());
    }

private:
    using base = detail::one_sided_base<one_sided_operation<Link>, Link, void>;
    static constexpr detail::wait_facts get_facts{"rdma_get", "is under way", next_actor::network,
                                                  &base::more};
    static constexpr detail::wait_facts put_facts{"rdma_put", "is under way", next_actor::network,
                                                  &base::more};

    std::span<std::byte> here_;
    bool read_;
};

/// An atomic on the peer's memory. Described at `endpoint::rdma_fetch_add` and `rdma_compare_swap`.
template <class Link>
class [[nodiscard]] atomic_operation
    : public detail::one_sided_base<atomic_operation<Link>, Link, std::uint64_t> {
public:
    /// Which of the two.
    enum class kind : std::uint8_t { fetch_add, compare_swap };

    template <class Connection>
    atomic_operation(detail::way<Connection> via, const remote_region& there, kind what, std::uint64_t first,
                     std::uint64_t second) noexcept
        : atomic_operation::one_sided_base(via, there), what_(what), first_(first), second_(second) {}
    atomic_operation(atomic_operation&&) noexcept = default;

    void start() noexcept {
        this->begin(what_ == kind::fetch_add ? add_facts : swap_facts, [this](completion& c) noexcept {
            return what_ == kind::fetch_add
                       ? this->link_->fetch_add(this->there_, first_, was_, c)
                       : this->link_->compare_swap(this->there_, first_, second_, was_, c);
        });
    }
    result<std::uint64_t> outcome() noexcept {
        if (this->outcome_) return this->outcome_;
        return was_;
    }
    [[noreturn, gnu::cold]] void throw_failure() const {
        detail::throw_one_sided(this->outcome_,
                                what_ == kind::fetch_add ? "rdma_fetch_add of " : "rdma_compare_swap of ",
                                this->noted_, this->facts());
    }

private:
    using base = detail::one_sided_base<atomic_operation<Link>, Link, std::uint64_t>;
    static constexpr detail::wait_facts add_facts{"rdma_fetch_add", "is under way", next_actor::network,
                                                  &base::more};
    static constexpr detail::wait_facts swap_facts{"rdma_compare_swap", "is under way", next_actor::network,
                                                   &base::more};

    kind what_;
    std::uint64_t first_;
    std::uint64_t second_;
    std::uint64_t was_ = 0;
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
