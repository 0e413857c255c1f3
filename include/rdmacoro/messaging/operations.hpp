// The operations of endpoints and mailboxes: values that live in the frame that awaits them.
#pragma once

#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/protocol/connection.hpp>

#include <cstdint>
#include <span>

namespace rdmacoro {

/// A send. Described at `endpoint::send`.
template <class Connection>
class [[nodiscard]] send_operation
    : public basic_operation<send_operation<Connection>, void, detail::send_request> {
public:
    template <class Buffers>
    send_operation(Connection& via, Buffers&& from, tag_type tag, bool synchronous) noexcept
        : send_operation::basic_operation(&via.box().owner(), static_cast<Buffers&&>(from), tag, synchronous),
          connection_(&via) {}
    send_operation(send_operation&&) noexcept = default;

    void start() noexcept { connection_->send(*this); }
    void cancel() noexcept { connection_->cancel_send(*this); }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<void> outcome() noexcept { return this->code_; }

private:
    Connection* connection_;
};

namespace detail {

/// Who has receives and probes matched by its links.
template <class Poller>
concept delegating_poller = requires { requires Poller::delegates; };

/// What receives of both kinds share. `Poller` is a connection or a mailbox's core.
template <class Derived, class T, class Poller>
class receive_base : public basic_operation<Derived, T, receive_request> {
public:
    template <class Buffers>
    receive_base(Poller& poller, tag_match wanted, peer_id source, Buffers&& into, lent_buffer* loan) noexcept
        : receive_base::basic_operation(&poller.box().owner(), wanted, source, static_cast<Buffers&&>(into),
                                        loan),
          poller_(&poller) {}
    receive_base(receive_base&& other, lent_buffer* loan) noexcept
        : receive_base::basic_operation(std::move(other), loan), poller_(other.poller_) {}

    void start() noexcept {
        mailbox_base& box = poller_->box();
        if (box.matching().unexpected() != 0) {
            if (unexpected_message* m = box.matching().find(this->source_, this->wanted_)) {
                box.matching().remove(*m);
                connection_base::meet(*m, *this);
                return;
            }
        }
        if (const status why = poller_->why_not_from(this->source_)) [[unlikely]] {
            this->finish(why);
            return;
        }
        if constexpr (delegating_poller<Poller>) {
            poller_->receive(*this);
            if (this->done()) return;
        } else {
            box.matching().post(*this);
        }
        poller_->poll_for(this->source_);
        if constexpr (Poller::speculates) {
            if (!this->done() && this->filling_ == nullptr) poller_->posted(*this);
        }
    }
    void cancel() noexcept {
        if (this->filling_ != nullptr) {
            if (!this->filling_->forget_receive(*this)) return;  // a device or the peer still writes to it
        } else {
            if constexpr (Poller::speculates) {
                if (!poller_->cancel_posted(*this))
                    return;  // its buffer was announced, or one that counts on it
            }
            poller_->box().matching().withdraw(*this);
        }
        this->finish(errc::canceled);
    }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }

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
    receive_operation(Poller& poller, Buffers&& into, tag_match wanted, peer_id source) noexcept
        : receive_operation::receive_base(poller, wanted, source, static_cast<Buffers&&>(into), nullptr) {}
    receive_operation(receive_operation&& other) noexcept
        : receive_operation::receive_base(std::move(other), nullptr) {}

    result<received> outcome() noexcept {
        if (this->code_) [[unlikely]]
            return {this->code_, this->info_};
        return this->got_;
    }
};

/// A receive of a lent message. Described at `endpoint::recv_lent`.
template <class Poller>
class [[nodiscard]] lent_receive_operation
    : public detail::receive_base<lent_receive_operation<Poller>, message, Poller> {
public:
    lent_receive_operation(Poller& poller, tag_match wanted, peer_id source) noexcept
        : lent_receive_operation::receive_base(poller, wanted, source, mutable_buffers(), &memory_) {}
    lent_receive_operation(lent_receive_operation&& other) noexcept
        : lent_receive_operation::receive_base(std::move(other), &memory_) {}

    result<message> outcome() noexcept {
        if (this->code_) return {this->code_, this->info_};
        return message(this->got_, std::move(memory_));
    }

private:
    lent_buffer memory_;
};

/// A probe. Described at `endpoint::probe`.
template <class Poller>
class [[nodiscard]] probe_operation
    : public basic_operation<probe_operation<Poller>, received, detail::probe_request> {
public:
    probe_operation(Poller& poller, tag_match wanted, peer_id source) noexcept
        : probe_operation::basic_operation(&poller.box().owner(), wanted, source), poller_(&poller) {}
    probe_operation(probe_operation&&) noexcept = default;

    void start() noexcept {
        detail::matcher& matching = poller_->box().matching();
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
        this->unlink();
        this->finish(errc::canceled);
    }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<received> outcome() noexcept {
        if (this->code_) return this->code_;
        return this->got_;
    }

private:
    Poller* poller_;
};

namespace detail {
/// What gets, puts and atomics share: how they are canceled and how they end.
template <class Derived, class Link, class Value>
class one_sided_base : public basic_operation<Derived, Value> {
public:
    one_sided_base(one_sided_base&&) noexcept = default;

    void cancel() noexcept {
        if (!link_->capabilities().revokes_at_once) return;  // ends when the device is done with the memory
        static_cast<void>(link_->revoke(hook_));
        end(make_error_code(errc::canceled));
    }
    void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }

protected:
    one_sided_base(Link& link, const remote_region& there) noexcept
        : one_sided_base::basic_operation(&link.owner()), link_(&link), there_(there) {}

    /// `post` is told what to call in the end.
    template <class Post>
    void begin(Post post) noexcept {
        hook_.self = this;
        hook_.done = [](completion& c, std::error_code outcome) noexcept {
            static_cast<hook&>(c).self->end(outcome);
        };
        const post_result answer = post(hook_);
        if (answer == post_result::done) end({});
        if (answer == post_result::failed) end(make_error_code(errc::closed));
        if (answer == post_result::retry) end(make_error_code(errc::no_resources));
    }
    void end(std::error_code outcome) noexcept {
        outcome_ = outcome;
        this->complete();
    }

    Link* link_;
    remote_region there_;
    std::error_code outcome_{};

private:
    struct hook : completion {
        one_sided_base* self = nullptr;
        hook() noexcept = default;
        hook(hook&&) noexcept {}  // only one that has not begun moves
    };
    hook hook_;
};
}  // namespace detail

/// A get or put. Described at `endpoint::rdma_get`.
template <class Link>
class [[nodiscard]] one_sided_operation
    : public detail::one_sided_base<one_sided_operation<Link>, Link, void> {
public:
    one_sided_operation(Link& link, const remote_region& there, std::span<std::byte> here, bool read) noexcept
        : one_sided_operation::one_sided_base(link, there), here_(here), read_(read) {}
    one_sided_operation(one_sided_operation&&) noexcept = default;

    void start() noexcept {
        if (this->there_.length != here_.size()) {
            this->end(make_error_code(errc::invalid_argument));
            return;
        }
        this->begin([this](completion& c) noexcept {
            return read_ ? this->link_->get(this->there_, here_, c)
                         : this->link_->put(here_, this->there_, c);
        });
    }
    result<void> outcome() noexcept { return this->outcome_; }

private:
    std::span<std::byte> here_;
    bool read_;
};

/// An atomic on the peer's memory. Described at `endpoint::rdma_fetch_add` and `rdma_compare_swap`.
template <class Link>
class [[nodiscard]] atomic_operation
    : public detail::one_sided_base<atomic_operation<Link>, Link, std::uint64_t> {
public:
    enum class kind : std::uint8_t { fetch_add, compare_swap };

    atomic_operation(Link& link, const remote_region& there, kind what, std::uint64_t first,
                     std::uint64_t second) noexcept
        : atomic_operation::one_sided_base(link, there), what_(what), first_(first), second_(second) {}
    atomic_operation(atomic_operation&&) noexcept = default;

    void start() noexcept {
        this->begin([this](completion& c) noexcept {
            return what_ == kind::fetch_add
                       ? this->link_->fetch_add(this->there_, first_, was_, c)
                       : this->link_->compare_swap(this->there_, first_, second_, was_, c);
        });
    }
    result<std::uint64_t> outcome() noexcept {
        if (this->outcome_) return this->outcome_;
        return was_;
    }

private:
    kind what_;
    std::uint64_t first_;
    std::uint64_t second_;
    std::uint64_t was_ = 0;
};

/// An orderly close. Described at `endpoint::close`.
template <class Connection>
class [[nodiscard]] close_operation : public basic_operation<close_operation<Connection>, void>,
                                      private detail::phase_waiter {
public:
    explicit close_operation(Connection& of) noexcept
        : close_operation::basic_operation(&of.box().owner()), of_(&of) {}
    close_operation(close_operation&&) noexcept = default;

    void start() noexcept {
        this->reached = [](detail::phase_waiter& self, std::error_code) noexcept {
            static_cast<close_operation&>(self).complete();
        };
        of_->begin_close(*this);
    }
    void cancel() noexcept {
        outcome_ = make_error_code(errc::canceled);
        of_->close(make_error_code(errc::closed));  // tells us
    }
    void finish_canceled() noexcept {
        outcome_ = make_error_code(errc::canceled);
        of_->close(make_error_code(errc::closed));
    }
    result<void> outcome() noexcept { return outcome_; }

private:
    Connection* of_;
    std::error_code outcome_{};
};

}  // namespace rdmacoro
