// transfer_lists: gets, puts and atomics of one link, from their post to their completion.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/detail/recycled_pool.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <utility>

namespace rdmacoro::detail {

/// The common part of all transfers.
struct transfer_base {
    completion* done = nullptr;
    bool partial = false;  // not all of it is posted; counted by its link
    std::uint64_t address = 0;
    std::byte* local = nullptr;
    std::uint64_t length = 0;
    std::uint64_t operands[2]{};      // of an atomic
    std::uint64_t* result = nullptr;  // of an atomic
    status code{};
};

/// A transfer of `transfer_lists`: derived from `transfer_base`; `is_put()` is true when messages must not overtake it.
template <class T>
concept listed_transfer = recyclable<T> && std::derived_from<T, transfer_base> && requires(const T& t) {
    { t.is_put() } noexcept -> std::same_as<bool>;
};

/// The session that owns the transfers: `give_back(transfer)` releases the transfer's resources, then recycles it.
template <class Owner, class T>
concept transfer_owner = requires(Owner& owner, T& t) {
    { owner.give_back(t) } noexcept;
};

/// A transfer is *moving* from its post to the moment that the network is done with it, then *finished* until its completion is
/// called.
template <listed_transfer T>
class transfer_lists {
public:
    /// An unused transfer; nullptr: there is no memory.
    template <class Prepare>
    [[nodiscard]] T* take(Prepare prepare) noexcept {
        return pool_.take(prepare);
    }
    [[nodiscard]] T* take() noexcept { return pool_.take(); }
    /// Takes it out of its list. It holds nothing any more.
    void recycle(T& t) noexcept { pool_.give(t); }

    [[nodiscard]] intrusive_list<T>& moving() noexcept { return moving_; }
    void moves(T& t) noexcept { moving_.push_back(t); }

    /// Not all of `t` is posted yet.
    void begin_partial(T& t) noexcept {
        t.partial = true;
        ++partial_;
        if (t.is_put()) ++partial_puts_;
    }
    /// All of `t` is posted, or it ends early.
    void end_partial(T& t) noexcept {
        if (!std::exchange(t.partial, false)) return;
        --partial_;
        if (t.is_put()) --partial_puts_;
    }
    [[nodiscard]] unsigned partial() const noexcept { return partial_; }
    /// Messages must not overtake these.
    [[nodiscard]] unsigned partial_puts() const noexcept { return partial_puts_; }

    /// `t` is over with `t.code`, and its completion is to be called.
    void finish(T& t) noexcept {
        end_partial(t);
        t.unlink();
        finished_.push_back(t);
    }
    /// As `finish`; a transfer without a failure of its own, or with one that followed from the link's, fails with `reason`.
    void abort(T& t, std::error_code reason, bool link_failed) noexcept {
        if (!t.code || link_failed) t.code = reason;
        finish(t);
    }
    [[nodiscard]] bool any_finished() noexcept { return !finished_.empty(); }
    /// Calls the completions of finished transfers, and returns how many. Each transfer is given back before its completion is
    /// called, which may post another.
    template <transfer_owner<T> Owner>
    unsigned complete_finished(Owner& owner) noexcept {
        unsigned completed = 0;
        while (T* t = finished_.front()) {
            completion* c = t->done;
            const std::error_code code = t->code;
            owner.give_back(*t);
            c->done(*c, code);
            ++completed;
        }
        return completed;
    }

private:
    intrusive_list<T> moving_;
    intrusive_list<T> finished_;
    recycled_pool<T> pool_;  // goes first: unlinks its transfers
    unsigned partial_ = 0;
    unsigned partial_puts_ = 0;
};

}  // namespace rdmacoro::detail
