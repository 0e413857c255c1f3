// Bodies of discarding_receives.hpp.
#pragma once

#include <rdmacoro/protocol/detail/discarding_receives.hpp>

#include <new>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD void discarding_receives::free(discarding_receive& ended) noexcept {
    ended.list_node<discarding_receive>::unlink();
    --count_;
    delete &ended;
}

RDMACORO_COLD discarding_receive* discarding_receives::make(scheduler& owner, tag_match wanted,
                                                            peer_id source, std::size_t most) noexcept {
    // More of them at the limit, where those that have ended take the places of others.
    constexpr int looked_at_when_full = 64;
    for (int n = 0; !all_.empty() && (n < looked_at || (count_ >= most && n < looked_at_when_full)); ++n) {
        discarding_receive& oldest = *all_.pop_front();
        all_.push_back(oldest);
        if (oldest.done()) free(oldest);
    }
    if (count_ >= most) return nullptr;
    auto* const made = new (std::nothrow) discarding_receive(owner, wanted, source);
    if (made == nullptr) return nullptr;
    all_.push_back(*made);
    ++count_;
    return made;
}

RDMACORO_COLD void discarding_receives::end_all(matcher& matching) noexcept {
    while (discarding_receive* const r = all_.front()) {
        if (r->is_posted()) matching.withdraw(*r);
        free(*r);
    }
}

RDMACORO_COLD std::size_t discarding_receives::posted() noexcept {
    std::size_t count = 0;
    for (discarding_receive* r = all_.front(); r != nullptr; r = all_.next(*r))
        count += r->is_posted() ? 1 : 0;
    return count;
}

RDMACORO_COLD void discarding_receives::move_to(discarding_receives& to, matcher& matching,
                                                matcher& to_matching, peer_id source) noexcept {
    to.count_ += std::exchange(count_, 0);
    intrusive_list<discarding_receive> posted;
    std::size_t count = 0;
    while (discarding_receive* const r = all_.pop_front()) {
        const bool moves = r->is_posted();
        count += moves ? 1 : 0;
        (moves ? posted : to.all_).push_back(*r);
        if (moves) matching.withdraw(*r);
        r->source_ = source;
    }
    sort(posted, count);
    for (discarding_receive* r = posted.front(); r != nullptr; r = posted.next(*r)) to_matching.post(*r);
    to.all_.splice_back(posted);
}

// They were made as receives were canceled, and take turns in the list; their places among the receives are older.
RDMACORO_COLD void discarding_receives::sort(intrusive_list<discarding_receive>& all,
                                             std::size_t count) noexcept {
    if (count < 2) return;
    intrusive_list<discarding_receive> first;
    for (std::size_t n = 0; n < count / 2; ++n) first.push_back(*all.pop_front());
    sort(first, count / 2);
    sort(all, count - count / 2);
    intrusive_list<discarding_receive> merged;
    while (!first.empty() && !all.empty())
        merged.push_back(*(first.front()->sequence_ < all.front()->sequence_ ? first : all).pop_front());
    merged.splice_back(first);
    merged.splice_back(all);
    all.splice_back(merged);
}

}  // namespace rdmacoro::detail
