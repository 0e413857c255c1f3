// mailbox_base: the state that the connections of one endpoint or mailbox share, and how much it may hold.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/detail/described.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/protocol/detail/ahead_engine.hpp>
#include <rdmacoro/protocol/detail/discarding_receives.hpp>
#include <rdmacoro/protocol/detail/refusal_timer.hpp>
#include <rdmacoro/protocol/matching.hpp>
#include <rdmacoro/protocol/message_pool.hpp>
#include <rdmacoro/protocol/message_store.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/protocol/tuning.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>

namespace rdmacoro {

/// How much an endpoint or mailbox may store.
struct mailbox_options {
    /// For each peer, the most memory for messages that come before their receive, in bytes, with all that belongs to them; at
    /// least 256 KiB. A peer begins with a part of it.
    std::size_t unexpected_bytes = 4u << 20;
    /// Longest message that a lent receive takes memory for, in bytes. One that has arrived in one piece, or was stored whole before its
    /// receive, lies in memory already, and is accepted in any case.
    std::size_t lent_bytes = 64u << 20;
    /// Receives canceled with `discard_if_canceled` that wait for their messages, to drop them, at most; 432 bytes each. Receives above
    /// that are canceled as others are. Canceled calls count among them, and are not limited: their peer limits those.
    std::size_t canceled_receives = 16384;
    /// How long the handshake with a new peer may take.
    duration handshake_limit = std::chrono::seconds(10);
    /// Limits of protocols that this run sets; unset ones are taken from the environment.
    tuning limits{};
    /// The pool that limits what links store together that are made with it, by `listen` or `connect`; a mailbox's limits nothing, as its
    /// links have theirs already. It is to live until the endpoint, mailbox or listener that is made with it exists. nullptr: the links of
    /// a listener have a pool of their own, and all others of a scheduler have one together, of 64 MiB each, or of sixteen times
    /// `unexpected_bytes` where that is more.
    const message_pool* pool = nullptr;
};

namespace detail {

/// Notified when the link of a connection has ended, by the connection's name.
class link_watcher {
public:
    virtual void link_ended(peer_id source) noexcept = 0;

protected:
    ~link_watcher() = default;
};

/// The state that the connections of one endpoint or mailbox share.
class mailbox_base {
public:
    mailbox_base(scheduler& owner, const mailbox_options& options, bool many_sources);
    mailbox_base(const mailbox_base&) = delete;
    mailbox_base& operator=(const mailbox_base&) = delete;
    ~mailbox_base();

    [[nodiscard]] scheduler& owner() noexcept { return owner_; }
    [[nodiscard]] const mailbox_options& options() const noexcept { return options_; }
    [[nodiscard]] matcher& matching() noexcept { return matcher_; }
    [[nodiscard]] message_store& store() noexcept { return *store_; }
    [[nodiscard]] discarding_receives& discarding() noexcept { return discarding_; }
    /// nullptr: none.
    [[nodiscard]] link_watcher*& watcher() noexcept { return watcher_; }

    /// A posted receive is canceled, and leaves the matcher; what drops its message, if that is wanted, takes its place.
    void leave(receive_request& r) noexcept {
        if (r.discards_) {
            leave_discarding(r);
        } else {
            matcher_.withdraw(r);
        }
    }
    /// A receive that drops the message of a canceled one, not posted yet. nullptr: there are too many, or memory is short.
    [[nodiscard]] discarding_receive* make_discarding(const receive_request& of) noexcept {
        const std::size_t most =
            of.discards_always_ ? static_cast<std::size_t>(-1) : options_.canceled_receives;
        return discarding_.make(owner_, of.wanted_, of.source_, most);
    }
    /// Drops the stored messages that match, those that are still coming included. Ends with their number.
    [[nodiscard]] std::size_t discard(peer_id source, tag_match wanted);
    /// The same of those with a tag of which `drops` answers true: looks at each once.
    template <class Drops>
    void discard_if(peer_id source, Drops drops) {
        bool again = true;
        while (again) {
            again = false;
            bool short_of_memory = false;
            matcher_.each_masked(source, any_tag, [&](unexpected_message& m) noexcept {
                if (!drops(m.tag)) return true;
                const std::size_t others = matcher_.unexpected() - 1;
                short_of_memory = !discard(m);
                again = !short_of_memory && matcher_.unexpected() != others;  // others went with it
                return !short_of_memory && !again;
            });
            if (short_of_memory) throw std::bad_alloc();
        }
    }
    /// Drops one of them. False: memory is short, and it stays.
    [[nodiscard]] bool discard(unexpected_message& m) noexcept;
    [[nodiscard]] pool_state& pool() noexcept { return pool_.state(); }
    /// The most that a link may be granted, in `credit_bytes`.
    [[nodiscard]] std::uint32_t budget() const noexcept;

    void drop_stored(bool complete_alone) noexcept;  ///< of a mailbox that ends; frees all, or those
    /// The links to peers with sends that wait for credit.
    [[nodiscard]] intrusive_list<ahead_engine>& starving() noexcept { return starving_; }
    /// A receive from any source was posted, and there are such links: a few are asked for its message at once, the others in the turns that
    /// follow.
    void receive_posted() noexcept {
        ++asked_round_;
        ask_some();
    }

private:
    static constexpr int most_asked_at_once = 16;

    void ask_some() noexcept;
    void leave_discarding(receive_request& r) noexcept;
    static void describe(void* self, description& into) noexcept;

    scheduler& owner_;
    mailbox_options options_;
    matcher matcher_;
    discarding_receives discarding_;
    message_pool pool_;
    message_store* store_;                   // the pool's
    intrusive_list<ahead_engine> starving_;  // those that were asked last are at its end
    std::uint64_t asked_round_ = 0;          // counts the receives from any source
    refusal_timer asking_{this, [](void* self) noexcept { static_cast<mailbox_base*>(self)->ask_some(); }};
    link_watcher* watcher_ = nullptr;
    described described_{this, &mailbox_base::describe};
};

}  // namespace detail
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/connection_base.hpp>
#endif
