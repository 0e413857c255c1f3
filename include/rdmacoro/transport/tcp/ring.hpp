// The domain's io_uring: set up with what the kernel offers, submission, and the ring of provided buffers.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/transport/tcp/options.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace rdmacoro::detail {

/// Called for each completion; records what happened and never calls a user's code.
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

    tcp_ring(tcp_completion_handler& handler, tcp_feature wanted) : handler_(handler) {
        set_up(wanted);
        wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (wake_fd_ < 0 || io_uring_register_eventfd(&ring_, wake_fd_) != 0) {
            const std::error_code why(errno, std::system_category());
            if (wake_fd_ >= 0) ::close(wake_fd_);
            io_uring_queue_exit(&ring_);
            throw error(why, "tcp: an eventfd for the io_uring");
        }
        io_uring_cq_eventfd_toggle(&ring_, false);
        if (has(wanted, tcp_feature::multishot_receive)) provide_buffers();
    }
    tcp_ring(const tcp_ring&) = delete;
    tcp_ring& operator=(const tcp_ring&) = delete;
    ~tcp_ring() {
        io_uring_queue_exit(&ring_);
        ::close(wake_fd_);
    }

    /// The thread that calls this owns the ring from now on. Once, before the first submission.
    void enable() noexcept {
        const int answer =
            io_uring_register(static_cast<unsigned>(ring_.ring_fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
        if (answer < 0) fatal("tcp: the kernel does not enable its io_uring");
        io_uring_register_ring_fd(&ring_);  // spares each call the look-up of the descriptor; may fail
    }

    /// Places for `set_file`. Requests that name such a place, by `use_file`, spare the look-up of the descriptor.
    [[nodiscard]] bool reserve_files(unsigned places) noexcept {
        return places != 0 && io_uring_register_files_sparse(&ring_, places) == 0;
    }
    /// The kernel holds the file open as long as it has a place; -1 empties it.
    bool set_file(unsigned place, int fd) noexcept {
        return io_uring_register_files_update(&ring_, place, &fd, 1) == 1;
    }
    static void use_file(io_uring_sqe& request, int place) noexcept {
        request.fd = place;
        request.flags |= IOSQE_FIXED_FILE;
    }

    /// A request to fill in. Submits by itself when as many wait as fit.
    [[nodiscard]] io_uring_sqe& request() noexcept {
        io_uring_sqe* free = io_uring_get_sqe(&ring_);
        while (free == nullptr) [[unlikely]] {
            enter();
            reap();
            free = io_uring_get_sqe(&ring_);
        }
        return *free;
    }

    /// Requests wait for submission, or the kernel has completions that it wants to be asked for.
    [[nodiscard]] bool wants_enter() const noexcept {
        return io_uring_sq_ready(&ring_) != 0 ||
               (IO_URING_READ_ONCE(*ring_.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
    }
    [[nodiscard]] bool has_completions() const noexcept { return io_uring_cq_ready(&ring_) != 0; }

    /// Submits what waits and lets the kernel post what it has. Does not sleep.
    void enter() noexcept {
        const int answer =
            io_uring_sq_ready(&ring_) != 0 ? io_uring_submit(&ring_) : io_uring_get_events(&ring_);
        if (answer < 0) [[unlikely]]
            check(answer);
    }

    /// Submits what waits and sleeps until a completion comes; for tearing down. False when the ring is unusable here.
    [[nodiscard]] bool wait() noexcept {
        const int answer = io_uring_submit_and_wait(&ring_, 1);
        return answer >= 0 || answer == -EINTR || answer == -EAGAIN || answer == -EBUSY;
    }

    /// Hands up what has completed. The handler may make requests, which may reap again.
    void reap() noexcept {
        io_uring_cqe* entry = nullptr;
        while (io_uring_peek_cqe(&ring_, &entry) == 0 && entry != nullptr) {
            const io_uring_cqe taken = *entry;
            io_uring_cqe_seen(&ring_, entry);
            handler_.completed(taken.user_data, taken.res, taken.flags);
        }
    }

    /// Becomes readable, while armed, when there is something to reap.
    [[nodiscard]] int wake_fd() const noexcept { return wake_fd_; }
    void arm() noexcept {
        std::uint64_t drained = 0;
        [[maybe_unused]] const auto taken = ::read(wake_fd_, &drained, sizeof drained);
        io_uring_cq_eventfd_toggle(&ring_, true);
    }
    void disarm() noexcept { io_uring_cq_eventfd_toggle(&ring_, false); }

    [[nodiscard]] bool multishot() const noexcept { return buffer_ring_ != nullptr; }
    /// The kernel turned out not to know multishot receives; those in flight end by themselves.
    void give_up_multishot() noexcept { multishot_refused_ = true; }
    [[nodiscard]] bool may_multishot() const noexcept { return multishot() && !multishot_refused_; }

    [[nodiscard]] const std::byte* buffer(unsigned id) const noexcept {
        return buffer_memory_.get() + id * buffer_bytes;
    }
    /// The kernel may fill the buffer again.
    void return_buffer(unsigned id) noexcept {
        io_uring_buf_ring_add(buffer_ring_, buffer_memory_.get() + id * buffer_bytes, buffer_bytes,
                              static_cast<unsigned short>(id), io_uring_buf_ring_mask(buffers), 0);
        io_uring_buf_ring_advance(buffer_ring_, 1);
    }

    /// For people: what is in use.
    [[nodiscard]] std::string describe() const {
        std::string text = "io_uring";
        text +=
            (flags_ & IORING_SETUP_DEFER_TASKRUN) != 0 ? ", deferred task work" : ", cooperative task work";
        if ((flags_ & IORING_SETUP_SINGLE_ISSUER) != 0) text += ", single issuer";
        text += may_multishot() ? ", multishot receive into a ring of buffers" : ", poll before receive";
        return text;
    }

private:
    struct page_delete {
        void operator()(std::byte* memory) const noexcept {
            ::operator delete(memory, std::align_val_t(4096));
        }
    };
    using page_memory = std::unique_ptr<std::byte, page_delete>;
    [[nodiscard]] static page_memory pages(std::size_t bytes) {
        return page_memory(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(4096))));
    }

    // From the newest kernels to the oldest that serves: each rung is one setup call.
    void set_up(tcp_feature wanted) {
        constexpr unsigned always = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL |
                                    IORING_SETUP_R_DISABLED | IORING_SETUP_TASKRUN_FLAG;
        int answer = -EINVAL;
        if (has(wanted, tcp_feature::deferred_task_work | tcp_feature::single_issuer)) {
            answer = try_set_up(always | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
        }
        if (answer == -EINVAL && has(wanted, tcp_feature::single_issuer)) {
            answer = try_set_up(always | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN);
        }
        if (answer == -EINVAL) answer = try_set_up(always | IORING_SETUP_COOP_TASKRUN);
        if (answer == 0) return;
        switch (-answer) {
            case EPERM:
            case EACCES:
                throw error(errc::permission_denied, "tcp: io_uring is switched off here; see the sysctl "
                                                     "kernel.io_uring_disabled, or the seccomp "
                                                     "profile of the container");
            case ENOSYS:
            case EINVAL: throw error(errc::unsupported, "tcp: needs the io_uring of Linux 5.19 or later");
            case ENOMEM:
                throw error(errc::no_resources,
                            "tcp: no memory for an io_uring; raise the limit on locked memory (ulimit -l)");
            default: throw error(std::error_code(-answer, std::system_category()), "tcp: io_uring_setup");
        }
    }

    [[nodiscard]] int try_set_up(unsigned flags) noexcept {
        io_uring_params wanted{};
        wanted.flags = flags;
        wanted.cq_entries = completions;
        const int answer = io_uring_queue_init_params(submissions, &ring_, &wanted);
        if (answer == 0) flags_ = flags;
        return answer;
    }

    // Multishot receive came with the kernel that brought SEND_ZC; it has no probe of its own.
    void provide_buffers() {
        struct probe_delete {
            void operator()(io_uring_probe* probe) const noexcept { io_uring_free_probe(probe); }
        };
        const std::unique_ptr<io_uring_probe, probe_delete> probe(io_uring_get_probe_ring(&ring_));
        if (probe == nullptr || io_uring_opcode_supported(probe.get(), IORING_OP_SEND_ZC) == 0) return;

        page_memory entries = pages(buffers * sizeof(io_uring_buf));
        buffer_memory_ = pages(buffers * buffer_bytes);
        auto* ring = reinterpret_cast<io_uring_buf_ring*>(entries.get());
        std::memset(entries.get(), 0, buffers * sizeof(io_uring_buf));
        io_uring_buf_ring_init(ring);
        io_uring_buf_reg registration{};
        registration.ring_addr = reinterpret_cast<std::uint64_t>(entries.get());
        registration.ring_entries = buffers;
        registration.bgid = 0;
        if (io_uring_register_buf_ring(&ring_, &registration, 0) != 0) return;
        buffer_ring_entries_ = std::move(entries);
        buffer_ring_ = ring;
        for (unsigned id = 0; id < buffers; ++id) return_buffer(id);
    }

    [[gnu::cold, gnu::noinline]] static void check(int answer) noexcept {
        if (answer == -EEXIST)
            fatal("tcp: a domain was used on another thread than the one that used it first");
        if (answer != -EINTR && answer != -EAGAIN && answer != -EBUSY && answer != -ENOMEM) {
            fatal("tcp: the kernel refuses its io_uring");
        }
    }

    tcp_completion_handler& handler_;
    io_uring ring_{};
    unsigned flags_ = 0;
    int wake_fd_ = -1;
    bool multishot_refused_ = false;
    page_memory buffer_memory_;
    page_memory buffer_ring_entries_;
    io_uring_buf_ring* buffer_ring_ = nullptr;
};

}  // namespace rdmacoro::detail
