// Bodies of scratch.hpp.
#pragma once

#include <rdmacoro/service/detail/scratch.hpp>

#include <algorithm>
#include <bit>

namespace rdmacoro::detail {

/// Few lengths, so that a block serves others that are about as long: powers of two, and eighths of one where a power of two would take much of
/// what is kept.
[[nodiscard]] inline std::size_t rounded_up(std::size_t bytes) noexcept {
    if (bytes <= std::size_t{1} << 20) return std::bit_ceil(std::max(bytes, scratch_pool::alignment));
    const std::size_t step = std::bit_floor(bytes) / 8;
    return std::max(bytes, (bytes + step - 1) / step * step);  // nothing is as long as would overflow
}

RDMACORO_DECL scratch_pool::block scratch_pool::take(std::size_t bytes) {
    // The smallest that is long enough, unless most of it would lie idle.
    std::size_t best = kept_.size();
    for (std::size_t at = 0; at < kept_.size(); ++at) {
        if (kept_[at].bytes < bytes) continue;
        if (best == kept_.size() || kept_[at].bytes < kept_[best].bytes) best = at;
    }
    if (best != kept_.size() && kept_[best].bytes / 8 <= bytes) {
        block found = std::move(kept_[best]);
        kept_[best] = std::move(kept_.back());
        kept_.pop_back();
        bytes_ -= found.bytes;
        return found;
    }
    if (kept_.capacity() < 64) kept_.reserve(64);  // giving back allocates nothing
    const std::size_t rounded = rounded_up(bytes);
    return {std::unique_ptr<std::byte[], deleter>(
                static_cast<std::byte*>(::operator new[](rounded, std::align_val_t{alignment}))),
            rounded};
}

RDMACORO_DECL void scratch_pool::give_back(block&& of) noexcept {
    block back = std::move(of);
    if (back.bytes > most_kept) return;
    const auto shorter = [](const block& a, const block& b) { return a.bytes < b.bytes; };
    const auto let_go = [this](std::vector<block>::iterator one) {
        bytes_ -= one->bytes;
        *one = std::move(kept_.back());
        kept_.pop_back();
    };
    // What was used last is asked for again sooner than what lies here. Of equals the one that is here stays.
    while (back.bytes > most_kept - bytes_) {
        const auto longest = std::max_element(kept_.begin(), kept_.end(), shorter);
        if (longest->bytes <= back.bytes) return;
        let_go(longest);
    }
    if (kept_.size() == kept_.capacity()) {
        const auto shortest = std::min_element(kept_.begin(), kept_.end(), shorter);
        if (shortest == kept_.end() || shortest->bytes >= back.bytes) return;
        let_go(shortest);
    }
    bytes_ += back.bytes;
    kept_.push_back(std::move(back));
}

}  // namespace rdmacoro::detail
