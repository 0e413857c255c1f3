// The cold parts of a channel.
#pragma once

#include <rdmacoro/transport/shm/channel.hpp>

#include <poll.h>
#include <sys/socket.h>

namespace rdmacoro::detail::shm {

RDMACORO_COLD void channel::attach(int file, const geometry& shape, bool connecting) {
    shared.map(file, shape);
    out.attach(shared, connecting ? 0 : 1, &in);
    in.attach(shared, connecting ? 1 : 0);
    out_words = &shared.words(connecting ? 0 : 1);
    out_copies = shared.copies(connecting ? 0 : 1);
    in_copies = shared.copies(connecting ? 1 : 0);
}

RDMACORO_COLD void standing_mark::stand(arena& owner, std::span<std::byte> range,
                                        std::uint64_t key) noexcept {
    const bool stood = held();
    if (!owner.hold(*this, range)) return;
    key_ = key;
    if (!stood) ++of_.users;
}

RDMACORO_COLD bool standing_mark::over() noexcept {
    if (of_.in.region_in_use() != key_) return true;
    // Only a process that has ended, or left the link, closes the socket.
    return poll_now(of_.socket.get(), POLLRDHUP) > 0;
}

RDMACORO_COLD void standing_mark::released() noexcept { of_.release(); }

RDMACORO_COLD void channel::release() noexcept {
    if (--users == 0) delete this;
}

[[gnu::noinline]] RDMACORO_DECL void channel::announce_touch() noexcept {
    const std::uint32_t wanted = out_words->touch_notice.load(std::memory_order_relaxed);
    notice_board* const board = peer.touch_board();
    if (board == nullptr || wanted == 0 || wanted > notice_board::most_links) return;
    board->keep_marked(wanted - 1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

[[gnu::noinline]] RDMACORO_DECL void channel::notify_peer() noexcept {
    const std::uint32_t wanted = out.notice_wanted();
    if (wanted == 0) return;  // meanwhile the peer polls the link
    out.announce();
    peer.use_pages();
    if (notice_board* board = peer.board(); board != nullptr && wanted <= notice_board::most_links) {
        board->mark(wanted - 1);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (!peer.asleep()) return;
    }
    // A peer can neither fill this socket for others nor make the call block. When it is full there is a ring to be heard.
    const char ring = 0;
    [[maybe_unused]] const auto sent = ::send(socket.get(), &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace rdmacoro::detail::shm
