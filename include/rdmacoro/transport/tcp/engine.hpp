// The engine of a tcp domain: one io_uring, the sockets that use it, and the order in which they are served.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/tcp/core.hpp>
#include <rdmacoro/transport/tcp/ring.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <sys/mman.h>

namespace rdmacoro::detail {

/// A table of regions in memory of its own, zeroed and untouched until it is used.
class tcp_region_memory {
public:
    static constexpr std::size_t entries = 65'536;

    tcp_region_memory() {
        void* memory = ::mmap(nullptr, entries * sizeof(region_entry), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw error(errc::no_resources, "tcp: memory for the table of regions");
        first_ = static_cast<region_entry*>(memory);
    }
    tcp_region_memory(const tcp_region_memory&) = delete;
    tcp_region_memory& operator=(const tcp_region_memory&) = delete;
    ~tcp_region_memory() { ::munmap(first_, entries * sizeof(region_entry)); }

    [[nodiscard]] std::span<region_entry> table() noexcept { return {first_, entries}; }

private:
    region_entry* first_;
};

/// Everything a domain does each turn. A poll has three steps, so that no user code runs between the moment memory is
/// given to the kernel and the moment it is back:
///  1. those who may receive say where to (asks sinks for memory);
///  2. all sends and receives are submitted by one system call and complete in it; what completed is recorded;
///  3. what was recorded is handed up (calls sinks and completions, which may post).
class tcp_engine final : public tcp_completion_handler, public region_owner {
public:
    static constexpr unsigned serve_budget = 64;  // messages of one link at a time
    static constexpr std::size_t most_batched = 64;
    static constexpr unsigned most_hot = 32;
    static constexpr std::uint64_t cold_after = 64;  // empty polls until a hot link may lose its place
    static constexpr unsigned hot_after = 3;  // arrivals close to each other until it may be given away

    tcp_engine(scheduler& owner, const tcp_options& options)
        : owner_(owner),
          options_(options),
          regions_(region_memory_.table()),
          chunks_(new tcp_chunk_pool),
          ring_(*this, options.features) {
        options_.most_polled = std::min(options_.most_polled, most_hot);
        hot_.reserve(options_.most_polled);
        batch_.reserve(options_.most_polled + most_batched);
    }
    tcp_engine(const tcp_engine&) = delete;
    tcp_engine& operator=(const tcp_engine&) = delete;
    inline ~tcp_engine();

    inline bool poll() noexcept;
    inline void arm() noexcept;
    inline void disarm() noexcept;
    [[nodiscard]] int wake_fd() const noexcept { return ring_.wake_fd(); }
    inline void enable() noexcept;

    [[nodiscard]] scheduler& owner() const noexcept { return owner_; }
    [[nodiscard]] const tcp_options& options() const noexcept { return options_; }
    [[nodiscard]] region_table& regions() noexcept { return regions_; }
    void deregister(std::uint64_t key) noexcept override { regions_.remove(key); }
    [[nodiscard]] tcp_chunk_pool& chunks() noexcept { return *chunks_; }
    [[nodiscard]] std::string describe() const { return ring_.describe(); }
    /// Sockets that exist, those included that are closed but not yet out of the kernel.
    [[nodiscard]] std::size_t sockets() const noexcept { return sockets_; }

    /// Takes over the descriptor, on failure too.
    inline tcp_core& add_socket(int fd);

    inline void completed(std::uint64_t user_data, int outcome, unsigned flags) noexcept override;

private:
    friend class tcp_core;

    // What one submission describes; all of it is over when the call returns.
    static constexpr std::size_t most_vectors = 1024;
    static constexpr std::size_t most_headers = 64;

    struct chunk_abandon {
        void operator()(tcp_chunk_pool* pool) const noexcept { pool->abandon(); }
    };

    inline void collect_batch() noexcept;
    inline void submit_sends() noexcept;
    [[nodiscard]] inline bool serve_all() noexcept;
    /// Submits, and records what completed, until everything that completes at once has.
    inline void submit_and_reap() noexcept;
    inline void destroy_dead() noexcept;
    inline void cool(tcp_core& core) noexcept;
    [[nodiscard]] inline bool make_place() noexcept;
    inline void heat(tcp_core& core) noexcept;
    /// A request whose completion finds its socket.
    [[nodiscard]] inline io_uring_sqe& request(tcp_core& core, tcp_request what) noexcept;
    inline void bury(tcp_core& core) noexcept;

    struct held_buffer {
        std::uint32_t bytes;
        std::uint16_t next;
    };

    scheduler& owner_;
    tcp_options options_;
    tcp_region_memory region_memory_;
    region_table regions_;
    std::unique_ptr<tcp_chunk_pool, chunk_abandon> chunks_;
    tcp_item_pool items_;

    std::uint64_t turn_ = 1;    // counts polls
    std::uint64_t epoch_ = 1;   // counts polls that moved nothing
    std::uint32_t places_ = 0;  // free places among the ring's files, one bit each
    bool enabled_ = false;
    bool parking_ = false;  // between arm and disarm
    unsigned at_once_ = 0;  // requests submitted that complete in the call
    std::size_t sockets_ = 0;
    intrusive_list<tcp_core, tcp_all_tag> all_;
    intrusive_list<tcp_core, tcp_dirty_tag> dirty_;        // have something to send
    intrusive_list<tcp_core, tcp_work_tag> work_;          // have something to hand up
    intrusive_list<tcp_core, tcp_readable_tag> readable_;  // not hot, but worth a try
    intrusive_list<tcp_core, tcp_readable_tag> stalled_;   // what has come is offered again at each poll
    std::vector<tcp_core*> hot_;                           // tried each poll
    std::vector<tcp_core*> batch_;
    intrusive_list<tcp_core, tcp_work_tag> dead_;
    std::size_t vectors_used_ = 0;
    std::size_t headers_used_ = 0;
    std::array<held_buffer, tcp_ring::buffers> held_{};
    std::array<iovec, most_vectors> vectors_;
    std::array<msghdr, most_headers> headers_;
    tcp_ring ring_;
};

}  // namespace rdmacoro::detail

#include <rdmacoro/transport/tcp/core_receive.hpp>
#include <rdmacoro/transport/tcp/core_send.hpp>
#include <rdmacoro/transport/tcp/engine_loop.hpp>
