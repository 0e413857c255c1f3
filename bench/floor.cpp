// floor: the speed that two processes on this machine reach with no library between them.
//
// A figure of rdmacoro means something only beside the same machine's floor, taken in the same minutes: a
// shared-memory message cannot be faster than one cache line going from core to core, a TCP message not faster
// than bare sockets. Every floor runs between two processes pinned to different cores (memcpy needs only one).
// The runs of all floors are interleaved, so that a slow minute hits all of them, and medians are reported.

#include "../tools/pingpong/failure.hpp"
#include "../tools/pingpong/output.hpp"
#include "../tools/pingpong/program.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace {

constexpr std::size_t cache_line = 64;
constexpr unsigned watchdog_seconds = 60;  // for one run of one floor; the longest takes about a second

/// The machine forbids or lacks something: the floor is skipped with this reason, which is no failure.
struct unavailable : std::runtime_error {
    using std::runtime_error::runtime_error;
};

[[noreturn]] void fail(const std::string& what, int error = errno) {
    const std::string text = what + ": " + std::generic_category().message(error);
    if (error == EPERM || error == ENOSYS) throw unavailable(text);
    throw std::runtime_error(text);
}

// ---------------------------------------------------------------------------------------------- time

std::int64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Calls `op` in batches for about `seconds` after a warm-up of a quarter of that; the median over the batches of
/// nanoseconds for one call. Batches keep the clock's own cost out, the median keeps the odd interruption out.
template <class Op>
double median_ns(double seconds, unsigned batch, Op op) {
    const std::int64_t begin = now_ns();
    const std::int64_t warm = begin + static_cast<std::int64_t>(seconds * 0.25e9);
    const std::int64_t end = begin + static_cast<std::int64_t>(seconds * 1.25e9);
    std::vector<double> samples;
    samples.reserve(1 << 16);
    for (std::int64_t from = begin; from < end || samples.size() < 3;) {
        for (unsigned i = 0; i != batch; ++i) op();
        const std::int64_t to = now_ns();
        if (from >= warm) samples.push_back(static_cast<double>(to - from) / batch);
        from = to;
    }
    return median(std::move(samples));
}

double gigabytes_per_second(std::size_t bytes, double ns) { return static_cast<double>(bytes) / ns; }

// ----------------------------------------------------------------------------------------- processes

std::array<char, 64> watched{};  // name of the current floor, for the signal handler

extern "C" void watchdog_expired(int) {
    // Only async-signal-safe calls. The child goes with its parent (PR_SET_PDEATHSIG).
    constexpr std::string_view head = "\nfloor: ";
    constexpr std::string_view tail = " did not end within its time limit\n";
    [[maybe_unused]] ssize_t ignored = ::write(STDERR_FILENO, head.data(), head.size());
    ignored = ::write(STDERR_FILENO, watched.data(), ::strnlen(watched.data(), watched.size()));
    ignored = ::write(STDERR_FILENO, tail.data(), tail.size());
    ::_exit(3);
}

/// Ends the program when its scope lasts too long: nothing here may hang.
class watchdog {
public:
    explicit watchdog(const std::string& what) {
        watched.fill('\0');
        what.copy(watched.data(), watched.size() - 1);
        std::signal(SIGALRM, watchdog_expired);
        ::alarm(watchdog_seconds);
    }
    ~watchdog() { ::alarm(0); }
    watchdog(const watchdog&) = delete;
    watchdog& operator=(const watchdog&) = delete;
};

std::vector<int> usable_cpus() {
    cpu_set_t set;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) fail("sched_getaffinity");
    std::vector<int> cpus;
    for (int cpu = 0; cpu != CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(static_cast<unsigned>(cpu), &set)) cpus.push_back(cpu);
    return cpus;
}

void pin_to(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    if (::sched_setaffinity(0, sizeof set, &set) != 0) fail("pinning to CPU " + std::to_string(cpu));
}

/// Anonymous pages holding one `T` (or `count` of them); shared with a later child, or copied on write by it.
template <class T>
class mapping {
public:
    enum class kind { shared, own };

    explicit mapping(kind k, std::size_t count = 1) : bytes_(sizeof(T) * count) {
        const int flags = (k == kind::shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_POPULATE;
        void* pages = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (pages == MAP_FAILED) fail("mmap of " + std::to_string(bytes_) + " bytes");
        first_ = static_cast<T*>(pages);
        std::uninitialized_value_construct_n(first_, count);
    }
    ~mapping() { ::munmap(static_cast<void*>(first_), bytes_); }
    mapping(const mapping&) = delete;
    mapping& operator=(const mapping&) = delete;

    T& operator*() const { return *first_; }
    T* operator->() const { return first_; }
    T* data() const { return first_; }

private:
    std::size_t bytes_;
    T* first_;
};

/// Memory that both processes of a floor share.
struct control_block {
    alignas(cache_line) std::atomic<bool> stop{false};
    alignas(cache_line) std::atomic<bool> ready{false};
    std::array<char, 256> error{};
};

/// The second process of a floor: a forked child on a core of its own that runs `body` and ends.
///
/// It dies with its parent, and the parent learns of its end in `check`, which every wait calls now and then.
/// A scope that is left without `finish` ends it.
class other_process {
public:
    template <class Body>
    other_process(int cpu, Body body) : control_(mapping<control_block>::kind::shared) {
        // The child begins on its own CPU: with a real-time priority it would get none of this one's time to move there.
        cpu_set_t own;
        if (::sched_getaffinity(0, sizeof own, &own) != 0) fail("sched_getaffinity");
        pin_to(cpu);
        const pid_t parent = ::getpid();
        pid_ = ::fork();
        if (pid_ == 0) run_child(parent, body);
        const int not_forked = errno;
        if (::sched_setaffinity(0, sizeof own, &own) != 0) fail("sched_setaffinity");
        errno = not_forked;
        if (pid_ < 0) fail("fork");
        // Where the Yama module restricts it, this lets the child write into us; elsewhere it fails harmlessly.
        ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(pid_), 0, 0, 0);
    }
    ~other_process() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    other_process(const other_process&) = delete;
    other_process& operator=(const other_process&) = delete;

    /// Spins until `condition()`; throws when the other process ended instead.
    template <class Condition>
    void await(Condition condition) {
        while (!spin(condition)) check();
    }

    /// Throws if the other process ended: the error that it reported, or its unexpected end.
    void check() {
        int status = 0;
        if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == 0) return;
        ended(status);
        throw std::runtime_error("the other process ended early");
    }

    /// The connection to it broke, which it does only when the other process ends: throws why it did.
    [[noreturn]] void connection_lost() {
        finish();
        throw std::runtime_error("the connection ended early");
    }

    pid_t pid() const { return pid_; }

    void await_ready() {
        await([&] { return control_->ready.load(std::memory_order_acquire); });
    }

    /// Asks the other process to stop and waits for its end; throws the error that it reported.
    void finish() {
        control_->stop.store(true, std::memory_order_release);
        int status = 0;
        while (::waitpid(pid_, &status, 0) != pid_)
            if (errno != EINTR) fail("waitpid");
        ended(status);
    }

    /// A bounded spin: long enough that its end is rare, short enough that a dead peer is noticed at once.
    template <class Condition>
    static bool spin(Condition condition) {
        for (unsigned i = 0; i != 1U << 16; ++i)
            if (condition()) return true;
        return false;
    }

private:
    template <class Body>
    [[noreturn]] void run_child(pid_t parent, Body& body) noexcept {
        int status = 0;
        try {
            if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail("prctl(PR_SET_PDEATHSIG)");
            if (::getppid() != parent) ::_exit(0);  // the parent died before the line above
            body(*control_);
        } catch (const unavailable& e) {
            status = report(e, 2);
        } catch (const std::exception& e) {
            status = report(e, 1);
        }
        ::_exit(status);
    }

    int report(const std::exception& e, int status) noexcept {
        std::snprintf(control_->error.data(), control_->error.size(), "%s", e.what());
        return status;
    }

    void ended(int status) {
        pid_ = -1;
        if (WIFSIGNALED(status))
            throw std::runtime_error("the other process was ended by signal " +
                                     std::to_string(WTERMSIG(status)));
        if (WEXITSTATUS(status) == 2) throw unavailable(control_->error.data());
        if (WEXITSTATUS(status) != 0) throw std::runtime_error(control_->error.data());
    }

    mapping<control_block> control_;
    pid_t pid_ = -1;
};

/// The child's wait: the parent's death kills it, so it only has to look for the end of the measurement.
template <class Condition>
bool await_in_child(const control_block& control, Condition condition) {
    while (!other_process::spin(condition))
        if (control.stop.load(std::memory_order_acquire)) return condition();
    return true;
}

// --------------------------------------------------------------------------------- shared memory floors

/// Nanoseconds for one cache line to go from one core to the other: both write it in turn.
double cache_line_bounce(int cpu, double seconds) {
    struct alignas(cache_line) line {
        std::atomic<std::uint64_t> turn{0};
    };
    const mapping<line> shared(mapping<line>::kind::shared);
    std::atomic<std::uint64_t>& turn = shared->turn;

    other_process child(cpu, [&](control_block& control) {
        std::uint64_t expected = 1;
        while (await_in_child(control, [&] { return turn.load(std::memory_order_acquire) == expected; })) {
            turn.store(expected + 1, std::memory_order_release);
            expected += 2;
        }
    });
    std::uint64_t sent = 0;
    const double round_trip = median_ns(seconds, 1'000, [&] {
        turn.store(sent + 1, std::memory_order_release);
        sent += 2;
        child.await([&] { return turn.load(std::memory_order_acquire) == sent; });
    });
    child.finish();
    return round_trip / 2;
}

/// Nanoseconds for one core to go from one process to another that has work, by `sched_yield`.
double core_handover(double seconds) {
    const mapping<std::atomic<std::uint64_t>> shared(mapping<std::atomic<std::uint64_t>>::kind::shared);
    std::atomic<std::uint64_t>& turn = *shared;
    other_process child(::sched_getcpu(), [&](control_block& control) {
        for (std::uint64_t expected = 1;; expected += 2) {
            while (turn.load(std::memory_order_acquire) != expected) {
                if (control.stop.load(std::memory_order_acquire)) return;
                ::sched_yield();
            }
            turn.store(expected + 1, std::memory_order_release);
        }
    });
    std::uint64_t sent = 0;
    const double round_trip = median_ns(seconds, 100, [&] {
        turn.store(sent + 1, std::memory_order_release);
        sent += 2;
        for (unsigned yields = 1; turn.load(std::memory_order_acquire) != sent; ++yields) {
            if (yields % 1024 == 0) child.check();
            ::sched_yield();
        }
    });
    child.finish();
    return round_trip / 2;
}

/// A bare single-producer single-consumer ring: each cell is one cache line and carries its own turn number, so
/// the consumer never reads an index of the producer; it publishes how far it is once in a quarter of the ring. As in a link's
/// ring the consumer writes what it has read, so that the producer can take it early.
class ring {
public:
    /// False: full.
    bool try_push(std::uint64_t payload, std::uint64_t& tail, std::uint64_t& known_head) {
        if (tail - known_head == size) {
            known_head = head_.load(std::memory_order_acquire);
            if (tail - known_head == size) return false;
        }
        cell& c = cells_[tail % size];
        c.payload[0] = payload;
        c.turn.store(++tail, std::memory_order_release);
        // Takes a later cell's line from the consumer's core before its turn to be written.
#if defined(__x86_64__)
        asm volatile("prefetchw %0" : : "m"(cells_[(tail + 16) % size]));
#else
        __builtin_prefetch(&cells_[(tail + 16) % size], 1, 3);
#endif
        return true;
    }

    /// False: empty.
    bool try_pop(std::uint64_t& payload, std::uint64_t& head) {
        cell& c = cells_[head % size];
        if (c.turn.load(std::memory_order_acquire) != head + 1) return false;
        payload = c.payload[0];
        c.turn.store(0, std::memory_order_relaxed);
        if (++head % (size / 4) == 0) head_.store(head, std::memory_order_release);
        return true;
    }

private:
    static constexpr std::uint64_t size = 1024;
    struct alignas(cache_line) cell {
        std::atomic<std::uint64_t> turn{0};
        std::array<std::uint64_t, 7> payload{};
    };
    alignas(cache_line) std::atomic<std::uint64_t> head_{0};
    std::array<cell, size> cells_{};
};

/// Million 8-byte messages a second through one ring.
double ring_rate(int cpu, double seconds) {
    const mapping<ring> shared(mapping<ring>::kind::shared);
    other_process child(cpu, [&](control_block& control) {
        std::uint64_t tail = 0, known_head = 0;
        while (await_in_child(control, [&] { return shared->try_push(tail, tail, known_head); })) {}
    });
    std::uint64_t head = 0, wrong = 0;
    const double ns = median_ns(seconds, 1 << 15, [&] {
        const std::uint64_t expected = head;
        std::uint64_t got = 0;
        child.await([&] { return shared->try_pop(got, head); });
        wrong |= got ^ expected;
    });
    child.finish();
    if (wrong != 0) throw std::runtime_error("the ring delivered a message out of order");
    return 1e3 / ns;
}

/// Nanoseconds one way for an 8-byte message, a ring each way.
double ring_latency(int cpu, double seconds) {
    const mapping<ring> shared(mapping<ring>::kind::shared, 2);
    ring& there = shared.data()[0];
    ring& back = shared.data()[1];
    other_process child(cpu, [&](control_block& control) {
        std::uint64_t head = 0, tail = 0, known_head = 0, payload = 0;
        while (await_in_child(control, [&] { return there.try_pop(payload, head); }))
            back.try_push(payload, tail, known_head);
    });
    std::uint64_t head = 0, tail = 0, known_head = 0, payload = 0;
    const double round_trip = median_ns(seconds, 1'000, [&] {
        there.try_push(tail, tail, known_head);  // never full: one message is under way
        child.await([&] { return back.try_pop(payload, head); });
    });
    child.finish();
    return round_trip / 2;
}

// ------------------------------------------------------------------------------------------ copy floors

using bytes_mapping = mapping<std::byte>;

void fill(std::byte* to, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i != bytes; ++i) to[i] = static_cast<std::byte>((i ^ (i >> 9) ^ seed) & 0xff);
}

void expect_filled(const std::byte* from, std::size_t bytes, unsigned seed) {
    for (std::size_t i = 0; i != bytes; ++i)
        if (from[i] != static_cast<std::byte>((i ^ (i >> 9) ^ seed) & 0xff))
            throw std::runtime_error("the copy differs at byte " + std::to_string(i));
}

/// As many copies in one batch as move about 4 MB.
unsigned copies_in_batch(std::size_t bytes) {
    return static_cast<unsigned>(std::max<std::size_t>(1, (4U << 20) / bytes));
}

/// To a place so many bytes behind the source's in its page.
double memcpy_bandwidth(std::size_t bytes, std::size_t behind, double seconds) {
    const bytes_mapping from(bytes_mapping::kind::own, bytes), to(bytes_mapping::kind::own, bytes + behind);
    fill(from.data(), bytes, 1);
    const double ns = median_ns(seconds, copies_in_batch(bytes), [&] {
        std::memcpy(to.data() + behind, from.data(), bytes);
        asm volatile("" : : "r"(to.data()) : "memory");  // the copy's result is used
    });
    expect_filled(to.data() + behind, bytes, 1);
    return gigabytes_per_second(bytes, ns);
}

using vm_call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

void vm_copy(vm_call call, const char* name, pid_t pid, std::byte* local, std::byte* remote,
             std::size_t bytes) {
    const iovec here{local, bytes}, there{remote, bytes};
    const ssize_t moved = call(pid, &here, 1, &there, 1, 0);
    if (moved < 0) fail(name);
    if (static_cast<std::size_t>(moved) != bytes)
        throw std::runtime_error(std::string(name) + " moved too little");
}

/// process_vm_readv out of a process that sleeps meanwhile, into memory that was written before.
double vm_read_bandwidth(int cpu, std::size_t bytes, double seconds) {
    const bytes_mapping from(bytes_mapping::kind::own, bytes), to(bytes_mapping::kind::own, bytes);
    other_process child(cpu, [&](control_block& control) {
        fill(from.data(), bytes, 2);  // after the fork: pages of the child's own
        control.ready.store(true, std::memory_order_release);
        for (;;) ::pause();
    });
    child.await_ready();
    fill(to.data(), bytes, 0);
    const double ns = median_ns(seconds, copies_in_batch(bytes), [&] {
        vm_copy(::process_vm_readv, "process_vm_readv", child.pid(), to.data(), from.data(), bytes);
    });
    expect_filled(to.data(), bytes, 2);
    return gigabytes_per_second(bytes, ns);
}

/// Both cores copy at once: the receiver reads the first half while the sender writes the second. Includes the two
/// cache lines it takes to agree on the beginning and the end of each copy.
double half_and_half_bandwidth(int cpu, std::size_t bytes, double seconds) {
    const bytes_mapping from(bytes_mapping::kind::own, bytes), to(bytes_mapping::kind::own, bytes);
    struct alignas(cache_line) counter {
        std::atomic<std::uint64_t> value{0};
    };
    const mapping<counter> shared(mapping<counter>::kind::shared, 2);
    std::atomic<std::uint64_t>& begun = shared.data()[0].value;
    std::atomic<std::uint64_t>& written = shared.data()[1].value;
    const pid_t receiver = ::getpid();
    const std::size_t half = bytes / 2;

    other_process child(cpu, [&](control_block& control) {
        fill(from.data(), bytes, 3);
        control.ready.store(true, std::memory_order_release);
        std::uint64_t copy = 1;
        while (await_in_child(control, [&] { return begun.load(std::memory_order_acquire) == copy; })) {
            vm_copy(::process_vm_writev, "process_vm_writev", receiver, from.data() + half, to.data() + half,
                    half);
            written.store(copy++, std::memory_order_release);
        }
    });
    child.await_ready();
    fill(to.data(), bytes, 0);
    std::uint64_t copy = 0;
    const double ns = median_ns(seconds, copies_in_batch(bytes), [&] {
        begun.store(++copy, std::memory_order_release);
        vm_copy(::process_vm_readv, "process_vm_readv", child.pid(), to.data(), from.data(), half);
        child.await([&] { return written.load(std::memory_order_acquire) == copy; });
    });
    child.finish();
    expect_filled(to.data(), bytes, 3);
    return gigabytes_per_second(bytes, ns);
}

// ------------------------------------------------------------------------------------------- TCP floors

class socket_fd {
public:
    explicit socket_fd(int fd, const char* what) : fd_(fd) {
        if (fd_ < 0) fail(what);
    }
    ~socket_fd() { close(); }
    socket_fd(socket_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    socket_fd& operator=(socket_fd&&) = delete;

    int get() const { return fd_; }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    template <class T>
    void set(int level, int option, const T& value, const char* what) const {
        if (::setsockopt(fd_, level, option, &value, sizeof value) != 0) fail(what);
    }

private:
    int fd_;
};

void set_congestion_control(const socket_fd& s, const std::string& name) {
    if (name.empty()) return;  // the system's
    if (::setsockopt(s.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                     static_cast<socklen_t>(name.size())) != 0)
        throw unavailable("TCP congestion control " + name + " is not allowed here (net.ipv4.tcp_allowed_" +
                          "congestion_control): " + std::generic_category().message(errno));
}

/// A connection over the loopback interface, both ends in this process until a fork parts them.
struct connection {
    socket_fd parent_end, child_end;
};

connection connect_loopback(const std::string& congestion_control = {}) {
    const auto open = [&] {
        socket_fd s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
        set_congestion_control(s, congestion_control);
        return s;
    };
    const socket_fd listener = open();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener.get(), generic, length) != 0) fail("bind to 127.0.0.1");
    if (::listen(listener.get(), 1) != 0) fail("listen on 127.0.0.1");
    if (::getsockname(listener.get(), generic, &length) != 0) fail("getsockname");

    socket_fd near = open();
    if (::connect(near.get(), generic, length) != 0) fail("connect to 127.0.0.1");
    socket_fd far(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC), "accept");
    set_congestion_control(far, congestion_control);
    for (const socket_fd* s : {&near, &far}) s->set(IPPROTO_TCP, TCP_NODELAY, int{1}, "TCP_NODELAY");
    return {std::move(near), std::move(far)};
}

/// Sends all of it; false when the peer closed the connection. With `MSG_DONTWAIT` in `flags` it polls.
bool send_all(int fd, std::span<const std::byte> data, int flags) {
    while (!data.empty()) {
        const ssize_t sent = ::send(fd, data.data(), data.size(), flags | MSG_NOSIGNAL);
        if (sent >= 0)
            data = data.subspan(static_cast<std::size_t>(sent));
        else if (errno == EPIPE || errno == ECONNRESET)
            return false;
        else if (errno != EAGAIN && errno != EINTR)
            fail("send");
    }
    return true;
}

bool receive_all(int fd, std::span<std::byte> data, int flags) {
    while (!data.empty()) {
        const ssize_t got = ::recv(fd, data.data(), data.size(), flags);
        if (got > 0)
            data = data.subspan(static_cast<std::size_t>(got));
        else if (got == 0 || errno == ECONNRESET)
            return false;
        else if (errno != EAGAIN && errno != EINTR)
            fail("recv");
    }
    return true;
}

/// Nanoseconds one way for 8 bytes. `flags` MSG_DONTWAIT: polled; 0: asleep in the kernel until they come.
double tcp_latency(int cpu, double seconds, int flags) {
    connection tcp = connect_loopback();
    other_process child(cpu, [&](control_block&) {
        tcp.parent_end.close();
        std::array<std::byte, 8> message{};
        while (receive_all(tcp.child_end.get(), message, flags) &&
               send_all(tcp.child_end.get(), message, flags)) {}
    });
    tcp.child_end.close();  // now a child that died ends the connection, and with it every wait below
    std::array<std::byte, 8> message{};
    const double round_trip = median_ns(seconds, 100, [&] {
        if (!send_all(tcp.parent_end.get(), message, flags) ||
            !receive_all(tcp.parent_end.get(), message, flags))
            child.connection_lost();
    });
    tcp.parent_end.close();
    child.finish();
    return round_trip / 2;
}

/// Bandwidth of a stream written in pieces of `bytes`, blocking sockets, one direction.
double tcp_bandwidth(int cpu, std::size_t bytes, double seconds, const std::string& congestion_control) {
    connection tcp = connect_loopback(congestion_control);
    const bytes_mapping from(bytes_mapping::kind::own, bytes), to(bytes_mapping::kind::own, bytes);
    other_process child(cpu, [&](control_block&) {
        tcp.parent_end.close();
        fill(from.data(), bytes, 4);
        while (send_all(tcp.child_end.get(), {from.data(), bytes}, 0)) {}
    });
    tcp.child_end.close();
    const double ns = median_ns(seconds * 2, copies_in_batch(bytes), [&] {
        if (!receive_all(tcp.parent_end.get(), {to.data(), bytes}, 0)) child.connection_lost();
    });
    tcp.parent_end.close();  // the sender sees it and ends
    child.finish();
    expect_filled(to.data(), bytes, 4);
    return gigabytes_per_second(bytes, ns);
}

// --------------------------------------------------------------------------------------------- the list

struct setup {
    int second_cpu = -1;  // -1: there is none, and only floors of one core can run
    double seconds = 0;   // for one run of one floor
};

struct floor_case {
    std::string name, unit, description;
    std::size_t bytes;  // 0: no size
    bool needs_two_cpus;
    std::function<double(const setup&)> run;
    std::vector<double> runs{};
    std::string skipped{}, failed{};
};

std::vector<floor_case> all_floors() {
    std::vector<floor_case> list;
    list.push_back({"cache_line", "ns", "one cache line from core to core", 0, true,
                    [](const setup& s) { return cache_line_bounce(s.second_cpu, s.seconds); }});
    list.push_back({"core_handover", "ns", "one core from process to process, by sched_yield", 0, false,
                    [](const setup& s) { return core_handover(s.seconds); }});
    list.push_back({"ring_rate", "M/s", "8 B through a ring of 64-byte cells", 8, true,
                    [](const setup& s) { return ring_rate(s.second_cpu, s.seconds); }});
    list.push_back({"ring_latency", "ns", "the same, one way", 8, true,
                    [](const setup& s) { return ring_latency(s.second_cpu, s.seconds); }});
    list.push_back({"tcp_polled", "ns", "TCP loopback, non-blocking and polled, one way", 8, true,
                    [](const setup& s) { return tcp_latency(s.second_cpu, s.seconds, MSG_DONTWAIT); }});
    list.push_back({"tcp_blocking", "ns", "TCP loopback, blocking, one way", 8, true,
                    [](const setup& s) { return tcp_latency(s.second_cpu, s.seconds, 0); }});
    for (std::size_t bytes = 64U << 10; bytes <= 64U << 20; bytes *= 4)
        list.push_back({"memcpy", "GB/s", "memcpy, one core", bytes, false,
                        [=](const setup& s) { return memcpy_bandwidth(bytes, 0, s.seconds); }});
    list.push_back({"memcpy_behind", "GB/s", "the same, to 16 bytes behind the source's place in a page",
                    64U << 10, false,
                    [=](const setup& s) { return memcpy_bandwidth(64U << 10, 16, s.seconds); }});
    for (std::size_t bytes = 64U << 10; bytes <= 64U << 20; bytes *= 4)
        list.push_back({"process_vm_readv", "GB/s", "read out of the other process", bytes, true,
                        [=](const setup& s) { return vm_read_bandwidth(s.second_cpu, bytes, s.seconds); }});
    for (std::size_t bytes = 64U << 10; bytes <= 64U << 20; bytes *= 4)
        list.push_back(
            {"half_and_half", "GB/s", "one half read, the other written at once", bytes, true,
             [=](const setup& s) { return half_and_half_bandwidth(s.second_cpu, bytes, s.seconds); }});
    for (const std::string congestion_control : {"", "reno"})
        for (const std::size_t bytes : {64U << 10, 256U << 10, 1U << 20})
            list.push_back(
                {congestion_control.empty() ? "tcp_stream" : "tcp_stream_" + congestion_control, "GB/s",
                 congestion_control.empty() ? "TCP loopback, the system's congestion control"
                                            : "TCP loopback, congestion control " + congestion_control,
                 bytes, true, [=](const setup& s) {
                     return tcp_bandwidth(s.second_cpu, bytes, s.seconds, congestion_control);
                 }});
    return list;
}

std::string label(const floor_case& f) {
    if (f.bytes == 0) return f.name;
    if (f.bytes < 1024) return f.name + " " + std::to_string(f.bytes) + " B";
    return f.name + (f.bytes < (1U << 20) ? " " + std::to_string(f.bytes >> 10) + " KB"
                                          : " " + std::to_string(f.bytes >> 20) + " MB");
}

void run_once(floor_case& f, const setup& s) {
    if (!f.skipped.empty() || !f.failed.empty()) return;
    if (f.needs_two_cpus && s.second_cpu < 0) {
        f.skipped = "needs two CPUs, and this process may use one only";
        return;
    }
    const watchdog guard(label(f));
    try {
        f.runs.push_back(f.run(s));
    } catch (const unavailable& e) {
        f.skipped = e.what();
    } catch (const std::exception& e) {
        f.failed = e.what();
    }
}

// --------------------------------------------------------------------------------------------- the report

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string cpu_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);)
        if (line.starts_with("model name"))
            if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
    return "unknown";
}

nlohmann::ordered_json machine(const std::vector<int>& pinned, std::size_t usable) {
    utsname kernel{};
    ::uname(&kernel);
    return {{"cpu", cpu_model()},
            {"architecture", kernel.machine},
            {"kernel", kernel.release},
            {"usable_cpus", usable},
            {"pinned_to", pinned},
            {"tcp_congestion_control", first_line("/proc/sys/net/ipv4/tcp_congestion_control")},
            {"compiler", __VERSION__}};
}

nlohmann::ordered_json as_json(const std::vector<floor_case>& floors, nlohmann::ordered_json machine) {
    nlohmann::ordered_json document{{"machine", std::move(machine)},
                                    {"floors", nlohmann::ordered_json::array()},
                                    {"skipped", nlohmann::ordered_json::array()}};
    for (const floor_case& f : floors) {
        nlohmann::ordered_json entry{{"name", f.name}, {"unit", f.unit}};
        if (f.bytes != 0) entry["bytes"] = f.bytes;
        if (f.skipped.empty() && f.failed.empty()) {
            entry["value"] = median(f.runs);
            entry["runs"] = f.runs;
            document["floors"].push_back(std::move(entry));
        } else {
            entry["reason"] = f.skipped + f.failed;
            document["skipped"].push_back(std::move(entry));
        }
    }
    return document;
}

void print_table(const std::vector<floor_case>& floors, const nlohmann::ordered_json& machine) {
    std::printf("%s, Linux %s, pinned to CPUs %s\n\n", machine["cpu"].get<std::string>().c_str(),
                machine["kernel"].get<std::string>().c_str(), machine["pinned_to"].dump().c_str());
    const char* moved = "";
    std::printf("%-24s %10s %-5s %22s  %s\n", "floor", "median", "", "lowest .. highest run", "what");
    for (const floor_case& f : floors) {
        if (!f.skipped.empty() || !f.failed.empty()) {
            std::printf("%-24s %10s       %s\n", label(f).c_str(), f.failed.empty() ? "skipped" : "FAILED",
                        (f.skipped + f.failed).c_str());
            continue;
        }
        const auto [lowest, highest] = std::minmax_element(f.runs.begin(), f.runs.end());
        std::printf("%-24s %10.1f %-5s %9.1f .. %9.1f  %s\n", label(f).c_str(), median(f.runs),
                    f.unit.c_str(), *lowest, *highest, f.description.c_str());
        if (f.name == "cache_line" && *highest > 2 * *lowest)
            moved = "\nThe cache line's floor more than doubled between runs: on a virtual machine the host "
                    "may have "
                    "moved its CPUs.\nCompare only figures that were taken in the same minutes, or run it "
                    "again.\n";
    }
    std::fputs(moved, stdout);
}

class progress {
public:
    explicit progress(std::size_t steps) : steps_(steps), shown_(::isatty(STDERR_FILENO) == 1) {}
    ~progress() {
        if (shown_) std::fputs("\r\033[K", stderr);
    }
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;

    void step(const std::string& what) {
        if (shown_) std::fprintf(stderr, "\r\033[K[%zu/%zu] %s", ++step_, steps_, what.c_str());
    }

private:
    std::size_t steps_, step_ = 0;
    bool shown_;
};

// -------------------------------------------------------------------------------------------- the options

struct options {
    std::vector<int> cpus;
    unsigned repeat = 3;
    std::vector<std::string> only;
    std::string json;
    bool quick = false;
};

/// The two CPUs to use, or the one there is. Throws when a wish cannot be met.
std::vector<int> choose_cpus(const std::vector<int>& wished, const std::vector<int>& usable) {
    if (wished.empty()) return {usable.begin(), usable.begin() + (usable.size() > 1 ? 2 : 1)};
    if (wished.size() != 2 || wished[0] == wished[1])
        throw CLI::ValidationError("--cpus", "takes two different CPUs, for example 0,1");
    for (const int cpu : wished)
        if (std::find(usable.begin(), usable.end(), cpu) == usable.end()) {
            std::string list;
            for (const int u : usable) list.append(1, ' ').append(std::to_string(u));
            throw CLI::ValidationError("--cpus", "CPU " + std::to_string(cpu) +
                                                     " is not among those usable here:" + list);
        }
    return wished;
}

int measure(const options& o, std::vector<floor_case> floors, const std::vector<int>& cpus,
            std::size_t usable) {
    pingpong::check_writable(o.json);
    if (cpus.size() < 2)
        std::fprintf(stderr,
                     "floor: only one CPU is usable here; what needs two processes at once is skipped\n");
    pin_to(cpus[0]);
    const setup s{cpus.size() > 1 ? cpus[1] : -1, o.quick ? 0.02 : 0.25};
    {
        progress shown(o.repeat * floors.size());
        for (unsigned run = 0; run != o.repeat; ++run)
            for (floor_case& f : floors) {
                shown.step("run " + std::to_string(run + 1) + " of " + std::to_string(o.repeat) + ": " +
                           label(f));
                run_once(f, s);
            }
    }
    const nlohmann::ordered_json where = machine(cpus, usable);
    if (o.json != "-") print_table(floors, where);
    pingpong::write_to(o.json, as_json(floors, where).dump(2) + "\n");
    int status = 0;
    for (const floor_case& f : floors)
        if (!f.failed.empty()) {
            std::fprintf(stderr, "floor: %s failed: %s\n", label(f).c_str(), f.failed.c_str());
            status = 1;
        }
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<floor_case> floors = all_floors();
    std::vector<std::string> names;
    for (const floor_case& f : floors)
        if (names.empty() || names.back() != f.name) names.push_back(f.name);

    options o;
    CLI::App app("Measures what two processes on this machine reach with no library between them.", "floor");
    app.add_option("--cpus", o.cpus, "the two CPUs to pin to (default: the first two usable ones)")
        ->delimiter(',')
        ->type_name("A,B");
    CLI::Option* const repeat =
        app.add_option("--repeat", o.repeat, "runs of each floor, interleaved; medians are shown (default 3)")
            ->check(CLI::Range(1U, 1000U).description(""))
            ->type_name("N");
    app.add_option("--only", o.only, "only these floors: " + CLI::detail::join(names, ", "))
        ->delimiter(',')
        ->check(CLI::IsMember(names).description(""))
        ->type_name("NAME[,NAME]");
    app.add_option("--json", o.json, "write the figures as JSON; - is standard output, without the table")
        ->type_name("FILE|-");
    app.add_flag("--quick", o.quick, "very short runs, and one of each unless --repeat is given");
    return pingpong::run_program("floor", [&] {
        const std::vector<int> usable = usable_cpus();
        std::vector<int> cpus;
        try {
            app.parse(argc, argv);
            cpus = choose_cpus(o.cpus, usable);
        } catch (const CLI::Success& answered) {
            return app.exit(answered);
        } catch (const CLI::Error& wrong) {
            throw pingpong::usage_error(std::string(wrong.what()) + "; --help lists the options");
        }
        if (o.quick && repeat->count() == 0) o.repeat = 1;
        if (!o.only.empty())
            std::erase_if(floors, [&](const floor_case& f) {
                return std::find(o.only.begin(), o.only.end(), f.name) == o.only.end();
            });
        return measure(o, std::move(floors), cpus, usable.size());
    });
}
