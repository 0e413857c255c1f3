// A segment's file: how it is made, checked and mapped.
#pragma once

#include <rdmacoro/transport/shm/segment.hpp>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace rdmacoro::detail::shm {

RDMACORO_COLD void unique_fd::reset() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

RDMACORO_COLD int poll_now(int fd, short events) noexcept {
    pollfd looked_at{fd, events, 0};
    for (;;) {
        const int ready = ::poll(&looked_at, 1, 0);
        if (ready >= 0 || errno != EINTR) return ready;
    }
}

[[gnu::noinline]] RDMACORO_DECL void throw_errno(const char* what, std::string_view which) {
    const std::error_code code(errno, std::system_category());
    throw error(code, std::string(what).append(which.data(), which.size()));
}

[[gnu::noinline]] RDMACORO_DECL void throw_named(errc code, std::string_view name, const char* text) {
    throw error(code, std::string(name.data(), name.size()).append(text));
}

RDMACORO_COLD unique_fd make_memfd(const char* name, std::size_t bytes, const char* what,
                                   const char* option) {
    // Looked at first: ftruncate beyond it sends SIGXFSZ, which ends the process.
    rlimit longest{};
    if (::getrlimit(RLIMIT_FSIZE, &longest) == 0 && bytes > longest.rlim_cur)
        throw_named(errc::no_resources,
                    std::string(what)
                        .append(" is longer than files may be (ulimit -f); raise that limit, or lower ")
                        .append(option));
    unique_fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) throw_errno("memfd of ", what);
    return fd;
}

RDMACORO_COLD bool geometry::acceptable() const noexcept {
    return cells >= 64 && cells <= (1u << 20) && (cells & (cells - 1)) == 0 && blocks >= 4 &&
           blocks <= most_blocks && block_bytes >= page_bytes && block_bytes <= (1u << 19) &&
           block_bytes % page_bytes == 0;
}

RDMACORO_COLD segment::~segment() {
    if (base_ != nullptr) ::munmap(base_, mapped_bytes(shape_));
}

RDMACORO_COLD std::size_t segment::file_bytes(const geometry& g) noexcept {
    return segment_header_bytes + 2 * g.ring_bytes() + 2 * g.block_area_bytes();
}

RDMACORO_COLD unique_fd segment::create(const geometry& g) {
    unique_fd fd = make_memfd("rdmacoro-link", file_bytes(g), "a shared-memory link", "shm_options::shape");
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        throw_errno("sealing a shared-memory link");
    }
    return fd;
}

RDMACORO_COLD void segment::map(int fd, const geometry& g) {
    check_file(fd, file_bytes(g), "the peer's shared-memory segment");
    const std::size_t ring = g.ring_bytes();
    void* reserved =
        ::mmap(nullptr, mapped_bytes(g), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) throw_errno("mmap of a shared-memory link");
    base_ = static_cast<std::byte*>(reserved);
    shape_ = g;
    std::byte* at = base_;
    place(at, fd, 0, segment_header_bytes);
    at += segment_header_bytes;
    for (std::size_t i = 0; i < 2; ++i) {
        place(at, fd, segment_header_bytes + i * ring, ring);
        place(at + ring, fd, segment_header_bytes + i * ring, ring);
        at += 2 * ring;
    }
    place(at, fd, segment_header_bytes + 2 * ring, 2 * g.block_area_bytes());
}

RDMACORO_COLD void segment::check_file(int fd, std::size_t bytes, const char* what) {
    // First of all: other files have no seals, and some ask a server for the rest, which may not answer.
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0) throw_named(errc::protocol_violation, what, " is no file in memory");
    struct stat facts{};
    if (::fstat(fd, &facts) != 0) throw_errno(what);
    // A file of huge pages can be mapped without memory behind it; touching it would end the process.
    struct statfs holder{};
    if (::fstatfs(fd, &holder) != 0) throw_errno(what);
    if (holder.f_type != TMPFS_MAGIC) throw_named(errc::protocol_violation, what, " is no file in memory");
    if (facts.st_size < static_cast<off_t>(bytes) || (seals & F_SEAL_SHRINK) == 0) {
        throw_named(errc::protocol_violation, what, " is too short or not sealed");
    }
}

RDMACORO_COLD std::size_t segment::mapped_bytes(const geometry& g) noexcept {
    return segment_header_bytes + 4 * g.ring_bytes() + 2 * g.block_area_bytes();
}

RDMACORO_COLD void segment::place(std::byte* at, int fd, std::size_t offset, std::size_t bytes) {
    if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(offset)) ==
        MAP_FAILED) {
        throw_errno("mmap of a shared-memory link");
    }
}

}  // namespace rdmacoro::detail::shm
