// How endpoints open: the handshake of a new endpoint, and the endpoints that a listener has accepted. Compiled once
// for all transports and lists; the templates here have no parameter but a default, so that units without a connect or
// listener have no coroutine.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/detail/wait_node.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/semaphore.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/detail/endpoint_base.hpp>
#include <rdmacoro/transport/detail/host_places.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace rdmacoro::detail {

/// Ends when the handshake is over, or with the reason why it failed.
class open_operation : public basic_operation<open_operation, void>, private phase_waiter {
public:
    explicit open_operation(connection_base& of) noexcept
        : open_operation::basic_operation(&of.mailbox().owner()), of_(of) {}
    void start() noexcept {
        reached = [](phase_waiter& self, std::error_code outcome) noexcept {
            auto& here = static_cast<open_operation&>(self);
            here.outcome_ = outcome;
            here.complete();
        };
        // A peer may have said its word and goodbye before this begins.
        if (of_.has_opened()) {
            reached(*this, {});
        } else if (of_.is_down()) {
            reached(*this, of_.reason());
        } else {
            of_.opener() = this;
        }
    }
    void cancel() noexcept {
        of_.opener() = nullptr;
        reached(*this, make_error_code(errc::canceled));
    }
    void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }
    result<void> outcome() noexcept { return outcome_; }

private:
    connection_base& of_;
    std::error_code outcome_{};
};

/// Throws the reason why the handshake of `fresh` failed.
[[noreturn, gnu::cold]] inline void throw_refused(const connection_base& fresh, std::error_code why) {
    throw error(why, fresh.refusal().empty() ? fresh.peer_name() : fresh.refusal());
}

}  // namespace rdmacoro::detail

namespace rdmacoro {
/// Why a listener dropped a peer. See `listener::last_refusal`.
struct listener_refusal {
    std::error_code why{};  ///< zero: none was refused yet
    std::string text;       ///< the peer, and what did not fit, such as both sides' protocol lists
};
}  // namespace rdmacoro

namespace rdmacoro::detail {

inline constexpr wait_facts accept_facts{"accept", "no peer has connected and shaken hands",
                                         next_actor::peer_connect};
inline constexpr wait_facts connect_pause_facts{"connect", "the last attempt failed, the next one is to come",
                                                next_actor::time};
inline constexpr wait_facts connect_facts{"connect", "the listener has not answered",
                                          next_actor::peer_accept};

/// A listener without the types of its transport and protocols.
class listener_base {
public:
    listener_base(const listener_base&) = delete;
    listener_base& operator=(const listener_base&) = delete;
    [[gnu::cold]] virtual ~listener_base() {
        if (!accepting_.empty()) fatal("a listener was destroyed while a coroutine waits for its next peer");
        while (endpoint_base* const waits = ready_.pop_front()) delete waits;
    }

    [[nodiscard]] std::uint64_t refused() const noexcept { return refused_; }
    [[nodiscard]] const listener_refusal& last_refusal() const noexcept { return last_refusal_; }

    /// Waits until a place is free for a peer of the host `newcomer`, and makes one: the oldest that has connected and said nothing gives
    /// way, of the host with the most of them, at once if that holds more than the newcomer's host, or after a tenth of its time. If the
    /// newcomer's host holds much it may return sooner, without a place: it may be time to `refuse` it.
    template <class = void>
    [[gnu::cold]] static task<> find_place(listener_base* self, std::uint8_t newcomer) {
        for (bool gave_way = false;;) {
            candidate* const next = gave_way ? nullptr : self->hosts_.next_to_drop(self->candidates_);
            duration grace = std::chrono::hours(1);  // any: it waits again
            if (next != nullptr)
                grace = self->hosts_.holds_more(next->from, newcomer)
                            ? duration::zero()
                            : std::max(duration::zero(),
                                       next->since + self->limit_ / 10 - scheduler::current()->now());
            const bool looks = next != nullptr && grace > self->limit_ / look_part && self->crowds(newcomer);
            const result<void> got = co_await as_result(
                timeout(self->places_.acquire(), looks ? self->limit_ / look_part : grace));
            if (got) break;
            if (got.error() != errc::timed_out) throw error(got.error());
            if (looks) co_return;
            if (next == nullptr || self->hosts_.next_to_drop(self->candidates_) != next) continue;
            self->leave(*next);
            gave_way = next->give_way();
        }
        self->places_.release();
    }
    /// Shakes hands with a peer that has connected; then accept() returns its endpoint.
    template <class = void>
    [[gnu::cold]] static child admit(child_owner&, listener_base* self, endpoint_owner fresh,
                                     std::uint8_t from) {
        candidate here(fresh.get()->base());
        here.since = scheduler::current()->now();
        here.from = from;
        self->hosts_.take(from);
        self->candidates_.push_back(here);
        const result<void> outcome = co_await as_result(timeout(here.opened, self->limit_));
        self->leave(here);
        self->shook_hands(std::move(fresh), outcome.error());
    }
    /// Ends when an endpoint is there, for `take`, or with the reason why there are no more.
    class accept_operation final : public basic_operation<accept_operation, void>,
                                   private wait_node<accept_operation> {
        using base = basic_operation<accept_operation, void>;

    public:
        explicit accept_operation(listener_base& of) noexcept : base(nullptr), of_(of) {}
        [[nodiscard]] endpoint_owner take() noexcept { return std::move(accepted_); }

    private:
        friend base;
        friend class listener_base;
        friend class intrusive_list<accept_operation>;

        void start() noexcept {
            if (endpoint_base* const ready = of_.ready_.pop_front()) {
                of_.give(*this, ready);
            } else if (of_.failure_) {
                end(of_.failure_);
            } else {
                of_.accepting_.push_back(*this);
                this->park(*this, accept_facts);
            }
        }
        [[gnu::cold]] void cancel() noexcept {
            this->unlink();
            finish_canceled();
            this->complete();
        }
        void end(std::error_code outcome) noexcept {
            outcome_ = outcome;
            this->complete();
        }
        void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }
        result<> outcome() noexcept { return outcome_; }

        listener_base& of_;
        std::error_code outcome_{};
        endpoint_owner accepted_;
    };

protected:
    listener_base(duration handshake_limit, task_group& workers)
        : limit_(handshake_limit),
          most_places_(most_places(most_waiting)),
          places_(most_places_, false),
          workers_(&workers) {}

    static constexpr std::size_t most_waiting = 1024;
    // Of the limit: after which a crowd of one host is a flood; between two looks whether it is.
    static constexpr int flood_part = 100;
    static constexpr int look_part = 1000;

    /// A place for a connection, unless all are taken: `find_place`.
    [[nodiscard]] bool take_place() noexcept { return places_.try_acquire(); }
    /// Whether the host holds so many places that it may be refused more.
    [[nodiscard]] bool crowds(std::uint8_t host) const noexcept { return hosts_.crowds(host, most_places_); }
    /// Refuses a peer of the host `newcomer`, if that holds many places, and none holds more, and they have been silent for longer than
    /// clients are. False: it does not.
    [[nodiscard, gnu::cold]] bool refuse(std::uint8_t newcomer) noexcept {
        const candidate* const next = hosts_.next_to_drop(candidates_);
        if (next == nullptr || !crowds(newcomer) || hosts_.holds_more(next->from, newcomer) ||
            scheduler::current()->now() - next->since < limit_ / flood_part)
            return false;
        note_refusal(make_error_code(errc::no_resources),
                     [] { return std::string("one of a host that holds many places"); });
        return true;
    }
    /// A peer of the host `from` has connected, and has a place.
    [[gnu::cold]] void begin_handshake(endpoint_base* fresh, std::uint8_t from) {
        own_children::begin(*workers_, running_scheduler(), admit<>, this, endpoint_owner(fresh), from);
    }
    /// There was no memory for a peer that has connected, and has a place.
    [[gnu::cold]] void refuse_unopened() noexcept {
        places_.release();
        note_refusal(make_error_code(errc::no_resources),
                     [] { return std::string("one for which there was no memory"); });
    }
    /// There are no more connections; accept() throws this once it has returned those that are ready.
    [[gnu::cold]] void fail(std::error_code why) noexcept {
        failure_ = why;
        while (accept_operation* const waits = accepting_.pop_front()) waits->end(why);
    }

    [[gnu::cold]] void shook_hands(endpoint_owner fresh, std::error_code failure) noexcept {
        if (failure) {
            const connection_base& of = fresh.get()->base();
            note_refusal(failure, [&of] { return of.refusal().empty() ? of.peer_name() : of.refusal(); });
            places_.release();
            if (failure == errc::unsupported) fail(failure);  // not the peer's doing: others would fail, too
        } else if (accept_operation* const waits = accepting_.pop_front()) {
            give(*waits, fresh.release());
        } else {
            ready_.push_back(*fresh.release());
        }
    }
    [[gnu::cold]] void give(accept_operation& to, endpoint_base* ready) noexcept {
        places_.release();
        to.accepted_ = endpoint_owner(ready);
        to.end({});
    }

    template <class Text>
    [[gnu::cold]] void note_refusal(std::error_code why, Text text) noexcept {
        ++refused_;
        last_refusal_.why = why;
        try {
            last_refusal_.text = text();
        } catch (const std::bad_alloc&) {
            last_refusal_.text.clear();
        }
    }

    /// A peer in its handshake.
    struct candidate : list_node<candidate> {
        explicit candidate(connection_base& of) noexcept : opened(of) {}
        /// The handshake ends with `errc::canceled`. False: it has ended, or has not begun.
        bool give_way() noexcept {
            if (!opened.begun() || opened.done()) return false;
            opened.cancel();
            return true;
        }

        time_point since{};
        std::uint8_t from = 0;  // its host, by a hash
        open_operation opened;
    };

    /// Counts it no more.
    void leave(candidate& one) noexcept {
        if (!one.linked()) return;
        one.unlink();
        hosts_.release(one.from);
    }

    duration limit_;
    std::uint64_t refused_ = 0;
    listener_refusal last_refusal_;
    std::error_code failure_{};
    intrusive_list<endpoint_base> ready_;         // owned: they have shaken hands, and no accept() waited
    intrusive_list<accept_operation> accepting_;  // calls of accept() that wait
    intrusive_list<candidate> candidates_;        // oldest first
    host_places hosts_;                           // of the candidates
    const std::size_t most_places_;               // of strangers
    semaphore places_;     // for peers in their handshake, or not yet returned by accept()
    task_group* workers_;  // the derived class's; ends before the members that its coroutines use
};

}  // namespace rdmacoro::detail
