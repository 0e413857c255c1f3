// gate: how many messages several threads send through one connection.
//
// A child process on another CPU receives. In turns: threads that put their messages into a gate, and threads that take a mutex: over shm
// around the endpoint, over tcp, whose endpoint is for one thread, around a socket of the system beside it, which they write to by
// themselves. The gate's thread and the receiver have a CPU each; the threads that send run where the system lets them.

#include "common/child.hpp"
#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/service/gate.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;
using seconds = std::chrono::duration<double>;
using steady = std::chrono::steady_clock;

constexpr std::size_t message_bytes = 64;
constexpr rc::tag_type message_tag = 1;
constexpr rc::tag_type end_tag = 2;
constexpr std::size_t receives = 64;

/// The CPUs of the gate's thread and of the receiver, and those of the other threads.
struct placement {
    int gate = 0;
    int receiver = 0;
    cpu_set_t all{};
};
placement places;
/// This thread may run on all CPUs again.
void run_anywhere() { static_cast<void>(::sched_setaffinity(0, sizeof places.all, &places.all)); }

/// Receives messages until it is told how many there are, answers when it has them all, and begins again.
template <class T>
rc::task<> receive_all(std::string url) {
    auto listening = co_await rc::listen<T>(url);
    auto peer = co_await listening.accept();
    std::uint64_t got = 0;
    rc::event more;
    rc::task_group receiving;
    for (std::size_t n = 0; n < receives; ++n) {
        receiving.spawn([&]() -> rc::task<> {
            std::array<std::byte, message_bytes> room;
            while (co_await rc::as_result(peer.recv(std::span(room), message_tag))) {
                ++got;
                more.set();
            }
        });
    }
    for (std::uint64_t count = 0;;) {
        const auto told = co_await rc::as_result(peer.recv(rc::bytes_of(count), end_tag));
        if (!told || count == 0) break;
        while (got < count) {
            more.reset();
            co_await more.wait();
        }
        got -= count;
        co_await peer.send(rc::bytes_of(count), end_tag);
    }
    receiving.request_stop();
    co_await receiving.join();
}

/// Millions of messages a second, of `threads` that send `count` in all, each by a function that `sender` makes for it.
template <class T, class MakeSender>
rc::task<double> rate(rc::endpoint<T>& peer, std::size_t threads, std::uint64_t count, MakeSender sender) {
    rc::scheduler& here = *rc::scheduler::current();
    const std::uint64_t each = count / threads;
    std::uint64_t all = each * threads;
    std::size_t running = threads;
    rc::event ended;
    const auto before = steady::now();
    std::vector<std::jthread> senders;
    for (std::size_t n = 0; n < threads; ++n) {
        senders.emplace_back([&here, &running, &ended, each, send = sender()]() mutable {
            run_anywhere();
            std::array<std::byte, message_bytes> message{};
            for (std::uint64_t i = 0; i < each; ++i) send(std::span<const std::byte>(message));
            send(std::span<const std::byte>());
            here.post([&running, &ended] {
                if (--running == 0) ended.set();
            });
        });
    }
    co_await ended.wait();
    senders.clear();
    co_await peer.send(rc::bytes_of(all), end_tag);
    co_await peer.recv(rc::bytes_of(all), end_tag);
    co_return static_cast<double>(all) / seconds(steady::now() - before).count() / 1e6;
}

/// Threads without a gate: each message is sent by a thread that has the lock, which drives the scheduler, too.
template <class T>
rc::task<> one_message(rc::endpoint<T>& peer, std::span<const std::byte> message) {
    co_await peer.send(message, message_tag);
}
template <class T>
double rate_by_mutex(rc::scheduler& on, rc::endpoint<T>& peer, std::size_t threads, std::uint64_t count) {
    const std::uint64_t each = count / threads;
    std::uint64_t all = each * threads;
    std::mutex lock;
    const auto before = steady::now();
    {
        std::vector<std::jthread> senders;
        for (std::size_t n = 0; n < threads; ++n) {
            senders.emplace_back([&] {
                run_anywhere();
                const std::array<std::byte, message_bytes> message{};
                for (std::uint64_t i = 0; i < each; ++i) {
                    const std::lock_guard locked(lock);
                    on.run(one_message<T>(peer, message));
                }
            });
        }
    }
    on.run([](rc::endpoint<T>& to, std::uint64_t& number) -> rc::task<> {
        co_await to.send(rc::bytes_of(number), end_tag);
        co_await to.recv(rc::bytes_of(number), end_tag);
    }(peer, all));
    return static_cast<double>(all) / seconds(steady::now() - before).count() / 1e6;
}

/// A TCP connection of this host to a thread of the child's, which reads whatever comes: bytes, and no messages.
class plain_socket {
public:
    plain_socket() : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in here{};
        here.sin_family = AF_INET;
        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof here;
        auto* const any = reinterpret_cast<sockaddr*>(&here);
        if (::bind(listening_.get(), any, length) != 0 || ::listen(listening_.get(), 1) != 0 ||
            ::getsockname(listening_.get(), any, &length) != 0)
            throw run_error("no socket to listen at");
        port_ = here.sin_port;
    }
    /// In the child: for each number of messages that comes first, reads so many and answers with a byte, until the other side closes.
    void receive() const {
        const rc::detail::shm::unique_fd from(::accept(listening_.get(), nullptr, nullptr));
        std::vector<std::byte> room(1 << 20);
        for (std::uint64_t count = 0;
             ::recv(from.get(), &count, sizeof count, MSG_WAITALL) == ssize_t{sizeof count};) {
            for (std::uint64_t left = count * message_bytes; left != 0;) {
                const ssize_t got =
                    ::recv(from.get(), room.data(), std::min<std::uint64_t>(room.size(), left), 0);
                if (got <= 0) return;
                left -= static_cast<std::uint64_t>(got);
            }
            if (::send(from.get(), room.data(), 1, MSG_NOSIGNAL) != 1) return;
        }
    }
    void connect() {
        sockaddr_in there{};
        there.sin_family = AF_INET;
        there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        there.sin_port = port_;
        const int at_once = 1;
        to_ = rc::detail::shm::unique_fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::connect(to_.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0 ||
            ::setsockopt(to_.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once) != 0)
            throw run_error("no connection by a socket");
    }
    void close() { to_.reset(); }
    void send(std::span<const std::byte> bytes) const {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(to_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) throw run_error("a socket that is not written to");
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        }
    }
    void wait_for_answer() const {
        std::byte answer{};
        if (::recv(to_.get(), &answer, 1, 0) != 1) throw run_error("a socket without an answer");
    }

private:
    rc::detail::shm::unique_fd listening_;
    rc::detail::shm::unique_fd to_;
    in_port_t port_ = 0;
};
double rate_by_socket(const plain_socket& to, std::size_t threads, std::uint64_t count) {
    const std::uint64_t each = count / threads;
    const std::uint64_t all = each * threads;
    std::mutex lock;
    const auto before = steady::now();
    to.send(rc::bytes_of(all));
    {
        std::vector<std::jthread> senders;
        for (std::size_t n = 0; n < threads; ++n) {
            senders.emplace_back([&] {
                run_anywhere();
                const std::array<std::byte, message_bytes> message{};
                for (std::uint64_t i = 0; i < each; ++i) {
                    const std::lock_guard locked(lock);
                    to.send(message);
                }
            });
        }
    }
    to.wait_for_answer();
    return static_cast<double>(all) / seconds(steady::now() - before).count() / 1e6;
}

template <class T>
double rate_by_gate(rc::scheduler& on, rc::endpoint<T>& peer, std::size_t threads, std::uint64_t count,
                    std::size_t room) {
    return on.run(
        [](rc::endpoint<T>& to, std::size_t n, std::uint64_t all, std::size_t each) -> rc::task<double> {
            rc::gate through(to, {.messages = each});
            co_return co_await rate<T>(to, n, all, [&] {
                return [pass = through.pass()](std::span<const std::byte> message) mutable {
                    message.empty() ? pass.flush() : pass.send(message, message_tag);
                };
            });
        }(peer, threads, count, room));
}

template <class T>
void measure(const std::string& url, const plain_socket& beside, std::uint64_t count, int rounds,
             std::size_t room, report& out) {
    constexpr bool of_any_thread = std::is_same_v<T, rc::shm>;
    rc::scheduler on;
    auto peer = on.run(rc::connect<T>(url, rc::connect_options{.retry_for = 10s}));
    struct way {
        std::string name;
        std::size_t threads;
        bool by_gate;
        std::vector<double> rates;
    };
    way ways[] = {{"gate, 1 thread", 1, true, {}},
                  {"gate, 4 threads", 4, true, {}},
                  {"gate, 16 threads", 16, true, {}},
                  {of_any_thread ? "mutex, 4 threads" : "mutex and socket, 4 threads", 4, false, {}}};
    for (int round = -1; round < rounds; ++round) {
        for (way& one : ways) {
            double got = 0;
            if (one.by_gate) {
                got = rate_by_gate<T>(on, peer, one.threads, count, room);
            } else if constexpr (of_any_thread) {
                got = rate_by_mutex<T>(on, peer, one.threads, count / 8);
            } else {
                got = rate_by_socket(beside, one.threads, count / 8);
            }
            if (round >= 0) one.rates.push_back(got);
        }
    }
    out.section("64-byte messages over " + url.substr(0, url.find(':')));
    const double least = median(ways[3].rates);
    for (way& one : ways) {
        const double got = median(one.rates);
        out.row({one.name, number_text(got, 2) + " M/s", number_text(got / least, 1) + " x"},
                {{"test", "rate"},
                 {"url", url},
                 {"by", one.name},
                 {"millions_per_second", rounded(got)},
                 {"ratio", rounded(got / least)}});
    }
    on.run([](rc::endpoint<T>& to) -> rc::task<> {
        std::uint64_t end = 0;
        co_await to.send(rc::bytes_of(end), end_tag);
        co_await to.close();
    }(peer));
}

template <class T>
void run_over(const std::string& url, std::uint64_t count, int rounds, std::size_t room, report& out) {
    plain_socket beside;
    child receiving(places.receiver, [&] {
        std::jthread plain([&] { beside.receive(); });
        rc::scheduler on;
        on.run(receive_all<T>(url));
    });
    pingpong::pin_to(places.gate);
    beside.connect();
    measure<T>(url, beside, count, rounds, room, out);
    beside.close();
    run_anywhere();
    if (receiving.end(false) != 0) throw run_error("the other process failed");
}

void run(int argc, char** argv) {
    settings asked;
    asked.name = "gate";
    std::uint64_t count = 2000000;
    int rounds = 5;
    std::size_t room = rc::gate_options{}.messages;
    std::vector<std::string> urls{"shm://gate-" + std::to_string(::getpid())};
#if RDMACORO_WITH_TCP
    urls.emplace_back("tcp://127.0.0.1:7481");
#endif
    options app("Measures how many messages several threads send through one connection.");
    app.add("url", urls, "where the other process listens: shm:// or tcp://").show_default();
    app.add("--messages", count, "in each measurement").between(1000, 1000000000).show_default();
    app.add("--rounds", rounds, "of which the medians are printed").between(1, 1000).show_default();
    app.add("--room", room, "messages that each thread may have in the gate")
        .between(4, 1000000)
        .show_default();
    std::string cpus;
    app.add("--cpus", cpus,
            "of the gate's thread and of the receiver, such as 0,1; by default the first two");
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.cpus = cpus.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(cpus);
    places.gate = asked.cpus.front();
    places.receiver = asked.cpus.size() > 1 ? asked.cpus[1] : asked.cpus.front();
    if (::sched_getaffinity(0, sizeof places.all, &places.all) != 0) throw run_error("sched_getaffinity");
    asked.idle = idle_kind::adaptive;
    report out(asked, {{"by", 28}, {"", 12}, {"", 8}});
    for (const std::string& url : urls) {
        if (url.starts_with("shm://")) {
            run_over<rc::shm>(url, count, rounds, room, out);
#if RDMACORO_WITH_TCP
        } else if (url.starts_with("tcp://")) {
            run_over<rc::tcp>(url, count, rounds, room, out);
#endif
        } else {
            throw usage_error("no transport here has the URL " + url);
        }
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("gate", argc, argv, run); }
