// The domain's io_uring: set up with the features that the kernel offers, submission, and the ring of provided buffers.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/transport/tcp/options.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include <liburing.h>

namespace rdmacoro::detail {

/// Called for each completion; records it and never calls a user's code.
class tcp_completion_handler {
public:
    virtual void completed(std::uint64_t user_data, int outcome, unsigned flags) noexcept = 0;

protected:
    ~tcp_completion_handler() = default;
};

/// One io_uring. Set up anywhere, used by one thread.
class tcp_ring {
public:
    static constexpr unsigned submissions = 512;
    static constexpr unsigned completions = 8192;
    static constexpr unsigned buffers = 64;  // a power of two
    static constexpr std::size_t buffer_bytes = 16 * 1024;

    tcp_ring(tcp_completion_handler& handler, tcp_feature wanted);
    tcp_ring(const tcp_ring&) = delete;
    tcp_ring& operator=(const tcp_ring&) = delete;
    ~tcp_ring();

    /// The thread that calls this owns the ring from now on. Once, before the first submission.
    void enable() noexcept;

    /// Places for `set_file`. Requests that name such a place, by `use_file`, spare the look-up of the descriptor.
    [[nodiscard]] bool reserve_files(unsigned places) noexcept;
    /// The kernel holds the file open as long as it has a place; -1 empties it.
    bool set_file(unsigned place, int fd) noexcept {
        ++system_calls_;
        return io_uring_register_files_update(&ring_, place, &fd, 1) == 1;
    }
    static void use_file(io_uring_sqe& request, int place) noexcept {
        request.fd = place;
        request.flags |= IOSQE_FIXED_FILE;
    }

    /// A request to fill in. Submits by itself when as many wait as fit.
    [[nodiscard]] io_uring_sqe& request() noexcept;

    /// Requests wait for submission, or the kernel has completions that must be fetched by a call.
    [[nodiscard]] bool wants_enter() const noexcept;
    [[nodiscard]] bool has_completions() const noexcept { return io_uring_cq_ready(&ring_) != 0; }

    /// Submits the waiting requests and lets the kernel post its completions. Does not sleep.
    void enter() noexcept;

    /// Submits the waiting requests and sleeps until a completion comes; for tearing down. False when the ring is
    /// unusable here.
    [[nodiscard]] bool wait() noexcept;

    /// Hands completions to the handler. It may make requests, which may reap again.
    void reap() noexcept;

    /// Becomes readable, while armed, when there is something to reap.
    [[nodiscard]] int wake_fd() const noexcept { return wake_fd_; }
    void arm() noexcept;
    void disarm() noexcept { io_uring_cq_eventfd_toggle(&ring_, false); }

    [[nodiscard]] bool multishot() const noexcept { return buffer_ring_ != nullptr; }
    /// The kernel has no multishot receives; those in flight end by themselves.
    void give_up_multishot() noexcept { multishot_refused_ = true; }
    [[nodiscard]] bool may_multishot() const noexcept { return multishot() && !multishot_refused_; }

    [[nodiscard]] const std::byte* buffer(unsigned id) const noexcept {
        return buffer_memory_.get() + id * buffer_bytes;
    }
    /// The kernel may fill the buffer again.
    void return_buffer(unsigned id) noexcept;

    /// Calls of `io_uring_enter` and `io_uring_register` since it was enabled.
    [[nodiscard]] std::uint64_t system_calls() const noexcept { return system_calls_; }

    /// The features in use, for people.
    [[nodiscard]] std::string describe() const;

private:
    struct page_delete {
        void operator()(std::byte* memory) const noexcept;
    };
    using page_memory = std::unique_ptr<std::byte, page_delete>;
    /// Nullptr where memory is short.
    [[nodiscard]] static page_memory pages(std::size_t bytes) noexcept;

    // From the newest kernels to the oldest that serves: each rung is one setup call.
    void set_up(tcp_feature wanted);

    [[nodiscard]] int try_set_up(unsigned flags) noexcept;

    // Multishot receive came with the kernel that brought SEND_ZC; it has no probe of its own. Where memory is short the ring goes without.
    void provide_buffers() noexcept;

    [[gnu::cold]] static void check(int answer) noexcept;

    tcp_completion_handler& handler_;
    io_uring ring_{};
    unsigned flags_ = 0;
    std::uint64_t system_calls_ = 0;
    int wake_fd_ = -1;
    bool multishot_refused_ = false;
    page_memory buffer_memory_;
    page_memory buffer_ring_entries_;
    io_uring_buf_ring* buffer_ring_ = nullptr;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/ring.ipp>
#endif
