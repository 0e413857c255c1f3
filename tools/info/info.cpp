// rdmacoro-info: what this machine offers to rdmacoro, and what to do about what it does not.
//
// Nothing here is guessed from version numbers where it can be tried: a ring is set up, memory of another process
// is read, a multishot receive is armed. A kernel may have a feature and a container, a limit or a sysctl forbid it.
// Needs neither liburing nor rdma-core, so that it runs where they are missing; built with rdma-core it opens each RDMA device, and
// built with libfabric it lists its providers, too.

#include "libfabric.hpp"
#include "verbs.hpp"

#include "../pingpong/failure.hpp"
#include "../pingpong/output.hpp"
#include "../pingpong/program.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/membarrier.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

enum class state { ok, limited, missing };

/// One line of the report. `advice` is what to do about a state other than ok: a command or a setting.
struct finding {
    std::string name;
    state is = state::missing;
    std::string detail, advice{};
};

const char* text(state s) {
    switch (s) {
        case state::ok: return "ok";
        case state::limited: return "limited";
        case state::missing: return "missing";
    }
    return "";
}

std::string error_text(int error) { return std::generic_category().message(error); }

// ------------------------------------------------------------------------------- small files, descriptors

/// The first line of a file, or nothing where it cannot be read.
std::string first_line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return line;
}

/// The value after `key` and a colon, as in /proc/self/status.
std::string keyed_value(const fs::path& path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(key)) continue;
        const auto colon = line.find(':');
        if (colon == std::string::npos) continue;
        const auto begin = line.find_first_not_of(" \t", colon + 1);
        return begin == std::string::npos ? std::string{} : line.substr(begin);
    }
    return {};
}

std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code none;
    for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none))
        found.push_back(it->path());
    std::sort(found.begin(), found.end());
    return found;
}

class descriptor {
public:
    explicit descriptor(long fd = -1) : fd_(static_cast<int>(fd)) {}
    ~descriptor() { close(); }
    descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    descriptor& operator=(descriptor&& other) noexcept {
        close();
        fd_ = std::exchange(other.fd_, -1);
        return *this;
    }

    explicit operator bool() const { return fd_ >= 0; }
    int get() const { return fd_; }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }

private:
    int fd_;
};

/// Capabilities this process has now (linux/capability.h numbers them).
bool has_capability(unsigned number) {
    const std::string set = keyed_value("/proc/self/status", "CapEff");
    return !set.empty() && ((std::stoull(set, nullptr, 16) >> number) & 1) != 0;
}

/// A seccomp filter answers system calls before the kernel looks at them: containers come with one.
bool seccomp_filtered() { return keyed_value("/proc/self/status", "Seccomp") == "2"; }

// ------------------------------------------------------------------------------------ kernel, processors

std::pair<unsigned, unsigned> kernel_version() {
    utsname u{};
    ::uname(&u);
    unsigned major = 0, minor = 0;
    std::sscanf(u.release, "%u.%u", &major, &minor);
    return {major, minor};
}

std::string needs_kernel(const char* version) {
    return std::string("boot Linux ") + version + " or newer (Debian 12: apt-get install linux-image-amd64)";
}

finding check_kernel() {
    utsname u{};
    ::uname(&u);
    const std::string release = std::string("Linux ") + u.release + " on " + u.machine;
    const auto version = kernel_version();
    if (version < std::pair{5U, 19U})
        return {"kernel", state::missing, release + "; rdmacoro's tcp needs 5.19", needs_kernel("6.1")};
    if (version < std::pair{6U, 1U})
        return {"kernel", state::limited, release + "; works, without deferred task work",
                needs_kernel("6.1")};
    return {"kernel", state::ok, release};
}

std::size_t usable_cpus() {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return static_cast<std::size_t>(CPU_COUNT(&set));
}

finding check_cpus() {
    const std::size_t usable = usable_cpus();
    const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
    const std::string detail = std::to_string(usable) + " usable of " + std::to_string(online) + " online";
    if (usable < 2)
        return {"cpus", state::limited, detail + "; two spinning ends would take turns on one",
                "use --idle yield or adaptive, or give it two: taskset -c 0,1 COMMAND, docker run "
                "--cpuset-cpus 0,1"};
    const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if (!governor.empty() && governor != "performance")
        return {"cpus", state::limited, detail + "; frequency governor " + governor + ": timings vary",
                "cpupower frequency-set -g performance"};
    return {"cpus", state::ok, detail};
}

finding check_seccomp() {
    const std::string mode = keyed_value("/proc/self/status", "Seccomp");
    if (mode == "0") return {"seccomp", state::ok, "no filter on system calls"};
    if (mode.empty()) return {"seccomp", state::ok, "the kernel does not tell; system calls are tried below"};
    return {
        "seccomp", state::limited, "a filter decides which system calls are allowed (a container?)",
        "only if a line below is missing for it: docker run --security-opt seccomp=unconfined, or a profile "
        "that allows io_uring_setup, io_uring_enter, io_uring_register, process_vm_readv, process_vm_writev"};
}

// ------------------------------------------------------------------------------------------ shared memory

finding check_memfd() {
    const descriptor fd(::memfd_create("rdmacoro-info", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd)
        return {"memfd", state::missing, "memfd_create: " + error_text(errno),
                "allow memfd_create in the container's seccomp profile; shm needs it"};
    constexpr std::size_t bytes = 1 << 16;
    if (::ftruncate(fd.get(), bytes) != 0 || ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
        return {"memfd", state::limited, "sizing and sealing: " + error_text(errno),
                "raise the limits of memory: ulimit -f unlimited"};
    void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (pages == MAP_FAILED)
        return {"memfd", state::limited, "mmap: " + error_text(errno),
                "raise the limits of memory: ulimit -v unlimited"};
    ::munmap(pages, bytes);
    return {"memfd", state::ok, "created, sized, sealed and mapped"};
}

/// errno of each attempt between a parent and its child, 0 for success, -1 for not tried.
///
/// A child reaching for its parent stands for two unrelated processes of one user: Yama's scope 1 lets a parent
/// into its children in any case.
struct vm_attempts {
    struct pair {
        int read = -1, write = -1;
    };
    pair down{};        // parent into child
    pair up{};          // child into parent
    pair up_allowed{};  // the same after the parent said prctl(PR_SET_PTRACER, child)
};

constexpr std::uint64_t parents_word = 0x7061'7265'6e74'2121, childs_word = 0x6368'696c'6421'2121;

vm_attempts::pair try_vm(pid_t pid, std::uint64_t* remote, std::uint64_t expected) {
    std::uint64_t copy = 0;
    const iovec here{&copy, sizeof copy}, there{remote, sizeof *remote};
    const auto outcome = [](ssize_t moved) {
        if (moved == static_cast<ssize_t>(sizeof(std::uint64_t))) return 0;
        return moved < 0 ? errno : EIO;
    };
    vm_attempts::pair tried;
    tried.read = outcome(::process_vm_readv(pid, &here, 1, &there, 1, 0));
    if (tried.read == 0 && copy != expected) tried.read = EIO;
    copy = expected;  // what is there already
    tried.write = outcome(::process_vm_writev(pid, &here, 1, &there, 1, 0));
    return tried;
}

vm_attempts try_vm_between_processes() {
    void* const pages =
        ::mmap(nullptr, sizeof(vm_attempts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::runtime_error("mmap: " + error_text(errno));
    auto* const shared = new (pages) vm_attempts;
    std::array<int, 2> channel{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel.data()) != 0)
        throw std::runtime_error("socketpair: " + error_text(errno));
    descriptor ours(channel[0]), theirs(channel[1]);

    // Each step ends with one byte; an end of the channel (the other process died) ends the wait as well.
    const auto step_done = [](const descriptor& fd) { return ::send(fd.get(), "x", 1, MSG_NOSIGNAL) == 1; };
    const auto await_step = [](const descriptor& fd) {
        char byte = 0;
        ssize_t got = 0;
        while ((got = ::recv(fd.get(), &byte, 1, 0)) < 0 && errno == EINTR) {}
        return got == 1;
    };
    std::uint64_t word = parents_word;
    asm volatile("" : : "r"(&word) : "memory");  // other processes read and write it
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("fork: " + error_text(errno));
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ours.close();
        word = childs_word;
        asm volatile("" : : "r"(&word) : "memory");
        if (step_done(theirs) && await_step(theirs)) {
            shared->up = try_vm(parent, &word, parents_word);
            if (step_done(theirs) && await_step(theirs))
                shared->up_allowed = try_vm(parent, &word, parents_word);
        }
        ::_exit(0);
    }
    theirs.close();
    if (await_step(ours)) {
        shared->down = try_vm(child, &word, childs_word);
        if (step_done(ours) && await_step(ours)) {
            ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(child), 0, 0, 0);
            step_done(ours);
        }
    }
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {}
    ::prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    const vm_attempts result = *shared;
    ::munmap(pages, sizeof(vm_attempts));
    return result;
}

finding explain_vm(const std::string& name, int down, int up, int up_allowed) {
    const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
    const std::string yama = scope.empty() ? "no Yama" : "kernel.yama.ptrace_scope=" + scope;
    if (down == 0 && up == 0) return {name, state::ok, "allowed both ways between parent and child; " + yama};
    if (down == 0 && up_allowed == 0)
        return {name, state::ok,
                "allowed both ways once prctl(PR_SET_PTRACER) permits it, as shm does; " + yama};

    const int error = down > 0 ? down : up_allowed > 0 ? up_allowed : up;
    finding f{name, down == 0 ? state::limited : state::missing,
              (down == 0 ? "a parent may, a child may not: " : "refused: ") +
                  (error > 0 ? error_text(error) : std::string("the other process ended")) + "; " + yama};
    if (error == ENOSYS)
        f.advice = "boot a kernel with CONFIG_CROSS_MEMORY_ATTACH (a sandbox may hide the call)";
    else if (scope == "3")
        f.advice = "remove kernel.yama.ptrace_scope=3 from /etc/sysctl.d and reboot: 3 cannot be lowered";
    else if (scope == "1" || scope == "2")
        f.advice = "sysctl -w kernel.yama.ptrace_scope=" + std::string(scope == "2" ? "1" : "0");
    else if (seccomp_filtered())
        f.advice = "docker run --cap-add SYS_PTRACE, or --security-opt seccomp=PROFILE that allows " + name;
    else
        f.advice = "setcap cap_sys_ptrace+ep PROGRAM, and run both ends as the same user";
    f.advice += "; without it shm copies large messages through its ring";
    return f;
}

finding check_membarrier() {
    const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    const std::string use = "without it a parking end pays a fence for each message";
    if (commands < 0)
        return {"membarrier", state::missing, "membarrier: " + error_text(errno) + "; " + use,
                errno == ENOSYS ? "boot a kernel with CONFIG_MEMBARRIER"
                                : "allow membarrier in the container's seccomp profile"};
    if ((commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0)
        return {"membarrier", state::missing, "no GLOBAL_EXPEDITED; " + use, needs_kernel("4.16")};
    if (::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0 ||
        ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
        return {"membarrier", state::missing, "GLOBAL_EXPEDITED: " + error_text(errno) + "; " + use,
                "allow membarrier in the container's seccomp profile"};
    return {"membarrier", state::ok, "GLOBAL_EXPEDITED works"};
}

// ------------------------------------------------------------------------------------------------ limits

std::string in_kilobytes(rlim_t value) {
    return value == RLIM_INFINITY ? "unlimited" : std::to_string(value / 1024) + " KB";
}

finding check_memlock() {
    rlimit limit{};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    const std::string detail =
        in_kilobytes(limit.rlim_cur) + " may be locked (hard limit " + in_kilobytes(limit.rlim_max) + ")";
    constexpr unsigned cap_ipc_lock = 14;
    if (limit.rlim_cur == RLIM_INFINITY) return {"memlock", state::ok, "unlimited"};
    if (has_capability(cap_ipc_lock))
        return {"memlock", state::ok, detail + "; CAP_IPC_LOCK lifts it for this user"};
    return {"memlock", state::limited, detail + "; bounds what can be registered with a network adapter",
            limit.rlim_max == RLIM_INFINITY
                ? "ulimit -l unlimited"
                : "echo '* - memlock unlimited' > /etc/security/limits.d/90-memlock.conf and log in again "
                  "(systemd: "
                  "LimitMEMLOCK=infinity, docker run --ulimit memlock=-1)"};
}

finding check_open_files() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const auto number = [](rlim_t value) {
        return value == RLIM_INFINITY ? std::string("unlimited") : std::to_string(value);
    };
    const std::string detail = number(limit.rlim_cur) + " (hard limit " + number(limit.rlim_max) + ")";
    if (limit.rlim_cur >= 4096) return {"open_files", state::ok, detail};
    return {"open_files", state::limited, detail + "; bounds the number of connections",
            limit.rlim_max >= 4096
                ? "ulimit -n " + number(std::min<rlim_t>(limit.rlim_max, 65536))
                : "echo '* - nofile 65536' > /etc/security/limits.d/90-nofile.conf and log in again"};
}

finding check_hugepages() {
    unsigned long long free_kilobytes = 0;
    for (const fs::path& size : entries("/sys/kernel/mm/hugepages")) {
        const std::string count = first_line(size / "free_hugepages");
        unsigned long long kilobytes = 0;
        if (!count.empty() && std::sscanf(size.filename().c_str(), "hugepages-%llukB", &kilobytes) == 1)
            free_kilobytes += kilobytes * std::stoull(count);
    }
    const std::string transparent = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
    const std::string shmem = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    const std::string detail =
        std::to_string(free_kilobytes / 1024) +
        " MB reserved and free; transparent: " + (transparent.empty() ? "none" : transparent) +
        ", for shared memory: " + (shmem.empty() ? "none" : shmem);
    if (free_kilobytes > 0) return {"hugepages", state::ok, detail};
    const bool usable = transparent.find("[always]") != std::string::npos ||
                        transparent.find("[madvise]") != std::string::npos;
    return {
        "hugepages", usable ? state::limited : state::missing, detail,
        "sysctl -w vm.nr_hugepages=512 reserves 1 GB of 2 MB pages (fewer translations for large buffers)"};
}

finding check_userfaultfd() {
    const std::string sysctl = first_line("/proc/sys/vm/unprivileged_userfaultfd");
    // The registration cache wants to hear when registered memory is unmapped, moved or discarded.
    constexpr std::uint64_t wanted =
        UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
    const auto open = [](int flags) {
        return descriptor(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags));
    };
    std::string how = "all faults";
    descriptor fd = open(0);
    const int refused = fd ? 0 : errno;
    if (!fd) {
        how = "faults of user mode only, which is enough";
        fd = open(UFFD_USER_MODE_ONLY);
    }
    if (!fd && refused == ENOSYS)
        return {"userfaultfd", state::missing, error_text(refused), "boot a kernel with CONFIG_USERFAULTFD"};
    if (!fd)
        return {"userfaultfd", state::missing,
                error_text(refused) + "; vm.unprivileged_userfaultfd=" + sysctl,
                seccomp_filtered()
                    ? "docker run --cap-add SYS_PTRACE or a seccomp profile that allows userfaultfd"
                    : "sysctl -w vm.unprivileged_userfaultfd=1"};
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = wanted;
    if (::ioctl(fd.get(), UFFDIO_API, &api) != 0)
        return {"userfaultfd", state::limited, how + "; no events for unmapped memory: " + error_text(errno),
                needs_kernel("4.11")};
    return {"userfaultfd", state::ok, how + "; unmap, remap and remove events"};
}

// ---------------------------------------------------------------------------------------------- io_uring

/// An io_uring by bare system calls: just what the attempts below need, one submission at a time.
class raw_ring {
public:
    explicit raw_ring(unsigned flags) {
        parameters_.flags = flags;
        fd_ = descriptor(::syscall(SYS_io_uring_setup, 8, &parameters_));
        error_ = fd_ ? 0 : errno;
    }
    ~raw_ring() {
        if (queues_ != MAP_FAILED) ::munmap(queues_, queues_bytes_);
        if (submissions_ != MAP_FAILED) ::munmap(submissions_, submissions_bytes());
    }
    raw_ring(const raw_ring&) = delete;
    raw_ring& operator=(const raw_ring&) = delete;

    int error() const { return error_; }  // of the set-up; 0: there is a ring

    long enroll(unsigned operation, void* argument, unsigned count) const {
        return ::syscall(SYS_io_uring_register, fd_.get(), operation, argument, count);
    }

    /// The result of the next completion of `sqe` (submitted here) within a second, with its flags.
    std::pair<int, unsigned> submit_and_wait(const io_uring_sqe& sqe,
                                             const std::function<void()>& after_submission) {
        if (!map()) return {-errno, 0};
        auto& tail = at<unsigned>(parameters_.sq_off.tail);
        const unsigned slot = tail & at<unsigned>(parameters_.sq_off.ring_mask);
        static_cast<io_uring_sqe*>(submissions_)[slot] = sqe;
        (&at<unsigned>(parameters_.sq_off.array))[slot] = slot;
        std::atomic_ref(tail).store(tail + 1, std::memory_order_release);
        if (::syscall(SYS_io_uring_enter, fd_.get(), 1, 0, 0, nullptr, 0) != 1) return {-errno, 0};
        after_submission();

        __kernel_timespec limit{1, 0};
        io_uring_getevents_arg wait{};
        wait.ts = reinterpret_cast<std::uintptr_t>(&limit);
        auto& head = at<unsigned>(parameters_.cq_off.head);
        auto& end = at<unsigned>(parameters_.cq_off.tail);
        if (std::atomic_ref(end).load(std::memory_order_acquire) == head &&
            ::syscall(SYS_io_uring_enter, fd_.get(), 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                      &wait, sizeof wait) < 0)
            return {-errno, 0};
        if (std::atomic_ref(end).load(std::memory_order_acquire) == head) return {-ETIME, 0};
        const auto& cqe =
            (&at<io_uring_cqe>(parameters_.cq_off.cqes))[head & at<unsigned>(parameters_.cq_off.ring_mask)];
        const std::pair result{cqe.res, cqe.flags};
        std::atomic_ref(head).store(head + 1, std::memory_order_release);
        return result;
    }

private:
    bool map() {
        if (submissions_ != MAP_FAILED) return true;
        if ((parameters_.features & IORING_FEAT_SINGLE_MMAP) == 0) {
            errno = EOPNOTSUPP;
            return false;
        }
        const auto map_at = [&](std::size_t bytes, off_t offset) {
            return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(),
                          offset);
        };
        queues_bytes_ = std::max(parameters_.sq_off.array + parameters_.sq_entries * sizeof(unsigned),
                                 parameters_.cq_off.cqes + parameters_.cq_entries * sizeof(io_uring_cqe));
        queues_ = map_at(queues_bytes_, IORING_OFF_SQ_RING);
        if (queues_ == MAP_FAILED) return false;
        submissions_ = map_at(submissions_bytes(), IORING_OFF_SQES);
        return submissions_ != MAP_FAILED;
    }
    std::size_t submissions_bytes() const { return parameters_.sq_entries * sizeof(io_uring_sqe); }
    template <class T>
    T& at(unsigned offset) const {
        return *reinterpret_cast<T*>(static_cast<std::byte*>(queues_) + offset);
    }

    io_uring_params parameters_{};
    descriptor fd_;
    int error_ = 0;
    std::size_t queues_bytes_ = 0;
    void* queues_ = MAP_FAILED;
    void* submissions_ = MAP_FAILED;
};

finding check_io_uring() {
    const std::string disabled = first_line("/proc/sys/kernel/io_uring_disabled");  // since Linux 6.6
    const std::string sysctl = disabled.empty() ? "" : "; kernel.io_uring_disabled=" + disabled;
    const raw_ring ring(0);
    if (ring.error() == 0) return {"io_uring", state::ok, "a ring was set up" + sysctl};
    finding f{"io_uring", state::missing, "io_uring_setup: " + error_text(ring.error()) + sysctl};
    if (ring.error() == ENOSYS)
        f.advice = "boot a kernel with CONFIG_IO_URING (a sandbox may hide the call)";
    else if (ring.error() == ENOMEM)
        f.advice = "ulimit -l unlimited";
    else if (!disabled.empty() && disabled != "0")
        f.advice = "sysctl -w kernel.io_uring_disabled=0";
    else
        f.advice = "docker run --security-opt seccomp=unconfined, or a profile that allows io_uring_setup, "
                   "io_uring_enter and io_uring_register";
    f.advice += "; rdmacoro's tcp needs it";
    return f;
}

finding check_ring_flags(const char* name, unsigned flags, const char* without, const char* since) {
    const raw_ring ring(flags);
    if (ring.error() == 0) return {name, state::ok, "a ring was set up with it"};
    if (ring.error() == EINVAL) return {name, state::missing, without, needs_kernel(since)};
    return {name, state::missing, error_text(ring.error()), "see io_uring"};
}

/// Eight buffers of 64 bytes, lent to the kernel as group 0 of a ring.
class provided_buffers {
public:
    explicit provided_buffers(raw_ring& ring) {
        // One page for the ring's entries (page-aligned, as the kernel asks), then the buffers.
        pages_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages_ == MAP_FAILED) throw std::runtime_error("mmap: " + error_text(errno));
        io_uring_buf_reg registration{};
        registration.ring_addr = reinterpret_cast<std::uintptr_t>(pages_);
        registration.ring_entries = count;
        error_ = ring.enroll(IORING_REGISTER_PBUF_RING, &registration, 1) == 0 ? 0 : errno;
        auto* const entries = static_cast<io_uring_buf*>(pages_);
        for (std::uint16_t i = 0; i != count; ++i) {
            entries[i].addr = reinterpret_cast<std::uintptr_t>(pages_) + bytes / 2 + i * 64U;
            entries[i].len = 64;
            entries[i].bid = i;
        }
        // The ring's tail lies in the first entry's spare field.
        std::atomic_ref(entries[0].resv).store(std::uint16_t{count}, std::memory_order_release);
    }
    ~provided_buffers() { ::munmap(pages_, bytes); }
    provided_buffers(const provided_buffers&) = delete;
    provided_buffers& operator=(const provided_buffers&) = delete;

    int error() const { return error_; }

private:
    static constexpr std::uint16_t count = 8;
    static constexpr std::size_t bytes = 1 << 17;  // two pages where pages have 64 KB
    void* pages_;
    int error_ = 0;
};

finding check_provided_buffers() {
    raw_ring ring(0);
    if (ring.error() != 0)
        return {"io_uring_provided_buffers", state::missing, error_text(ring.error()), "see io_uring"};
    const provided_buffers buffers(ring);
    if (buffers.error() == 0) return {"io_uring_provided_buffers", state::ok, "a buffer ring was registered"};
    return {"io_uring_provided_buffers", state::missing,
            "registering a buffer ring: " + error_text(buffers.error()), needs_kernel("5.19")};
}

finding judge_multishot(const char* name, int result, unsigned flags, const char* since) {
    if (result >= 0 && (flags & IORING_CQE_F_MORE) != 0)
        return {name, state::ok, "armed once, and stayed armed"};
    if (result >= 0) return {name, state::missing, "the request did not stay armed", needs_kernel(since)};
    return {name, state::missing, error_text(-result), needs_kernel(since)};
}

finding check_multishot_recv() {
    constexpr const char* name = "io_uring_multishot_recv";
    raw_ring ring(0);
    if (ring.error() != 0) return {name, state::missing, error_text(ring.error()), "see io_uring"};
    const provided_buffers buffers(ring);
    if (buffers.error() != 0)
        return {name, state::missing, "needs a provided buffer ring", "see io_uring_provided_buffers"};
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
        throw std::runtime_error("socketpair: " + error_text(errno));
    const descriptor receiver(pair[0]), sender(pair[1]);
    io_uring_sqe sqe{};
    sqe.opcode = IORING_OP_RECV;
    sqe.fd = receiver.get();
    sqe.ioprio = IORING_RECV_MULTISHOT;
    sqe.flags = IOSQE_BUFFER_SELECT;
    const auto [result, flags] =
        ring.submit_and_wait(sqe, [&] { static_cast<void>(::send(sender.get(), "x", 1, MSG_NOSIGNAL)); });
    return judge_multishot(name, result, flags, "6.0");
}

finding check_multishot_accept() {
    constexpr const char* name = "io_uring_multishot_accept";
    raw_ring ring(0);
    if (ring.error() != 0) return {name, state::missing, error_text(ring.error()), "see io_uring"};
    const descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (!listener || !client || ::bind(listener.get(), generic, length) != 0 ||
        ::listen(listener.get(), 1) != 0 || ::getsockname(listener.get(), generic, &length) != 0)
        return {name, state::missing, "listening on 127.0.0.1: " + error_text(errno), "ip link set lo up"};
    io_uring_sqe sqe{};
    sqe.opcode = IORING_OP_ACCEPT;
    sqe.fd = listener.get();
    sqe.ioprio = IORING_ACCEPT_MULTISHOT;
    const auto [result, flags] = ring.submit_and_wait(sqe, [&] {
        static_cast<void>(::connect(client.get(), generic, length));  // a failure shows as no completion
    });
    const descriptor accepted(result);
    return judge_multishot(name, result, flags, "5.19");
}

finding check_send_zc() {
    constexpr const char* name = "io_uring_send_zc";
    const raw_ring ring(0);
    if (ring.error() != 0) return {name, state::missing, error_text(ring.error()), "see io_uring"};
    constexpr unsigned operations = 256;
    std::vector<std::uint64_t> room((sizeof(io_uring_probe) + operations * sizeof(io_uring_probe_op)) / 8 +
                                    1);
    auto* const probe = reinterpret_cast<io_uring_probe*>(room.data());
    if (ring.enroll(IORING_REGISTER_PROBE, probe, operations) != 0)
        return {name, state::missing, "IORING_REGISTER_PROBE: " + error_text(errno), needs_kernel("6.0")};
    const auto supported = [&](unsigned operation) {
        return operation <= probe->last_op && (probe->ops[operation].flags & IO_URING_OP_SUPPORTED) != 0;
    };
    if (!supported(IORING_OP_SEND_ZC))
        return {name, state::missing, "large sends are copied", needs_kernel("6.0")};
    if (!supported(IORING_OP_SENDMSG_ZC))
        return {name, state::limited, "SEND_ZC, without gathered SENDMSG_ZC", needs_kernel("6.1")};
    return {name, state::ok, "SEND_ZC and SENDMSG_ZC (over loopback the kernel copies all the same)"};
}

// ----------------------------------------------------------------------------------------------- networks

finding check_congestion_control() {
    const fs::path ipv4 = "/proc/sys/net/ipv4";
    const std::string current = first_line(ipv4 / "tcp_congestion_control");
    const std::string available = first_line(ipv4 / "tcp_available_congestion_control");
    const std::string allowed = first_line(ipv4 / "tcp_allowed_congestion_control");
    finding f{"tcp_congestion_control", state::ok, "current: " + current + "; available: " + available};
    const descriptor tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!tcp)
        return {f.name, state::missing, "no IPv4 socket: " + error_text(errno),
                "modprobe ipv4, or leave the sandbox"};
    if (::setsockopt(tcp.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4) == 0) {
        f.detail += "; a socket may choose reno";
        return f;
    }
    f.detail += "; a socket may not choose reno: " + error_text(errno);
    if (!current.starts_with("bbr")) return f;
    f.is = state::limited;
    f.detail += ", and bbr paces large messages between processes of one host";
    f.advice = "sysctl -w net.ipv4.tcp_allowed_congestion_control='" + allowed + " reno'";
    return f;
}

/// Everything sysfs tells of the RDMA devices: the JSON form is the whole truth, the table a summary.
/// The longest RoCE packet's payload that fits into those of a network interface; 0: there is no interface.
unsigned long path_mtu(const std::string& interface) {
    const std::string value = interface.empty() ? "" : first_line("/sys/class/net/" + interface + "/mtu");
    if (value.empty()) return 0;
    constexpr unsigned long headers = 64;  // about those of IP, UDP and RoCE
    unsigned long fits = 4096;
    while (fits > 256 && fits + headers > std::stoul(value)) fits /= 2;
    return fits;
}

/// The traffic class that rdma_cm gives the packets of a port, as the system has it; empty: not known.
std::string default_traffic_class(const std::string& device, const std::string& port) {
    return first_line("/sys/kernel/config/rdma_cm/" + device + "/ports/" + port + "/default_roce_tos");
}

json rdma_devices() {
    json devices = json::array();
    for (const fs::path& device : entries("/sys/class/infiniband")) {
        json ports = json::array();
        for (const fs::path& port : entries(device / "ports")) {
            json gids = json::array();
            for (const fs::path& gid : entries(port / "gids")) {
                const std::string value = first_line(gid);
                if (value.find_first_not_of("0:") == std::string::npos) continue;  // an unused entry
                const fs::path attributes = port / "gid_attrs";
                gids.push_back({{"index", std::stoul(gid.filename().string())},
                                {"gid", value},
                                {"type", first_line(attributes / "types" / gid.filename())},
                                {"netdev", first_line(attributes / "ndevs" / gid.filename())},
                                {"path_mtu", path_mtu(first_line(attributes / "ndevs" / gid.filename()))}});
            }
            std::sort(gids.begin(), gids.end(),
                      [](const json& a, const json& b) { return a["index"] < b["index"]; });
            ports.push_back({{"port", std::stoul(port.filename().string())},
                             {"state", first_line(port / "state")},
                             {"link_layer", first_line(port / "link_layer")},
                             {"rate", first_line(port / "rate")},
                             {"traffic_class",
                              default_traffic_class(device.filename().string(), port.filename().string())},
                             {"gids", std::move(gids)}});
        }
        std::string verbs;
        for (const fs::path& candidate : entries("/sys/class/infiniband_verbs"))
            if (first_line(candidate / "ibdev") == device.filename().string())
                verbs = "/dev/infiniband/" + candidate.filename().string();
        devices.push_back({{"name", device.filename().string()},
                           {"node_type", first_line(device / "node_type")},
                           {"verbs_file", verbs},
                           {"ports", std::move(ports)},
                           {"used", verbs_report(device.filename().string())}});
    }
    return devices;
}

finding check_rdma_devices(const json& devices) {
    constexpr const char* name = "rdma_devices";
    if (devices.empty())
        return {name, state::missing, "none in /sys/class/infiniband",
                "load the adapter's driver; or a device in software over a network interface: "
                "modprobe siw && rdma link add siw0 type siw netdev eth0"};
    std::string list, active;
    for (const json& device : devices) {
        const std::string device_name = device["name"], verbs = device["verbs_file"];
        list += (list.empty() ? "" : ", ") + device_name;
        if (verbs.empty() || ::access("/dev/infiniband", F_OK) != 0)
            return {name, state::limited, device_name + " has no file for verbs", "modprobe ib_uverbs"};
        if (::access(verbs.c_str(), R_OK | W_OK) != 0)
            return {name, state::limited, device_name + ": " + verbs + ": " + error_text(errno),
                    "chmod 666 " + verbs + " (docker run --device " + verbs + ")"};
        for (const json& port : device["ports"])
            if (port["state"].get<std::string>().find("ACTIVE") != std::string::npos) active = device_name;
    }
    if (active.empty())
        return {name, state::limited, list + ": no port is active",
                "ip link set dev NETDEV up; on InfiniBand start a subnet manager: systemctl start opensm"};
    if (::access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0)
        return {name, state::limited, list + "; /dev/infiniband/rdma_cm: " + error_text(errno),
                "modprobe rdma_ucm"};
    return {name, state::ok, list};
}

finding check_libfabric(const json& libfabric) {
    constexpr const char* name = "libfabric_providers";
    if (libfabric.is_null())
        return {name, state::missing, "this program was built without libfabric",
                "apt-get install libfabric-dev, and build again with -Dofi=enabled"};
    const std::string version = "libfabric " + libfabric["version"].get<std::string>();
    std::string list, problem;
    for (const json& provider : libfabric["providers"]) {
        if (provider["scheme"].is_null()) continue;
        const std::string provider_name = provider["name"];
        if (!provider["problem"].is_null())
            problem += "; " + provider["problem"].get<std::string>();
        else
            list += (list.empty() ? "" : ", ") + provider_name;
    }
    if (list.empty() && problem.empty())
        return {name, state::missing, version + ": no provider that rdmacoro knows",
                "fi_info -l lists what it was built with; look at FI_PROVIDER and FI_PROVIDER_PATH"};
    if (!problem.empty())
        return {name, state::limited, version + ": " + (list.empty() ? "none of use" : list) + problem,
                "do what the text says; or use another provider, or another version of libfabric"};
    return {name, state::ok, version + ": " + list};
}

// ------------------------------------------------------------------------------------------------ the report

std::vector<finding> all_findings(const json& devices, const json& libfabric) {
    vm_attempts vm;
    std::vector<finding> report;
    const auto add = [&](const std::string& name, const std::function<finding()>& check) {
        try {
            report.push_back(check());
        } catch (const std::exception& e) {
            report.push_back({name, state::missing, std::string("could not be tried: ") + e.what(),
                              "look at the limits of this session: ulimit -a"});
        }
    };
    add("kernel", check_kernel);
    add("cpus", check_cpus);
    add("seccomp", check_seccomp);
    add("memfd", check_memfd);
    add("process_vm_readv", [&] {
        vm = try_vm_between_processes();
        return explain_vm("process_vm_readv", vm.down.read, vm.up.read, vm.up_allowed.read);
    });
    add("process_vm_writev",
        [&] { return explain_vm("process_vm_writev", vm.down.write, vm.up.write, vm.up_allowed.write); });
    add("membarrier", check_membarrier);
    add("memlock", check_memlock);
    add("open_files", check_open_files);
    add("hugepages", check_hugepages);
    add("userfaultfd", check_userfaultfd);
    add("io_uring", check_io_uring);
    add("io_uring_coop_taskrun", [] {
        return check_ring_flags("io_uring_coop_taskrun", IORING_SETUP_COOP_TASKRUN,
                                "completions interrupt the running thread", "5.19");
    });
    add("io_uring_single_issuer", [] {
        return check_ring_flags("io_uring_single_issuer", IORING_SETUP_SINGLE_ISSUER,
                                "the ring takes its lock on each submission", "6.0");
    });
    add("io_uring_defer_taskrun", [] {
        return check_ring_flags("io_uring_defer_taskrun",
                                IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
                                "completions run whenever the kernel likes", "6.1");
    });
    add("io_uring_provided_buffers", check_provided_buffers);
    add("io_uring_multishot_recv", check_multishot_recv);
    add("io_uring_multishot_accept", check_multishot_accept);
    add("io_uring_send_zc", check_send_zc);
    add("tcp_congestion_control", check_congestion_control);
    add("rdma_devices", [&] { return check_rdma_devices(devices); });
    add("libfabric_providers", [&] { return check_libfabric(libfabric); });
    return report;
}

json as_json(const std::vector<finding>& report, const json& devices, const json& libfabric) {
    utsname u{};
    ::uname(&u);
    const std::string model = keyed_value("/proc/cpuinfo", "model name");
    json checks = json::array();
    for (const finding& f : report)
        checks.push_back(
            {{"name", f.name}, {"state", text(f.is)}, {"detail", f.detail}, {"advice", f.advice}});
    return {{"machine",
             {{"cpu", model.empty() ? "unknown" : model},
              {"architecture", u.machine},
              {"kernel", u.release},
              {"usable_cpus", usable_cpus()}}},
            {"checks", std::move(checks)},
            {"rdma_devices", devices},
            {"libfabric", libfabric}};
}

void print_providers(const json& libfabric) {
    if (libfabric.is_null()) return;
    for (const json& provider : libfabric["providers"]) {
        const bool known = !provider["scheme"].is_null();
        std::string modes;
        for (const json& mode : provider["mr_mode"])
            modes += (modes.empty() ? "" : ", ") + mode.get<std::string>();
        std::printf("%s %s: %s; injects %lu bytes; registration: %s; %satomics%s\n",
                    provider["name"].get<std::string>().c_str(),
                    provider["version"].get<std::string>().c_str(),
                    known ? (provider["scheme"].get<std::string>() + "://").c_str() : "not known to rdmacoro",
                    provider["inject_bytes"].get<unsigned long>(), modes.empty() ? "none" : modes.c_str(),
                    provider["atomics"].get<bool>() ? "" : "no ",
                    !known                       ? ""
                    : provider["wait"].is_null() ? "; could not be opened"
                    : provider["wait"] == "none" ? "; has to be polled"
                                                 : "; wakes who sleeps");
        if (known && provider["get_alignment"] != 1)
            std::printf("    gets are aligned to %lu bytes\n",
                        provider["get_alignment"].get<unsigned long>());
        if (known && !provider["receives"].is_null())
            std::printf("    takes %lu receives at a time%s\n", provider["receives"].get<unsigned long>(),
                        provider["most_links"].is_null()
                            ? ""
                            : (", which is room for " +
                               std::to_string(provider["most_links"].get<unsigned long>()) + " links at most")
                                  .c_str());
        if (known && provider["problem"].is_null()) std::printf("    as rdmacoro describes it\n");
        if (known && !provider["problem"].is_null())
            std::printf("    %s\n", provider["problem"].get<std::string>().c_str());
    }
}

/// The parts of a device that verbs_rc uses, and the bounds of its links.
void print_used(const json& device) {
    const json& used = device["used"];
    if (used.is_null()) return;
    if (!used["problem"].is_null()) {
        std::printf("    not for verbs_rc: %s\n", used["problem"].get<std::string>().c_str());
        return;
    }
    std::printf("    verbs_rc uses %s\n", used["describe"].get<std::string>().c_str());
    if (!used["gid"].is_null()) {
        std::string traffic_class = "as the system has it, else 0";
        if (!used["traffic_class"].is_null())
            traffic_class = std::to_string(used["traffic_class"].get<unsigned>());
        std::printf("    with GID %u, %s, MTU %u, traffic class %s\n", used["gid_index"].get<unsigned>(),
                    used["gid"].get<std::string>().c_str(), used["mtu"].get<unsigned>(),
                    traffic_class.c_str());
    }
    const json& limits = used["limits"];
    const std::string by_memlock =
        limits["links_of_memlock"].is_null()
            ? "memlock allows any number of links"
            : "memlock allows " + std::to_string(limits["links_of_memlock"].get<unsigned long>()) + " links";
    std::printf(
        "    at most %d queue pairs, %d entries of a completion queue, %d of a shared receive queue; %s\n",
        limits["max_qp"].get<int>(), limits["max_cqe"].get<int>(), limits["max_srq_wr"].get<int>(),
        by_memlock.c_str());
}

void print_table(const std::vector<finding>& report, const json& devices, const json& libfabric) {
    std::array<int, 3> count{};
    for (const finding& f : report) {
        ++count[static_cast<std::size_t>(f.is)];
        std::printf("%-26s %-8s %s\n", f.name.c_str(), text(f.is), f.detail.c_str());
        if (!f.advice.empty()) std::printf("%-26s %-8s -> %s\n", "", "", f.advice.c_str());
    }
    for (const json& device : devices) {
        for (const json& port : device["ports"]) {
            const std::string traffic_class = port["traffic_class"];
            std::printf("%s port %lu: %s, %s, %s%s\n", device["name"].get<std::string>().c_str(),
                        port["port"].get<unsigned long>(), port["state"].get<std::string>().c_str(),
                        port["link_layer"].get<std::string>().c_str(),
                        port["rate"].get<std::string>().c_str(),
                        traffic_class.empty() ? "" : (", traffic class " + traffic_class).c_str());
            for (const json& gid : port["gids"]) {
                const auto mtu = gid["path_mtu"].get<unsigned long>();
                std::printf("    GID %lu %s %s %s%s\n", gid["index"].get<unsigned long>(),
                            gid["gid"].get<std::string>().c_str(), gid["type"].get<std::string>().c_str(),
                            gid["netdev"].get<std::string>().c_str(),
                            mtu == 0 ? "" : (", path MTU " + std::to_string(mtu)).c_str());
            }
        }
        print_used(device);
    }
    print_providers(libfabric);
    std::printf("%d ok, %d limited, %d missing\n", count[0], count[1], count[2]);
}

}  // namespace

int main(int argc, char** argv) {
    std::string path;
    CLI::App app("Shows what this machine offers to rdmacoro, and what to do about what it does not.",
                 "rdmacoro-info");
    app.add_option("--json", path, "write the report as JSON; - is standard output, without the table")
        ->type_name("FILE|-");
    return pingpong::run_program("rdmacoro-info", [&] {
        try {
            app.parse(argc, argv);
        } catch (const CLI::Success& answered) {
            return app.exit(answered);
        } catch (const CLI::Error& wrong) {
            throw pingpong::usage_error(std::string(wrong.what()) + "; --help lists the options");
        }
        pingpong::check_writable(path);
        const json devices = rdma_devices();
        const json libfabric = libfabric_report();
        const std::vector<finding> report = all_findings(devices, libfabric);
        if (path != "-") print_table(report, devices, libfabric);
        pingpong::write_to(path, as_json(report, devices, libfabric).dump(2) + "\n");
        return 0;
    });
}
