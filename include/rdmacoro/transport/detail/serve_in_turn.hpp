// serve_in_turn: what the links of a domain hand up between two looks at everything else.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>

#include <algorithm>

namespace rdmacoro::detail {

/// Messages that one link hands up at a time.
inline constexpr unsigned messages_of_a_link = 64;
/// Messages that all links of a domain hand up in one poll: some 25 us, however many links have some. The rest waits for the next
/// poll, after coroutines and timers had their turn.
inline constexpr unsigned messages_of_a_poll = 256;

/// Calls `serve(link, messages)`, which returns how many it has handed up, for each link of `work`, once, until that many were.
/// Those that had no turn are the first of `work` then, before those that were marked again meanwhile. True: anything was handed up,
/// or waits.
template <class Link, class Tag, class Serve>
[[gnu::always_inline]] inline bool serve_in_turn(intrusive_list<Link, Tag>& work, Serve serve) noexcept {
    intrusive_list<Link, Tag> turn;
    turn.splice_back(work);
    unsigned left = messages_of_a_poll;
    bool any = false;
    while (Link* const link = turn.pop_front()) {
        const unsigned moved = serve(*link, messages_of_a_link);
        if (moved == 0) continue;
        any = true;
        left -= std::min(left, moved);
        if (left == 0) [[unlikely]]
            break;
    }
    if (!turn.empty()) [[unlikely]] {
        turn.splice_back(work);
        work.splice_back(turn);
    }
    return any;
}

}  // namespace rdmacoro::detail
