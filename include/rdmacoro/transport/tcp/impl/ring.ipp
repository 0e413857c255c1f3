// The io_uring of a tcp domain: set-up, submission and its ring of provided buffers.
#pragma once

#include <rdmacoro/transport/tcp/ring.hpp>

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <sys/eventfd.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_DECL tcp_ring::tcp_ring(tcp_completion_handler& handler, tcp_feature wanted) : handler_(handler) {
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

RDMACORO_DECL tcp_ring::~tcp_ring() {
    io_uring_queue_exit(&ring_);
    ::close(wake_fd_);
}

RDMACORO_DECL void tcp_ring::enable() noexcept {
    const int answer =
        io_uring_register(static_cast<unsigned>(ring_.ring_fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
    if (answer < 0) fatal("tcp: the kernel does not enable its io_uring");
    io_uring_register_ring_fd(&ring_);  // spares each call the look-up of the descriptor; may fail
}

RDMACORO_DECL bool tcp_ring::reserve_files(unsigned places) noexcept {
    return places != 0 && io_uring_register_files_sparse(&ring_, places) == 0;
}

RDMACORO_DECL io_uring_sqe& tcp_ring::request() noexcept {
    io_uring_sqe* free = io_uring_get_sqe(&ring_);
    while (free == nullptr) [[unlikely]] {
        enter();
        reap();
        free = io_uring_get_sqe(&ring_);
    }
    return *free;
}

RDMACORO_DECL bool tcp_ring::wants_enter() const noexcept {
    return io_uring_sq_ready(&ring_) != 0 ||
           (IO_URING_READ_ONCE(*ring_.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
}

RDMACORO_DECL void tcp_ring::enter() noexcept {
    ++system_calls_;
    const int answer = io_uring_sq_ready(&ring_) != 0 ? io_uring_submit(&ring_) : io_uring_get_events(&ring_);
    if (answer < 0) [[unlikely]]
        check(answer);
}

RDMACORO_DECL bool tcp_ring::wait() noexcept {
    const int answer = io_uring_submit_and_wait(&ring_, 1);
    return answer >= 0 || answer == -EINTR || answer == -EAGAIN || answer == -EBUSY;
}

RDMACORO_DECL void tcp_ring::reap() noexcept {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0 && entry != nullptr) {
        const io_uring_cqe taken = *entry;
        io_uring_cqe_seen(&ring_, entry);
        handler_.completed(taken.user_data, taken.res, taken.flags);
    }
}

RDMACORO_DECL void tcp_ring::arm() noexcept {
    std::uint64_t drained = 0;
    [[maybe_unused]] const auto taken = ::read(wake_fd_, &drained, sizeof drained);
    io_uring_cq_eventfd_toggle(&ring_, true);
}

RDMACORO_DECL void tcp_ring::return_buffer(unsigned id) noexcept {
    io_uring_buf_ring_add(buffer_ring_, buffer_memory_.get() + id * buffer_bytes, buffer_bytes,
                          static_cast<unsigned short>(id), io_uring_buf_ring_mask(buffers), 0);
    io_uring_buf_ring_advance(buffer_ring_, 1);
}

RDMACORO_DECL std::string tcp_ring::describe() const {
    std::string text = "io_uring";
    text += (flags_ & IORING_SETUP_DEFER_TASKRUN) != 0 ? ", deferred task work" : ", cooperative task work";
    if ((flags_ & IORING_SETUP_SINGLE_ISSUER) != 0) text += ", single issuer";
    text += may_multishot() ? ", multishot receive into a ring of buffers" : ", poll before receive";
    return text;
}

RDMACORO_DECL void tcp_ring::page_delete::operator()(std::byte* memory) const noexcept {
    ::operator delete(memory, std::align_val_t(4096));
}

RDMACORO_DECL tcp_ring::page_memory tcp_ring::pages(std::size_t bytes) noexcept {
    return page_memory(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(4096), std::nothrow)));
}

RDMACORO_DECL void tcp_ring::set_up(tcp_feature wanted) {
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

RDMACORO_DECL int tcp_ring::try_set_up(unsigned flags) noexcept {
    io_uring_params wanted{};
    wanted.flags = flags;
    wanted.cq_entries = completions;
    const int answer = io_uring_queue_init_params(submissions, &ring_, &wanted);
    if (answer == 0) flags_ = flags;
    return answer;
}

RDMACORO_DECL void tcp_ring::provide_buffers() noexcept {
    struct probe_delete {
        void operator()(io_uring_probe* probe) const noexcept { io_uring_free_probe(probe); }
    };
    const std::unique_ptr<io_uring_probe, probe_delete> probe(io_uring_get_probe_ring(&ring_));
    if (probe == nullptr || io_uring_opcode_supported(probe.get(), IORING_OP_SEND_ZC) == 0) return;

    page_memory entries = pages(buffers * sizeof(io_uring_buf));
    page_memory memory = pages(buffers * buffer_bytes);
    if (entries == nullptr || memory == nullptr) return;
    auto* ring = reinterpret_cast<io_uring_buf_ring*>(entries.get());
    std::memset(entries.get(), 0, buffers * sizeof(io_uring_buf));
    io_uring_buf_ring_init(ring);
    io_uring_buf_reg registration{};
    registration.ring_addr = reinterpret_cast<std::uint64_t>(entries.get());
    registration.ring_entries = buffers;
    registration.bgid = 0;
    if (io_uring_register_buf_ring(&ring_, &registration, 0) != 0) return;
    buffer_memory_ = std::move(memory);
    buffer_ring_entries_ = std::move(entries);
    buffer_ring_ = ring;
    for (unsigned id = 0; id < buffers; ++id) return_buffer(id);
}

[[gnu::noinline]] RDMACORO_DECL void tcp_ring::check(int answer) noexcept {
    if (answer == -EEXIST)
        fatal("tcp: a domain was used on another thread, or in another process, than the one that used it "
              "first");
    if (answer == -EINTR || answer == -EAGAIN || answer == -EBUSY || answer == -ENOMEM) return;
    const std::string text =
        std::string("tcp: the kernel refuses to serve its io_uring: ") + std::strerror(-answer);
    fatal(text.c_str());
}

}  // namespace rdmacoro::detail
