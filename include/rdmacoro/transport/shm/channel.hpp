// A connected pair of rings with all that belongs to it, before and after a link hands its messages to a sink.
#pragma once

#include <rdmacoro/transport/shm/peer_memory.hpp>
#include <rdmacoro/transport/shm/ring.hpp>
#include <rdmacoro/transport/shm/segment.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace rdmacoro::detail::shm {

class domain_base;

/// One end of a connection. Counted: blocks that are lent out keep it mapped after its link is gone.
struct channel {
    domain_base* domain = nullptr;
    segment shared;
    ring_producer out;
    ring_consumer in;
    direction_words* out_words = nullptr;
    shared_copy_words* out_copies = nullptr;  ///< of blocks that this side opens
    shared_copy_words* in_copies = nullptr;
    peer_memory peer;
    unique_fd socket;         ///< says when the peer is gone
    unique_fd peer_doorbell;  ///< wakes the peer when it sleeps
    pid_t peer_pid = -1;
    bool fence_before_doorbell = true;
    std::string name;  ///< of the peer, for people
    unsigned users = 1;

    /// Maps `file`; the connecting side writes direction 0. Throws.
    void attach(int file, const geometry& shape, bool connecting) {
        shared.map(file, shape);
        out.attach(shared, connecting ? 0 : 1);
        in.attach(shared, connecting ? 1 : 0);
        out_words = &shared.words(connecting ? 0 : 1);
        out_copies = shared.copies(connecting ? 0 : 1);
        in_copies = shared.copies(connecting ? 1 : 0);
    }

    /// Calls `copy`, which touches the peer's memory, if that is allowed, and answers what it does. The mark tells the owner
    /// of the memory that we are in it: deregistering the region, or closing the link, waits for us.
    template <class Copy>
    [[nodiscard]] errc touch(const remote_region& there, access_rights wanted, Copy copy) noexcept {
        auto& mark = out_words->region_in_use;
        mark.store(there.key, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        errc outcome = out_words->closed.load(std::memory_order_relaxed) != 0 ? errc::peer_lost
                                                                              : peer.check(there, wanted);
        if (outcome == errc::ok) outcome = copy();
        mark.store(0, std::memory_order_release);
        return outcome;
    }

    void release() noexcept {
        if (--users == 0) delete this;
    }

    /// After something was published: wakes the peer if it sleeps.
    [[gnu::always_inline]] void ring_doorbell() noexcept {
        // The peer says that it sleeps and then looks at its ring; we publish and then look whether it sleeps. One side
        // must order its two steps for both: the sleeper by membarrier, or we by a fence.
        if (fence_before_doorbell) {
            std::atomic_thread_fence(std::memory_order_seq_cst);
        } else {
            std::atomic_signal_fence(std::memory_order_seq_cst);
        }
        if (out.peer_parked()) [[unlikely]]
            wake_peer();
    }

    [[gnu::noinline]] void wake_peer() noexcept {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(peer_doorbell.get(), &one, sizeof one);
    }
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
    [[nodiscard]] channel* get() const noexcept { return channel_; }
    [[nodiscard]] channel* operator->() const noexcept { return channel_; }
    [[nodiscard]] channel& operator*() const noexcept { return *channel_; }
    [[nodiscard]] explicit operator bool() const noexcept { return channel_ != nullptr; }

private:
    channel* channel_ = nullptr;
};

}  // namespace rdmacoro::detail::shm
