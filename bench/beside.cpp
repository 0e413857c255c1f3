// beside: what 8 bytes over shared memory cost beside a link of another transport, and what that link's own messages cost.
//
// Two processes on two CPUs, one scheduler each, which spin. Both ends bounce 8 bytes over shared memory; there is also a link of
// another transport, idle or with 1,000 requests a second, each answered at once. Every arrangement is a pair of processes of
// its own; the arrangements are taken in turns, and the figures are medians over the rounds. Goals: 1.15 times alone beside an
// idle link, 1.3 times beside a busy one, whose own latency grows by 2 us at most.

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/rdmacoro.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_OFI
#include <rdmacoro/transport/ofi.hpp>
#endif
#if RDMACORO_WITH_VERBS
#include <rdmacoro/transport/verbs_rc.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t rounds_of_a_sample = 2000;
constexpr std::size_t samples = 100;

enum class traffic { none, idle, busy };

/// Microseconds; 0: there was none.
struct figures {
    double shm = 0;    ///< 8 bytes one way
    double other = 0;  ///< likewise, over the other link
};

double micros() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double median(std::vector<double> of) {
    if (of.empty()) return 0;
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
}

std::span<std::byte> raw(std::uint64_t& value) { return std::as_writable_bytes(std::span(&value, 1)); }

/// Answers until it gets 0.
template <class T>
rc::task<> answer(rc::endpoint<T>& over) {
    for (std::uint64_t value = 1; value != 0;) {
        co_await over.recv(raw(value), 1);
        if (value != 0) co_await over.send(raw(value), 1);
    }
}

template <class T>
rc::task<> bounce(rc::endpoint<T>& over, std::size_t times) {
    for (std::uint64_t n = 1; n <= times; ++n) {
        std::uint64_t value = n;
        co_await over.send(raw(value), 1);
        co_await over.recv(raw(value), 1);
        if (value != n) throw std::runtime_error("an answer was another's");
    }
}

template <class T>
rc::task<> end(rc::endpoint<T>& over) {
    std::uint64_t last = 0;
    co_await over.send(raw(last), 1);
}

/// One request each millisecond until `stop`.
template <class T>
rc::task<> thousand_a_second(rc::endpoint<T>& over, const bool& stop, std::vector<double>& one_way) {
    while (!stop) {
        co_await rc::sleep_for(1ms);
        const double begin = micros();
        co_await bounce(over, 1);
        one_way.push_back((micros() - begin) / 2);
    }
    co_await end(over);
}

rc::task<> measure_shm(rc::endpoint<rc::shm>& over, std::vector<double>& one_way) {
    co_await bounce(over, 5 * rounds_of_a_sample);
    for (std::size_t n = 0; n < samples; ++n) {
        const double begin = micros();
        co_await bounce(over, rounds_of_a_sample);
        one_way.push_back((micros() - begin) / (2 * rounds_of_a_sample));
    }
    co_await end(over);
}

/// Only the other link, as busy.
rc::task<> measure_time(bool& stop) {
    co_await rc::sleep_for(300ms);
    stop = true;
}

std::string read_line(int from) {
    std::string line;
    for (char c = 0; ::read(from, &c, 1) == 1 && c != '\n';) line += c;
    if (line.empty()) throw std::runtime_error("the other process ended early");
    return line;
}

/// The child: accepts and answers.
template <class T>
rc::task<> child(bool with_shm, bool with_other, std::string url, int told) {
    rc::task_group links;
    const auto serve = []<class U>(rc::listener<U> listener) -> rc::task<> {
        auto over = co_await listener.accept();
        co_await answer(over);
        co_await over.close();
    };
    std::string addresses;
    if (with_shm) {
        auto listener = co_await rc::listen<rc::shm>("shm://beside-" + std::to_string(::getpid()));
        addresses += listener.address() + "\n";
        links.spawn(serve, std::move(listener));
    }
    if (with_other) {
        auto listener = co_await rc::listen<T>(url);
        addresses += listener.address() + "\n";
        links.spawn(serve, std::move(listener));
    }
    if (::write(told, addresses.data(), addresses.size()) != static_cast<ssize_t>(addresses.size()))
        throw std::runtime_error("the other process is gone");
    co_await links.join();
}

template <class T>
rc::task<figures> parent(bool with_shm, traffic beside, int from) {
    std::vector<double> shm;
    std::vector<double> other;
    bool stop = false;
    if (beside == traffic::none) {
        auto over = co_await rc::connect<rc::shm>(read_line(from));
        co_await measure_shm(over, shm);
        co_await over.close();
        co_return figures{median(shm), 0};
    }
    rc::endpoint<rc::shm> near;
    if (with_shm) near = co_await rc::connect<rc::shm>(read_line(from));
    auto over = co_await rc::connect<T>(read_line(from));
    co_await bounce(over, 100);
    co_await rc::sleep_for(20ms);
    rc::task_group links;
    if (beside == traffic::busy)
        links.spawn(thousand_a_second<T>, std::ref(over), std::cref(stop), std::ref(other));
    if (with_shm) {
        co_await measure_shm(near, shm);
        stop = true;
    } else {
        co_await measure_time(stop);
    }
    co_await links.join();
    if (beside == traffic::idle) co_await end(over);
    if (with_shm) co_await near.close();
    co_await over.close();
    co_return figures{median(shm), median(other)};
}

/// Neither process has a scheduler yet.
template <class T>
figures pair(const std::vector<int>& cpus, bool with_shm, traffic beside, const std::string& url) {
    std::array<int, 2> line{};
    if (::pipe(line.data()) != 0) throw std::runtime_error("no pipe");
    const pid_t other = ::fork();
    if (other < 0) throw std::runtime_error("no process");
    if (other == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::close(line[0]);
        try {
            pingpong::pin_to(cpus[1]);
            rc::scheduler on{rc::idle::spin{}};
            on.run(child<T>(with_shm, beside != traffic::none, url, line[1]));
        } catch (const std::exception& failure) {
            std::fprintf(stderr, "beside: the other process: %s\n", failure.what());
            std::_Exit(1);
        }
        std::_Exit(0);
    }
    ::close(line[1]);
    figures found;
    std::exception_ptr failed;
    try {
        pingpong::pin_to(cpus[0]);
        rc::scheduler on{rc::idle::spin{}};
        found = on.run(parent<T>(with_shm, beside, line[0]));
    } catch (...) {
        failed = std::current_exception();
        ::kill(other, SIGKILL);
    }
    ::close(line[0]);
    int status = 0;
    ::waitpid(other, &status, 0);
    if (failed) std::rethrow_exception(failed);
    if (status != 0) throw std::runtime_error("the other process failed");
    return found;
}

template <class T>
void table(const std::vector<int>& cpus, int rounds, const char* name, const std::string& url) {
    std::vector<double> alone, beside_idle, beside_busy, busy_alone, busy_beside;
    try {
        for (int n = 0; n < rounds; ++n) {
            alone.push_back(pair<T>(cpus, true, traffic::none, url).shm);
            beside_idle.push_back(pair<T>(cpus, true, traffic::idle, url).shm);
            busy_alone.push_back(pair<T>(cpus, false, traffic::busy, url).other);
            const figures both = pair<T>(cpus, true, traffic::busy, url);
            beside_busy.push_back(both.shm);
            busy_beside.push_back(both.other);
        }
    } catch (const std::exception& failure) {
        std::printf("| %s | %s\n", name, failure.what());
        return;
    }
    const double one = median(alone);
    std::printf("| %s | %.0f ns | %.0f ns, %.2f x (1.15) | %.0f ns, %.2f x (1.30) | %.1f us | %.1f us, %+.1f "
                "(+2.0) |\n",
                name, one * 1e3, median(beside_idle) * 1e3, median(beside_idle) / one,
                median(beside_busy) * 1e3, median(beside_busy) / one, median(busy_alone), median(busy_beside),
                median(busy_beside) - median(busy_alone));
    std::fflush(stdout);
}

int usage() {
    std::fputs("usage: beside [--rounds N] [tcp|ofi+tcp|verbs URL]...\n"
               "  tcp://127.0.0.1:0 and ofi+tcp://127.0.0.1:0 are measured without an argument;\n"
               "  verbs needs the URL of a device of this host, such as verbs://192.168.7.1:0\n",
               stderr);
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    int rounds = 5;
    std::vector<std::array<std::string, 2>> asked;
    for (int n = 1; n < argc; n += 2) {
        if (n + 1 == argc) return usage();
        const std::string name = argv[n];
        if (name == "--rounds") {
            rounds = std::atoi(argv[n + 1]);
        } else {
            asked.push_back({name, argv[n + 1]});
        }
    }
    if (asked.empty()) asked = {{"tcp", "tcp://127.0.0.1:0"}, {"ofi+tcp", "ofi+tcp://127.0.0.1:0"}};
    const std::vector<int> cpus = pingpong::usable_cpus();
    if (rounds < 1) return usage();
    if (cpus.size() < 2) {
        std::fputs("beside: two CPUs are needed\n", stderr);
        return 1;
    }
    std::puts("| link | 8 B over shm alone | beside it, idle (goal) | beside it, 1,000 a second (goal) | its "
              "own 8 B alone | beside shm (goal) |\n"
              "|---|---|---|---|---|---|");
    for (const auto& [name, url] : asked) {
        const char* const shown = name.c_str();
        if (false) {
#if RDMACORO_WITH_TCP
        } else if (name == "tcp") {
            table<rc::tcp>(cpus, rounds, shown, url);
#endif
#if RDMACORO_WITH_OFI
        } else if (name == "ofi+tcp") {
            table<rc::ofi<rc::provider::tcp>>(cpus, rounds, shown, url);
#endif
#if RDMACORO_WITH_VERBS
        } else if (name == "verbs") {
            table<rc::verbs_rc>(cpus, rounds, shown, url);
#endif
        } else {
            return usage();
        }
    }
}
