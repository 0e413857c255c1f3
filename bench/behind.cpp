// behind: how long 8 bytes take that are sent while messages of 256 MiB are under way on the same link.
//
// Two processes on two CPUs, one scheduler each, which spin. One sends long messages one after the other; at random moments,
// between 100 us and 1 ms apart, it sends 8 bytes with the time. The other receives both. Two figures of each short message: from the
// call of `send`, and from the moment at which the program wanted to send it, which a copy of its own may delay. With `--alone`
// there are no long messages. Goal over shared memory: 100 us.

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/rdmacoro.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

namespace {

struct settings {
    double seconds = 3;
    std::size_t bytes = std::size_t{256} << 20;
    std::string only;  ///< a transport; empty: all
    bool alone = false;
};

constexpr rc::tag_type long_tag = 1;
constexpr rc::tag_type short_tag = 2;

/// In nanoseconds, the same in both processes.
std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// A short message: when it was sent, and when it was to be sent. Nothing else fits 8 bytes: nanoseconds of the run, and their lateness.
struct stamp {
    std::uint32_t sent_in_tens = 0;  ///< tens of nanoseconds since `begin`
    std::uint32_t late = 0;          ///< nanoseconds from the moment it was due; `last`: no further one comes
    static constexpr std::uint32_t last = 0xffffffff;
};
static_assert(sizeof(stamp) == 8);

struct found {
    std::vector<double> from_send;  // microseconds
    std::vector<double> from_due;
    double gigabytes_a_second = 0;
    std::uint64_t messages = 0;  // long ones
};

template <class Endpoint>
rc::task<> send_long(Endpoint& over, std::span<const std::byte> memory, const bool& stop) {
    while (!stop) co_await over.send(memory, long_tag);
}

template <class Endpoint>
rc::task<> send_short(Endpoint& over, std::int64_t begin, double seconds, bool& stop) {
    std::mt19937_64 random(1);
    const std::int64_t end = now() + static_cast<std::int64_t>(seconds * 1e9);
    stamp one;
    while (now() < end) {
        const auto pause = static_cast<std::int64_t>(100'000 + random() % 900'000);
        const std::int64_t due = now() + pause;
        co_await rc::sleep_for(std::chrono::nanoseconds(pause));
        const std::int64_t is = now();
        one.sent_in_tens = static_cast<std::uint32_t>((is - begin) / 10);
        one.late = static_cast<std::uint32_t>(std::clamp<std::int64_t>(is - due, 0, stamp::last - 1));
        co_await over.send(std::as_bytes(std::span(&one, 1)), short_tag);
    }
    stop = true;
    one.late = stamp::last;
    co_await over.send(std::as_bytes(std::span(&one, 1)), short_tag);
}

template <class Endpoint>
rc::task<> receive_long(Endpoint& over, std::span<std::byte> memory, std::uint64_t& messages) {
    for (;;) {
        const auto got = co_await rc::as_result(over.recv(memory, long_tag));
        if (!got) co_return;  // the sender has closed
        ++messages;
    }
}

template <class Endpoint>
rc::task<> receive_short(Endpoint& over, std::int64_t begin, found& into) {
    for (;;) {
        stamp one;
        co_await over.recv(std::as_writable_bytes(std::span(&one, 1)), short_tag);
        const std::int64_t is = now();
        if (one.late == stamp::last) co_return;
        const double took = static_cast<double>(is - begin - 10 * std::int64_t{one.sent_in_tens}) / 1e3;
        into.from_send.push_back(took);
        into.from_due.push_back(took + one.late / 1e3);
    }
}

template <class T, class P>
rc::task<> sending(std::string address, settings asked, std::int64_t begin) {
    std::vector<std::byte> memory(asked.alone ? 1 : asked.bytes, std::byte{1});
    auto over = co_await rc::connect<T, P>(address);
    bool stop = asked.alone;
    rc::task_group both;
    both.spawn([&] { return send_long(over, memory, stop); });
    co_await rc::sleep_for(200ms);  // the long ones are well under way
    both.spawn([&] { return send_short(over, begin, asked.seconds, stop); });
    co_await both.join();
    co_await over.close();
}

std::string read_line(int from) {
    std::string line;
    for (char c = 0; ::read(from, &c, 1) == 1 && c != '\n';) line += c;
    if (line.empty()) throw std::runtime_error("the other process ended early");
    return line;
}

template <class T, class P>
rc::task<found> receiving(std::string url, settings asked, std::int64_t begin, int tell) {
    found made;
    std::vector<std::byte> memory(asked.bytes);
    auto listener = co_await rc::listen<T, P>(url);
    const std::string line = listener.address() + "\n";
    if (::write(tell, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
        throw std::runtime_error("the other process is gone");
    auto over = co_await listener.accept();
    const std::int64_t first = now();
    rc::task_group both;
    both.spawn([&] { return receive_long(over, memory, made.messages); });
    both.spawn([&] { return receive_short(over, begin, made); });
    co_await both.join();
    made.gigabytes_a_second = static_cast<double>(made.messages) * static_cast<double>(asked.bytes) /
                              static_cast<double>(now() - first);
    co_return made;
}

/// Neither process has a scheduler yet.
template <class T, class P>
found pair(const std::vector<int>& cpus, const settings& asked, const std::string& url) {
    std::array<int, 2> line{};
    if (::pipe(line.data()) != 0) throw std::runtime_error("no pipe");
    const std::int64_t begin = now();
    const pid_t other = ::fork();
    if (other < 0) throw std::runtime_error("no process");
    if (other == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(line[1]);
        try {
            pingpong::pin_to(cpus[1]);
            rc::scheduler on{rc::idle::spin{}};
            on.run(sending<T, P>(read_line(line[0]), asked, begin));
        } catch (const std::exception& failure) {
            std::fprintf(stderr, "behind: the other process: %s\n", failure.what());
            std::_Exit(1);
        }
        std::_Exit(0);
    }
    ::close(line[0]);
    found made;
    std::exception_ptr failed;
    try {
        pingpong::pin_to(cpus[0]);
        rc::scheduler on{rc::idle::spin{}};
        made = on.run(receiving<T, P>(url, asked, begin, line[1]));
    } catch (...) {
        failed = std::current_exception();
        ::kill(other, SIGKILL);
    }
    ::close(line[1]);
    int status = 0;
    ::waitpid(other, &status, 0);
    if (failed) std::rethrow_exception(failed);
    if (status != 0) throw std::runtime_error("the other process failed");
    return made;
}

double at(const std::vector<double>& sorted, double share) {
    if (sorted.empty()) return 0;
    return sorted[std::min(sorted.size() - 1,
                           static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

template <class T, class P>
void row(const std::vector<int>& cpus, const settings& asked, const char* list, const std::string& url) {
    if (!asked.only.empty() && asked.only != T::name) return;
    try {
        found made = pair<T, P>(cpus, asked, url);
        std::sort(made.from_send.begin(), made.from_send.end());
        std::sort(made.from_due.begin(), made.from_due.end());
        std::size_t beyond = 0;
        for (const double one : made.from_send) beyond += one > 100 ? 1 : 0;
        std::printf("| %s | %s | %zu | %.1f | %.1f | %.1f | %.1f | %.2f | %.1f | %.1f | %.1f |\n",
                    std::string(T::name).c_str(), list, made.from_send.size(), at(made.from_send, 0.5),
                    at(made.from_send, 0.99), at(made.from_send, 1),
                    100.0 * static_cast<double>(beyond) /
                        static_cast<double>(std::max<std::size_t>(1, made.from_send.size())),
                    at(made.from_due, 0.5), at(made.from_due, 0.99), at(made.from_due, 1),
                    made.gigabytes_a_second);
    } catch (const std::exception& failure) {
        std::printf("| %s | %s | %s\n", std::string(T::name).c_str(), list, failure.what());
    }
    std::fflush(stdout);
}

template <class T>
void table(const std::vector<int>& cpus, const settings& asked, const std::string& url) {
    using rc::eager;
    row<T, rc::default_protocols<T>>(cpus, asked, "default", url);
    if (asked.alone) return;
    row<T, rc::protocols<eager<>, rc::get_rendezvous<>>>(cpus, asked, "get", url);
    row<T, rc::protocols<eager<>, rc::put_rendezvous<>>>(cpus, asked, "put", url);
    if constexpr (std::is_same_v<T, rc::shm>)
        row<T, rc::protocols<eager<>, rc::cooperative_rendezvous<>, rc::get_rendezvous<>>>(
            cpus, asked, "cooperative", url);
}

int usage() {
    std::fputs("usage: behind [--seconds N] [--mebibytes N] [--alone] [shm|tcp]\n", stderr);
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    settings asked;
    for (int n = 1; n < argc; ++n) {
        const std::string_view word = argv[n];
        if (word == "--alone") {
            asked.alone = true;
        } else if (word == "shm" || word == "tcp") {
            asked.only = word;
        } else if (n + 1 < argc && word == "--seconds") {
            asked.seconds = std::atof(argv[++n]);
        } else if (n + 1 < argc && word == "--mebibytes") {
            asked.bytes = static_cast<std::size_t>(std::atoi(argv[++n])) << 20;
        } else {
            return usage();
        }
    }
    if (asked.seconds <= 0 || asked.seconds > 30 || asked.bytes == 0) return usage();
    const std::vector<int> cpus = pingpong::usable_cpus();
    if (cpus.size() < 2) {
        std::fputs("behind: two CPUs are needed\n", stderr);
        return 1;
    }
    std::puts("| link | list | messages of 8 B | from send: p50, us | p99 | max | beyond 100 us, % | from "
              "when it was due: p50, us | p99 "
              "| max | long ones, GB/s |\n|---|---|---|---|---|---|---|---|---|---|---|");
    table<rc::shm>(cpus, asked, "shm://behind-" + std::to_string(::getpid()));
#if RDMACORO_WITH_TCP
    table<rc::tcp>(cpus, asked, "tcp://127.0.0.1:0");
#endif
}
