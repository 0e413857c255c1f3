// What is known of calls that are older than the window.
#pragma once

#include <rdmacoro/service/detail/call_history.hpp>

#include <algorithm>
#include <iterator>

namespace rdmacoro::detail {

/// The gap that has the number, or the number of gaps.
RDMACORO_COLD std::size_t call_history::gap_of(std::uint64_t number) const noexcept {
    const auto age = [this](std::uint64_t of) noexcept { return (newest_ - of) & number_bits; };
    const gap* const found = std::partition_point(
        gaps_.begin(), gaps_.end(), [&](const gap& one) noexcept { return age(one.last) > age(number); });
    const bool inside = found != gaps_.end() && age(found->first) >= age(number);
    return inside ? static_cast<std::size_t>(found - gaps_.begin()) : gaps_.size();
}

RDMACORO_COLD call_history::fate call_history::of_old(std::uint64_t number) const noexcept {
    for (const old_call& one : old_) {
        if (one.number == number) return one.what;
    }
    return is_before_first(number) || gap_of(number) != gaps_.size() ? fate::unknown : fate::old;
}

RDMACORO_COLD bool call_history::take_from_gap(std::uint64_t number) noexcept {
    const std::size_t at = gap_of(number);
    if (at == gaps_.size()) return false;
    const gap whole = gaps_[at];
    if (whole.first == number && whole.last == number) {
        gaps_.erase(at);
    } else if (whole.first == number) {
        gaps_[at].first = (number + 1) & number_bits;
    } else {
        gaps_[at].last = (number - 1) & number_bits;
        if (whole.last != number && gaps_.size() < most_gaps)
            static_cast<void>(gaps_.try_insert(at + 1, {(number + 1) & number_bits, whole.last}));
    }
    return true;
}

RDMACORO_COLD void call_history::set_old(std::uint64_t number, fate to) noexcept {
    for (old_call& one : old_) {
        if (one.number != number) continue;
        one.what = to;
        return;
    }
    if (!is_before_first(number) && !take_from_gap(number)) return;
    if (old_.size() < most_old && old_.try_push_back({number, to})) return;
    if (old_.empty()) return;
    old_[next_old_] = {number, to};
    next_old_ = (next_old_ + 1) % old_.size();
}

RDMACORO_COLD void call_history::add_gap(std::uint64_t first, std::uint64_t last) noexcept {
    if (!gaps_.empty() && ((gaps_.back().last + 1) & number_bits) == first) {
        gaps_.back().last = last;
        return;
    }
    if (gaps_.size() == most_gaps) gaps_.erase(0);
    static_cast<void>(gaps_.try_push_back({first, last}));
}

RDMACORO_COLD void call_history::skip_to(std::uint64_t number) noexcept {
    const std::uint64_t step = (number - newest_) & number_bits;
    if (none_) {
        first_ = number;
        none_ = false;
    } else {
        // Those that leave the window: all of it at most, and what was never in it.
        const std::uint64_t oldest = (newest_ - (window - 1)) & number_bits;
        for (std::uint64_t n = 0; n < std::min<std::uint64_t>(step, window); ++n) {
            const std::uint64_t leaves = (oldest + n) & number_bits;
            if (leaves_unknown(leaves) && !is_before_first(leaves)) add_gap(leaves, leaves);
        }
        if (step > window) add_gap((newest_ + 1) & number_bits, (number - window) & number_bits);
    }
    gone_round_ = gone_round_ || ((number - first_) & number_bits) > number_bits / 2;
    // What has become older than half of all numbers would be taken for a new one.
    while (!gaps_.empty() && ((number - gaps_.front().first) & number_bits) > number_bits / 2) {
        gap& first = gaps_.front();
        if (((number - first.last) & number_bits) > number_bits / 2) {
            gaps_.erase(0);
        } else {
            first.first = (number - number_bits / 2) & number_bits;
        }
    }
    if (step >= window) {
        std::fill(std::begin(words_), std::end(words_), 0);
        newest_ = number;
        return;
    }
    while (newest_ != number) {
        newest_ = (newest_ + 1) & number_bits;
        words_[word(newest_)] &= ~(std::uint64_t{3} << shift(newest_));
    }
}

}  // namespace rdmacoro::detail
