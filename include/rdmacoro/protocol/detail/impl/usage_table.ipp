// Bodies of detail/usage_table.hpp.
#pragma once

#include <rdmacoro/protocol/detail/usage_table.hpp>

namespace rdmacoro::detail {

[[gnu::noinline]] RDMACORO_DECL usage_table::entry* usage_table::add(set& home, std::uintptr_t address,
                                                                     std::uint8_t length) noexcept {
    entry* coldest = home.entries;
    for (entry& e : home.entries) {
        if (e.uses < coldest->uses || (e.uses == coldest->uses && !e.ready())) coldest = &e;
    }
    if (coldest->address != 0) {
        ++fights_;
        if (coldest->uses > 1) {
            coldest->uses /= 2;
            return nullptr;
        }
        ++statistics_.replaced;
        if (coldest->ready()) --ready_entries_;
    }
    *coldest = {address, 0, 1, length};
    return coldest;
}

[[gnu::noinline]] RDMACORO_DECL void usage_table::housekeeping() noexcept {
    for (entry& e : sets_[next_to_age_].entries) e.uses /= 2;
    next_to_age_ = (next_to_age_ + 1) % sets;
    if (tick_ % window == 0) judge();
}

RDMACORO_DECL void usage_table::judge() noexcept {
    const bool little_is_reused = ready_uses_ * 5 < window;
    const bool crowded = fights_ * 8 >= window;
    ready_uses_ = fights_ = 0;
    if (stopped_) {
        if (--pause_left_ != 0) return;
        stopped_ = false;
        ++statistics_.resumed;
    } else if (little_is_reused && crowded) {
        stopped_ = true;
        ++statistics_.stopped;
        pause_left_ = pause_;
        if (pause_ < longest_pause) pause_ *= 2;
    } else {
        pause_ = 1;
    }
}

}  // namespace rdmacoro::detail
