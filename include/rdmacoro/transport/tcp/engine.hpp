// The engine of a tcp domain: one io_uring, the sockets that use it, and the order in which they are served.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/detail/serve_in_turn.hpp>
#include <rdmacoro/transport/tcp/liveness.hpp>
#include <rdmacoro/transport/tcp/ring.hpp>
#include <rdmacoro/transport/tcp/session.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <sys/socket.h>
#include <sys/uio.h>

namespace rdmacoro::detail {

/// A table of regions in memory of its own, zeroed and untouched until it is used.
class tcp_region_memory {
public:
    static constexpr std::size_t entries = 65'536;

    tcp_region_memory();
    tcp_region_memory(const tcp_region_memory&) = delete;
    tcp_region_memory& operator=(const tcp_region_memory&) = delete;
    ~tcp_region_memory();

    [[nodiscard]] std::span<region_entry> table() noexcept { return {first_, entries}; }

private:
    region_entry* first_;
};

/// Everything a domain does each turn. Links that receive often are *hot*: a receive is tried in each poll, which has the
/// least latency and costs a system call. All others are armed: a request waits in the kernel, and one load shows that some
/// request has news. So the polls of a domain that is at rest make no system call. A poll has three steps, so that no user code runs between the moment memory is
/// given to the kernel and the moment it is back:
///  1. sockets that may receive get their memory (asks sinks);
///  2. all sends and receives are submitted by one system call and complete in it; completions are recorded;
///  3. recorded completions are handed up (calls sinks and completions, which may post).
class tcp_engine final : public tcp_completion_handler, public region_owner {
public:
    static constexpr std::size_t most_batched = 64;
    static constexpr unsigned most_hot = 32;
    // A hot link without an arrival for so many polls is armed instead: longer than the other half of a round trip of 1 MB takes.
    static constexpr std::uint64_t cold_after = 256;
    // Arrivals soon after each other until a link is hot.
    static constexpr unsigned hot_after = 3;
    // A link that receives less often than this is as well off armed, and spares all others its system calls.
    static constexpr duration soon = std::chrono::microseconds(100);
    static constexpr std::uint64_t soon_turns = 16;

    tcp_engine(scheduler& owner, const tcp_options& options);
    tcp_engine(const tcp_engine&) = delete;
    tcp_engine& operator=(const tcp_engine&) = delete;
    ~tcp_engine();

    bool poll() noexcept;
    void arm() noexcept;
    void disarm() noexcept;
    [[nodiscard]] int wake_fd() const noexcept { return ring_.wake_fd(); }
    void enable() noexcept;

    [[nodiscard]] scheduler& owner() const noexcept { return owner_; }
    [[nodiscard]] const tcp_options& options() const noexcept { return options_; }
    [[nodiscard]] region_table& regions() noexcept { return regions_; }
    RDMACORO_DECL void deregister(std::uint64_t key) noexcept override;
    [[nodiscard]] tcp_chunk_pool& chunks() noexcept { return *chunks_; }
    [[nodiscard]] std::string describe() const { return ring_.describe(); }
    /// All sockets, including closed ones that the kernel still holds.
    [[nodiscard]] std::size_t sockets() const noexcept { return sockets_; }
    /// System calls on the io_uring so far.
    [[nodiscard]] std::uint64_t system_calls() const noexcept { return ring_.system_calls(); }

    /// Takes over the descriptor, on failure too.
    tcp_session& add_socket(int fd);

    RDMACORO_DECL void completed(std::uint64_t user_data, int outcome, unsigned flags) noexcept override;

private:
    friend class tcp_session;

    // Limits of one submission; all that it describes is over when the call returns.
    static constexpr std::size_t most_vectors = 1024;
    static constexpr std::size_t most_headers = 64;

    struct chunk_abandon {
        void operator()(tcp_chunk_pool* pool) const noexcept { pool->abandon(); }
    };

    /// Nothing is to be sent, tried or handed up, and the kernel has no news: found without a system call.
    [[nodiscard]] bool at_rest() const noexcept {
        return hot_.empty() && readable_.empty() && dirty_.empty() && work_.empty() && stalled_.empty() &&
               dead_.empty() && !ring_.wants_enter() && !ring_.has_completions();
    }
    void cool_quiet() noexcept;
    void collect_batch() noexcept;
    void submit_sends() noexcept;
    [[nodiscard]] bool serve_all() noexcept;
    /// Submits, and records completions, until every request that completes at once has.
    void submit_and_reap() noexcept;
    void destroy_dead() noexcept;
    void cool(tcp_session& session) noexcept;
    void heat(tcp_session& session) noexcept;
    /// A request with user data by which its completion finds the socket.
    [[nodiscard]] io_uring_sqe& request(tcp_session& session, tcp_request what) noexcept;
    void reap(tcp_session& session) noexcept;

    struct held_buffer {
        std::uint32_t bytes;
        std::uint16_t next;
    };

    /// The kernel copies what is sent: others that wait for a turn are not to wait for the copies of all links. Bytes from one poll to the
    /// next, beyond which one more socket may go.
    static constexpr std::size_t most_sent = std::size_t{1} << 20;
    /// Whether that leaves it a turn: one that is alone always has it.
    [[nodiscard]] bool may_send(const tcp_session& one) const noexcept {
        return sent_ < most_sent || last_sender_ == &one;
    }
    std::size_t sent_ = 0;
    const tcp_session* last_sender_ = nullptr;  // only compared

    scheduler& owner_;
    tcp_options options_;
    tcp_region_memory region_memory_;
    region_table regions_;
    std::unique_ptr<tcp_chunk_pool, chunk_abandon> chunks_;
    tcp_item_pool items_;
    tcp_liveness liveness_;

    std::uint64_t turn_ = 1;    // counts polls
    std::uint64_t epoch_ = 1;   // counts polls that moved nothing
    std::uint32_t places_ = 0;  // free places among the ring's files, one bit each
    bool enabled_ = false;
    bool parking_ = false;  // between arm and disarm
    unsigned at_once_ = 0;  // requests submitted that complete in the call
    std::size_t sockets_ = 0;
    intrusive_list<tcp_session, tcp_all_tag> all_;
    intrusive_list<tcp_session, tcp_dirty_tag> dirty_;        // have something to send
    intrusive_list<tcp_session, tcp_work_tag> work_;          // have something to hand up
    intrusive_list<tcp_session, tcp_readable_tag> readable_;  // not hot, but worth a try
    intrusive_list<tcp_session, tcp_readable_tag> stalled_;  // deferred frames are offered again at each poll
    std::vector<tcp_session*> hot_;                          // tried each poll, by a system call
    std::vector<tcp_session*> batch_;
    intrusive_list<tcp_session, tcp_work_tag> dead_;
    std::size_t vectors_used_ = 0;
    std::size_t headers_used_ = 0;
    std::array<held_buffer, tcp_ring::buffers> held_{};
    std::array<iovec, most_vectors> vectors_;
    std::array<msghdr, most_headers> headers_;
    tcp_ring ring_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/engine.ipp>
#include <rdmacoro/transport/tcp/impl/liveness.ipp>
#include <rdmacoro/transport/tcp/impl/session_receive.ipp>
#include <rdmacoro/transport/tcp/impl/session_send.ipp>
#endif
