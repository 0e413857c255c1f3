// close_elsewhere: sockets to processes of other users are closed by threads of their own.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstddef>

#include <sys/types.h>

namespace rdmacoro::detail {

/// Closes a socket to a process of another user on a thread of its own. Messages that nothing received may hold descriptors of any file, and
/// the close of these takes as long as that user likes: of a TCP socket the time of its `SO_LINGER`, of a file of FUSE until its server
/// answers. Without a thread it closes at once.
RDMACORO_DECL void close_elsewhere(int socket) noexcept;
/// Those of this process that are not closed yet. While there are `most_closing`, no further client or listener is met that may be another user's.
[[nodiscard]] RDMACORO_DECL std::size_t closing_elsewhere() noexcept;
inline constexpr std::size_t most_closing = 16;

/// Whether this process's user has the number under which a user namespace shows all users that it does not map (65534 mostly): the kernel's
/// word on a peer does not tell them apart then, and no peer counts as this user's. So it is without /proc for that number.
[[nodiscard]] RDMACORO_DECL bool is_indistinct_user() noexcept;
/// Whether the kernel's word on a peer's user, as of `SO_PEERCRED`, names this process's, and no other one's.
[[nodiscard]] RDMACORO_DECL bool is_this_user(uid_t user) noexcept;
/// Whether the other end of a Unix socket belongs to this user.
[[nodiscard]] RDMACORO_DECL bool is_own_user(int socket) noexcept;

/// Closes a Unix socket that listens, and the clients in its queue, those of other users elsewhere. Where these are too many the rest is
/// closed elsewhere together with the socket: its name is free a moment later then.
RDMACORO_DECL void close_listener(int listening) noexcept;

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/close_elsewhere.ipp>
#endif
