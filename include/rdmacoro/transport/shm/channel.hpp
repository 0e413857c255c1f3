// A connected pair of rings with all that belongs to it, before and after a link hands its messages to a sink.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/transport/shm/arena.hpp>
#include <rdmacoro/transport/shm/peer_memory.hpp>
#include <rdmacoro/transport/shm/ptrace_grant.hpp>
#include <rdmacoro/transport/shm/ring.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <sys/types.h>

namespace rdmacoro::detail::shm {

class domain_base;

struct channel;

/// The mark of a peer that was given up waiting for: keeps the channel, and its words show when the mark is cleared.
class standing_mark final : public arena_hold {
public:
    explicit standing_mark(channel& of) noexcept : of_(of) {}

    /// The peer may be touching `range`, with the region's key.
    void stand(arena& owner, std::span<std::byte> range, std::uint64_t key) noexcept;

private:
    RDMACORO_DECL bool over() noexcept override;
    RDMACORO_DECL void released() noexcept override;

    channel& of_;
    std::uint64_t key_ = 0;
};

/// One end of a connection. Counted: blocks that are lent out keep it mapped after its link is destroyed.
struct channel : list_node<channel> {
    domain_base* domain = nullptr;
    segment shared;
    ring_producer out;
    ring_consumer in;
    direction_words* out_words = nullptr;
    shared_copy_words* out_copies = nullptr;  ///< of blocks that this side opens
    shared_copy_words* in_copies = nullptr;
    peer_memory peer;
    unique_fd socket;         ///< ends when the peer has closed it or died; a message in it wakes the peer
    ptrace_grant permission;  ///< of the peer
    pid_t peer_pid = -1;
    bool fence_before_doorbell = true;
    std::uint32_t serial = 0;  ///< of the link, see `pollable`; 0: there is none yet
    std::string name;          ///< of the peer, for people
    unsigned users = 1;
    standing_mark standing{*this};  ///< on our memory

    /// Maps `file`; the connecting side writes direction 0. Throws.
    void attach(int file, const geometry& shape, bool connecting);

    /// Calls `copy`, which touches the peer's memory, if that is allowed, and returns its result. The mark shows the
    /// owner of the memory that it is in use: what the owner closes is not its own again before the mark is cleared.
    template <class Copy>
    [[nodiscard]] errc touch(const remote_region& there, access_rights wanted, Copy copy) noexcept {
        peer.use_pages();
        auto& mark = out_words->region_in_use;
        mark.store(there.key, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (out_words->touch_notice.load(std::memory_order_relaxed) != 0) [[unlikely]]
            announce_touch();
        errc outcome = out_words->closed.load(std::memory_order_relaxed) != 0 ? errc::peer_lost
                                                                              : peer.check(there, wanted);
        if (outcome == errc::ok) outcome = copy();
        mark.store(0, std::memory_order_release);
        return outcome;
    }

    void release() noexcept;

    /// After something was published: notifies the peer if it does not poll this link.
    [[gnu::always_inline]] void ring_doorbell() noexcept {
        // The consumer asks for notice and then reads its ring; the producer publishes and then reads whether notice is wanted.
        // One side must order its two steps for both: the consumer by membarrier, or the producer by a fence.
        if (fence_before_doorbell) {
            std::atomic_thread_fence(std::memory_order_seq_cst);
        } else {
            std::atomic_signal_fence(std::memory_order_seq_cst);
        }
        if (out.notice_wanted() != 0) [[unlikely]]
            notify_peer();
    }

    void notify_peer() noexcept;
    /// The peer does not look at this link's mark unless it is told to.
    void announce_touch() noexcept;
};

/// Owns one use of a channel.
class channel_ref {
public:
    channel_ref() noexcept = default;
    explicit channel_ref(channel* adopted) noexcept : channel_(adopted) {}
    channel_ref(channel_ref&& other) noexcept : channel_(std::exchange(other.channel_, nullptr)) {}
    channel_ref& operator=(channel_ref&& other) noexcept {
        std::swap(channel_, other.channel_);
        return *this;
    }
    ~channel_ref() {
        if (channel_ != nullptr) channel_->release();
    }
    /// The caller owns the use from now on.
    [[nodiscard]] channel* detach() noexcept { return std::exchange(channel_, nullptr); }
    [[nodiscard]] channel* get() const noexcept { return channel_; }
    [[nodiscard]] channel* operator->() const noexcept { return channel_; }
    [[nodiscard]] channel& operator*() const noexcept { return *channel_; }
    [[nodiscard]] explicit operator bool() const noexcept { return channel_ != nullptr; }

private:
    channel* channel_ = nullptr;
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/channel.ipp>
#endif
