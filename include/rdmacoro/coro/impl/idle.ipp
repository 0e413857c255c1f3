// The default idle strategy.
#pragma once

#include <rdmacoro/coro/idle.hpp>

#include <algorithm>
#include <utility>

#include <sys/resource.h>

namespace rdmacoro::idle {

RDMACORO_DECL action adaptive::next(clock& time) noexcept {
    // The clock is read every 32nd turn while spinning, as reading it costs as much as a poll; more often in a short spin.
    const unsigned rarely = offers_early_ ? 1U : 32U >> (halvings() < 5 ? halvings() : 5);
    if (rounds_++ % rarely != 0 && phase_ == action::spin) return action::spin;
    const time_point now = time.now();
    if (rounds_ == 1) begin(time, now);
    if (phase_ == action::yield) offer_ended(now);
    const duration idle_for = now - since_;
    const duration spin = spin_for_ / (1 << halvings());
    duration until = spin;
    if (offers_early_)
        until = spin_for_ / early_part;
    else if (without_offers_ > 0)
        until = std::min(spin, spin_for_ / shared_part);
    if (idle_for < until) {
        phase_ = action::spin;
    } else if (without_offers_ == 0 && idle_for < spin + yield_for_ / (1 << halvings())) {
        phase_ = action::yield;
        if (offers_++ == 0) {
            offered_ = now;
            if (switches_ < 0) switches_ = switches_of_thread_();
        }
        last_offered_ = now;
    } else {
        phase_ = action::park;
    }
    return phase_;
}

RDMACORO_DECL void adaptive::begin(clock& time, time_point now) noexcept {
    since_ = now;
    time_ = &time;
    kind_ = kinds - 1;
    if (sleeps_until_ == time_point::max()) return;
    const duration left = sleeps_until_ - now;
    duration within = default_spin;
    for (kind_ = 0; kind_ < kinds - 1 && left > within; ++kind_) within *= 2;
}

// The peer on this core would have polled for less: another program has the core. Once that is so again, the peer is elsewhere.
RDMACORO_DECL void adaptive::offer_ended(time_point now) noexcept {
    if (now - last_offered_ <= long_offer) return;
    if (next_without_offers_ > fewest_without) offers_early_ = false;
    without_offers_ = next_without_offers_;
    if (next_without_offers_ < most_without) next_without_offers_ *= 2;
}

RDMACORO_DECL long involuntary_switches() noexcept {
    rusage used{};
    return ::getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_nivcsw : 0;
}

RDMACORO_DECL bool adaptive::was_switched() noexcept {
    const long now = switches_of_thread_();
    return std::exchange(switches_, now) != now;
}

RDMACORO_DECL void adaptive::progress() noexcept {
    if (phase_ != action::spin) {  // the spin was too short for this wait, or the wait too long for any
        const time_point now = time_->now();
        const duration waited = now - since_;
        if (phase_ == action::yield) offer_ended(now);
        if (without_offers_ > 0) {
            --without_offers_;
        } else {
            // An offer that took long gave the core to a program that is not the peer.
            const bool soon = offers_ <= few_offers && now - offered_ <= spin_for_ / soon_part;
            offers_early_ = phase_ == action::yield && (soon || was_switched());
            if (offers_early_ && next_without_offers_ > fewest_without) next_without_offers_ /= 2;
        }
        if (waited > spin_for_) {
            poll_less();
        } else if (shorter_than_sleeps()) {
            while (halvings() > 0 && spin_for_ / (1 << halvings()) < 2 * waited) --halvings();
        }
    }
    begin_again();
}

RDMACORO_DECL void adaptive::timer_expired() noexcept {
    // A timer that was due soon is worth a spin of that length.
    if (rounds_ != 0 && time_->now() - since_ > spin_for_ / (1 << most_halvings)) poll_less();
    begin_again();
}

}  // namespace rdmacoro::idle
