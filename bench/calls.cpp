// calls: what a call costs beside the two messages that it is made of.
//
// A child process on another CPU answers. In turns: round trips of 8-byte messages, matched by tag, and calls with an argument and a
// result of 8 bytes, of a handler that is a function and of one that is a coroutine; then 64 of each under way at a time, the messages
// with a tag for each exchange.
//
// The floor of the slowest of them is taken in the same turns, by the same two processes with no library between them: a cache line that
// both write in turn, or polled sockets. What the machine does to that it does to every message.

#include "common/child.hpp"
#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/cpus.hpp"
#include "../tools/pingpong/idle_choice.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;
using seconds = std::chrono::duration<double>;
using steady = std::chrono::steady_clock;

struct plus {
    static constexpr rc::method<"plus.one", std::uint64_t(std::uint64_t)> one{};
    static constexpr rc::method<"plus.by_task", std::uint64_t(std::uint64_t)> by_task{};
};

constexpr std::size_t window = 64;
constexpr rc::tag_type ask_tag = 1;
constexpr rc::tag_type end_tag = 2;
constexpr rc::tag_type many_tag = 3;
constexpr rc::tag_type bare_tag = 4;
constexpr rc::tag_type first_of_many = 100;

[[noreturn]] void fail(const char* what) { throw run_error(std::string(what) + ": " + std::strerror(errno)); }

/// Looks until `there()`. The other process may have ended: not for ever.
template <class Condition>
void spin_until(Condition there) {
    steady::time_point limit = steady::time_point::max();
    for (unsigned looks = 1; !there(); ++looks) {
        if (looks % (1U << 16) != 0) continue;
        const auto now = steady::now();
        limit = std::min(limit, now + 10s);
        if (now >= limit) throw run_error("the other process is silent");
    }
}

/// A cache line that the two processes of a fork write in turn.
class bare_line {
public:
    static constexpr const char* name = "a bare line";

    bare_line() {
        void* page = ::mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (page == MAP_FAILED) fail("mmap");
        turn_ = new (page) std::atomic<std::uint64_t>(0);
    }
    ~bare_line() { ::munmap(static_cast<void*>(turn_), sizeof(std::uint64_t)); }
    bare_line(const bare_line&) = delete;
    bare_line& operator=(const bare_line&) = delete;

    void ask() {
        const std::uint64_t mine = turn_->load(std::memory_order_relaxed) + 1;
        turn_->store(mine, std::memory_order_release);
        spin_until([&] { return turn_->load(std::memory_order_acquire) == mine + 1; });
    }
    void answer() {
        spin_until([&] { return turn_->load(std::memory_order_acquire) % 2 == 1; });
        turn_->store(turn_->load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }

private:
    std::atomic<std::uint64_t>* turn_;
};

#if RDMACORO_WITH_TCP
/// A connection over the loopback interface, both ends in this process until a fork parts them; polled.
class bare_sockets {
public:
    static constexpr const char* name = "bare sockets";

    bare_sockets() {
        const int listening = open();
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof at;
        auto* address = reinterpret_cast<sockaddr*>(&at);
        if (::bind(listening, address, size) != 0 || ::listen(listening, 1) != 0 ||
            ::getsockname(listening, address, &size) != 0)
            fail("a listening socket");
        asking_ = open();
        if (::connect(asking_, address, size) != 0) fail("connect");
        answering_ = ::accept(listening, nullptr, nullptr);
        if (answering_ < 0) fail("accept");
        ::close(listening);
        const int on = 1;
        for (const int end : {asking_, answering_})
            if (::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail("TCP_NODELAY");
    }
    ~bare_sockets() {
        ::close(asking_);
        ::close(answering_);
    }
    bare_sockets(const bare_sockets&) = delete;
    bare_sockets& operator=(const bare_sockets&) = delete;

    void ask() {
        send(asking_);
        receive(asking_);
    }
    void answer() {
        receive(answering_);
        send(answering_);
    }

private:
    static int open() {
        const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (made < 0) fail("socket");
        return made;
    }
    static void send(int end) {
        const std::uint64_t number = 0;
        if (::send(end, &number, sizeof number, MSG_NOSIGNAL) != sizeof number) fail("send");
    }
    static void receive(int end) {
        std::uint64_t number = 0;
        ssize_t got = 0;
        spin_until([&] {
            got = ::recv(end, &number, sizeof number, MSG_DONTWAIT);
            return got >= 0 || errno != EAGAIN;
        });
        if (got != sizeof number) fail("recv");
    }

    int asking_ = -1;
    int answering_ = -1;
};
#endif

/// Answers messages and calls until it is told to end, and what goes by `bare` as often as it is told to.
template <class T, class Bare>
rc::task<> answer(std::string url, Bare& bare) {
    auto listening = co_await rc::listen<T>(url);
    auto peer = co_await listening.accept();
    rc::service adding;
    adding.on(plus::one, [](rc::call_context&, std::uint64_t n) { return n + 1; });
    adding.on(plus::by_task,
              [](rc::call_context&, std::uint64_t n) -> rc::task<std::uint64_t> { co_return n + 1; });
    {
        rc::calls<T> served(peer, adding);
        rc::task_group answers;
        answers.spawn([&]() -> rc::task<> {
            std::uint64_t number = 0;
            while (co_await rc::as_result(peer.recv(rc::bytes_of(number), ask_tag))) {
                ++number;
                co_await peer.send(rc::bytes_of(number), ask_tag);
            }
        });
        const auto answer_many = [&](rc::tag_type tag) -> rc::task<> {
            std::uint64_t number = 0;
            while (co_await rc::as_result(peer.recv(rc::bytes_of(number), tag))) {
                ++number;
                co_await peer.send(rc::bytes_of(number), tag);
            }
        };
        answers.spawn([&]() -> rc::task<> {
            std::uint64_t begin = 0;
            co_await peer.recv(rc::bytes_of(begin), many_tag);
            for (std::size_t n = 0; n < window; ++n) answers.spawn(answer_many, first_of_many + n);
        });
        answers.spawn([&]() -> rc::task<> {
            std::uint64_t count = 0;
            while (co_await rc::as_result(peer.recv(rc::bytes_of(count), bare_tag)))
                for (; count != 0; --count) bare.answer();
        });
        std::uint64_t end = 0;
        static_cast<void>(co_await rc::as_result(peer.recv(rc::bytes_of(end), end_tag)));
        answers.request_stop();
        co_await answers.join();
    }
}

/// Exchanges with one tag, as long as there are some left; the nanoseconds of each, if those are wanted.
template <class Peer>
rc::task<> exchange(Peer& peer, rc::tag_type tag, std::size_t& left, std::vector<double>* times) {
    while (left != 0) {
        std::uint64_t number = left--;
        const std::uint64_t expected = number + 1;
        const auto before = times != nullptr ? steady::now() : steady::time_point();
        co_await peer.send(rc::bytes_of(number), tag);
        co_await peer.recv(rc::bytes_of(number), tag);
        if (times != nullptr) times->push_back(seconds(steady::now() - before).count() * 1e9);
        if (number != expected) throw run_error("a wrong answer");
    }
}
/// The same by calls.
template <class Calls, class Method>
rc::task<> call(Calls& over, const Method& what, std::size_t& left, std::vector<double>* times) {
    while (left != 0) {
        const std::uint64_t number = left--;
        const auto before = times != nullptr ? steady::now() : steady::time_point();
        const std::uint64_t got = co_await over.call(what, number);
        if (times != nullptr) times->push_back(seconds(steady::now() - before).count() * 1e9);
        if (got != number + 1) throw run_error("a wrong answer");
    }
}

double at(std::vector<double> sorted, double part) {
    std::ranges::sort(sorted);
    return sorted[std::min(sorted.size() - 1,
                           static_cast<std::size_t>(part * static_cast<double>(sorted.size())))];
}

template <class T, class Bare>
rc::task<> measure(std::string url, std::size_t rounds, report& out, Bare& bare) {
    auto peer = co_await rc::connect<T>(url, rc::connect_options{.retry_for = 10s});
    {
        rc::calls<T> calling(peer);
        std::vector<double> floors;
        std::vector<double> messages;
        std::vector<double> calls;
        std::vector<double> tasks;
        const auto one_of_each = [&](std::size_t of_each, bool counted) -> rc::task<> {
            std::size_t left = of_each;
            const std::uint64_t bare_ones = of_each;
            co_await peer.send(rc::bytes_of(bare_ones), bare_tag);
            for (std::size_t n = 0; n < of_each; ++n) {
                const auto before = steady::now();
                bare.ask();
                if (counted) floors.push_back(seconds(steady::now() - before).count() * 1e9);
            }
            co_await exchange(peer, ask_tag, left, counted ? &messages : nullptr);
            left = of_each;
            co_await call(calling, plus::one, left, counted ? &calls : nullptr);
            left = of_each;
            co_await call(calling, plus::by_task, left, counted ? &tasks : nullptr);
        };
        for (auto* each : {&floors, &messages, &calls, &tasks}) each->reserve(rounds + 10);
        co_await one_of_each(rounds / 10, false);
        for (int turn = 0; turn < 10; ++turn) co_await one_of_each(rounds / 10, true);
        out.section("8 bytes there and back over " + url.substr(0, url.find(':')));
        const double floor = median(messages);
        for (const auto& [name, all] : {std::pair(Bare::name, &floors), std::pair("two messages", &messages),
                                        std::pair("a call", &calls), std::pair("of a coroutine", &tasks)}) {
            out.row({name, number_text(median(*all), 0) + " ns", number_text(median(*all) / floor, 2) + " x",
                     "p99 " + number_text(at(*all, 0.99), 0) + " ns",
                     "p99.9 " + number_text(at(*all, 0.999), 0) + " ns",
                     number_text(at(*all, 0.999) / median(*all), 1) + " x"},
                    {{"test", "round trip"},
                     {"by", name},
                     {"median_ns", rounded(median(*all))},
                     {"p99_ns", rounded(at(*all, 0.99))},
                     {"p999_ns", rounded(at(*all, 0.999))},
                     {"p999_to_median", rounded(at(*all, 0.999) / median(*all))},
                     {"ratio", rounded(median(*all) / floor)}});
        }

        const auto keep_busy = [&](auto one) -> rc::task<double> {
            std::size_t left = rounds;
            const auto before = steady::now();
            rc::task_group some;
            for (std::size_t n = 0; n < window; ++n) some.spawn([&, n] { return one(n, left); });
            co_await some.join();
            co_return static_cast<double>(rounds) / seconds(steady::now() - before).count() / 1e6;
        };
        // The median of three, behind one that is not counted.
        const auto usual_rate = [&](auto one) -> rc::task<double> {
            std::vector<double> all;
            for (int turn = 0; turn < 4; ++turn) {
                const double rate = co_await keep_busy(one);
                if (turn != 0) all.push_back(rate);
            }
            co_return median(all);
        };
        const double rate = co_await usual_rate(
            [&](std::size_t, std::size_t& left) { return call(calling, plus::one, left, nullptr); });
        const double rate_of_tasks = co_await usual_rate(
            [&](std::size_t, std::size_t& left) { return call(calling, plus::by_task, left, nullptr); });
        const std::uint64_t begin = 0;
        co_await peer.send(rc::bytes_of(begin), many_tag);
        const double exchanges = co_await usual_rate([&](std::size_t which, std::size_t& left) {
            return exchange(peer, first_of_many + which, left, nullptr);
        });
        out.section(std::to_string(window) + " under way");
        for (const auto& [name, each] : {std::pair("two messages", exchanges), std::pair("a call", rate),
                                         std::pair("of a coroutine", rate_of_tasks)}) {
            out.row({name, number_text(each, 2) + " M/s", number_text(each / exchanges, 2) + " x"},
                    {{"test", "rate"},
                     {"by", name},
                     {"window", window},
                     {"millions_per_second", rounded(each)},
                     {"ratio", rounded(each / exchanges)}});
        }
    }
    std::uint64_t end = 0;
    co_await peer.send(rc::bytes_of(end), end_tag);
    co_await peer.close();
}

template <class T, class Bare>
void run_over(const std::string& url, std::size_t rounds, const settings& asked, report& out) {
    const idle_kind idle = asked.idle;
    Bare bare;
    child answering(asked.cpus.back(), [&] {
        rc::scheduler on{pingpong::chosen_idle(&idle)};
        on.run(answer<T>(url, bare));
    });
    pingpong::pin_to(asked.cpus.front());
    rc::scheduler on{pingpong::chosen_idle(&idle)};
    on.run(measure<T>(url, rounds, out, bare));
    if (answering.end(false) != 0) throw run_error("the other process failed");
}

void run(int argc, char** argv) {
    settings asked;
    asked.name = "calls";
    std::size_t rounds = 200000;
    std::string cpus;
    std::vector<std::string> urls{"shm://calls-" + std::to_string(::getpid())};
#if RDMACORO_WITH_TCP
    urls.emplace_back("tcp://127.0.0.1:7479");
#endif
    options app("Measures what a call costs beside the two messages that it is made of.");
    app.add("url", urls, "where the other process listens: shm:// or tcp://").show_default();
    app.add("--rounds", rounds, "calls, and exchanges of messages, over each")
        .between(100, 1000000000)
        .show_default();
    app.add("--cpus", cpus, "a CPU, or one for each process; by default two that may be used");
    bool adaptive = false;
    app.add_flag("--adaptive", adaptive,
                 "spin, yield, then sleep when nothing moves, as schedulers do by default");
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.cpus = cpus.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(cpus);
    asked.idle = adaptive ? idle_kind::adaptive : idle_kind::spin;
    report out(asked, {{"by", 14}, {"", 12}, {"", 8}, {"", 14}, {"", 16}, {"", 8}});
    for (const std::string& url : urls) {
        if (url.starts_with("shm://")) {
            run_over<rc::shm, bare_line>(url, rounds, asked, out);
#if RDMACORO_WITH_TCP
        } else if (url.starts_with("tcp://")) {
            run_over<rc::tcp, bare_sockets>(url, rounds, asked, out);
#endif
        } else {
            throw usage_error("no transport here has the URL " + url);
        }
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("calls", argc, argv, run); }
