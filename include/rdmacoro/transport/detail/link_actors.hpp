// The parties that move a link on: named where pending operations are described.
#pragma once

#include <rdmacoro/coro/next_actor.hpp>

namespace rdmacoro::detail {

/// The party that moves the bytes of gets and puts that are posted on a link.
template <class Link>
[[nodiscard, gnu::cold]] next_actor transfers_of(const Link& link) noexcept {
    if constexpr (requires { link.moves_bytes(); }) {
        return link.moves_bytes();
    } else {
        return link.capabilities().one_sided_offloaded ? next_actor::device : next_actor::peer_poll;
    }
}

/// The party that makes room for what a link has refused.
template <class Link>
[[nodiscard, gnu::cold]] next_actor room_of(const Link& link) noexcept {
    if constexpr (requires { link.gives_room(); }) {
        return link.gives_room();
    } else {
        return link.capabilities().one_sided_offloaded ? next_actor::device : next_actor::network;
    }
}

}  // namespace rdmacoro::detail
