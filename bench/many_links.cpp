// many_links: what a link costs beside many idle ones, over shared memory and TCP.
//
// One scheduler holds both ends of N links, each an endpoint; all are idle but one. Printed for each N: the time to open all;
// of a turn that finds nothing; of 8 bytes one way over the last link, both ends on the one thread; of registering memory and ending
// that; and the processor's time of a sleep: parking, and waking for a timer. Goals are ratios to the figures of one link.
// A link takes four descriptors of the process over shared memory, two over TCP: where RLIMIT_NOFILE does not allow so many links
// there are fewer.

#include <rdmacoro/rdmacoro.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

namespace {

using clock_type = std::chrono::steady_clock;

double wall_ns() {
    return std::chrono::duration<double, std::nano>(clock_type::now().time_since_epoch()).count();
}

/// The processor's time of this process, in nanoseconds.
double processor_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// In nanoseconds.
struct figures {
    double open = 0;
    double idle_turn = 0;
    double one_way = 0;
    double region = 0;
    double park = 0;
};

template <class T>
struct pair_of_ends {
    rc::endpoint<T> near;
    rc::endpoint<T> far;
};

template <class T>
using all_pairs = std::vector<std::unique_ptr<pair_of_ends<T>>>;

template <class T>
rc::task<> open_all(all_pairs<T>& pairs, std::size_t links, std::string address) {
    auto listener = co_await rc::listen<T>(address);
    for (std::size_t n = 0; n < links; ++n) {
        auto accepting = rc::start(listener.accept());
        auto made = std::make_unique<pair_of_ends<T>>();
        made->near = co_await rc::connect<T>(listener.address());
        made->far = co_await accepting;
        pairs.push_back(std::move(made));
    }
}

template <class T>
rc::task<> bounce(pair_of_ends<T>& over, std::size_t rounds) {
    std::uint64_t out = 0;
    std::uint64_t in = 0;
    for (std::size_t n = 0; n < rounds; ++n) {
        auto receiving = rc::start(over.far.recv(std::as_writable_bytes(std::span(&in, 1)), 7));
        co_await rc::yield();
        out = n;
        co_await over.near.send(std::as_bytes(std::span(&out, 1)), 7);
        co_await receiving;
    }
}

rc::task<> turns(std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) co_await rc::yield();
}

/// Memory that any peer could have been told of, so that its end concerns all links.
template <class T>
rc::task<> regions(std::size_t count) {
    auto& domain = rc::scheduler::current()->service<typename T::domain>();
    std::vector<std::byte> memory(64);
    for (std::size_t n = 0; n < count; ++n) {
        const rc::region open = domain.register_memory(std::span(memory), rc::access_rights::all);
        if (!open) throw std::runtime_error("no region");
    }
    co_return;
}

rc::task<> pause() { co_await rc::sleep_for(50ms); }

rc::task<> sleeps(std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) co_await rc::sleep_for(200us);
}

/// The median of five runs of `run`, by `clock`, divided by `count`.
template <class Run>
double median(double count, double (*clock)(), Run run) {
    std::vector<double> taken;
    for (int n = 0; n < 5; ++n) {
        const double begin = clock();
        run();
        taken.push_back((clock() - begin) / count);
    }
    std::sort(taken.begin(), taken.end());
    return taken[taken.size() / 2];
}

template <class T>
figures measure(std::size_t links, const std::string& address) {
    figures found;
    {
        rc::scheduler on{rc::idle::spin{}};
        all_pairs<T> pairs;
        const double begin = wall_ns();
        on.run(open_all(pairs, links, address));
        found.open = wall_ns() - begin;
        on.run(pause());  // links that have nothing to say become cold
        const std::size_t count = links > 1000 ? 2000 : 20000;
        found.idle_turn = median(static_cast<double>(count), wall_ns, [&] { on.run(turns(count)); });
        found.one_way =
            median(static_cast<double>(count), wall_ns, [&] { on.run(bounce(*pairs.back(), count)); });
        found.region = median(2000, wall_ns, [&] { on.run(regions<T>(2000)); });
    }
    {
        rc::scheduler on{rc::idle::adaptive(rc::duration::zero(), rc::duration::zero())};
        all_pairs<T> pairs;
        on.run(open_all(pairs, links, address));
        on.run(pause());
        on.run(sleeps(100));
        constexpr std::size_t count = 300;
        const std::uint64_t before = on.parks();
        found.park = median(static_cast<double>(count), processor_ns, [&] { on.run(sleeps(count)); });
        if (on.parks() - before < 4 * count) throw std::runtime_error("it did not park");
    }
    return found;
}

void print_time(double ns, double goal_ns, const char* end) {
    const auto text = [](double value, char* into, std::size_t room) {
        if (value >= 1e8) {
            std::snprintf(into, room, "%.2f s", value / 1e9);
        } else if (value >= 1e5) {
            std::snprintf(into, room, "%.1f ms", value / 1e6);
        } else if (value >= 1e3) {
            std::snprintf(into, room, "%.2f us", value / 1e3);
        } else {
            std::snprintf(into, room, "%.0f ns", value);
        }
    };
    char shown[32];
    char goal[32] = "-";
    text(ns, shown, sizeof shown);
    if (goal_ns > 0) text(goal_ns, goal, sizeof goal);
    std::printf(" %9s (%9s) |%s", shown, goal, end);
}

template <class T>
void table(const char* name, const std::vector<std::size_t>& counts, const std::string& address) {
    std::printf("%s\n| links |  idle turn  (goal)    |  8 B one way  (goal)  |  opening all  (goal)  |"
                "  region's life (goal) |  park + wake (goal)   |\n|---|---|---|---|---|---|\n",
                name);
    figures one;
    for (const std::size_t links : counts) {
        figures found;
        try {
            found = measure<T>(links, address);
        } catch (const std::exception& failure) {
            std::printf("| %5zu | %s\n", links, failure.what());
            continue;
        }
        if (one.open == 0) one = found;
        std::printf("| %5zu |", links);
        print_time(found.idle_turn, 3 * one.idle_turn, "");
        print_time(found.one_way, 1.2 * one.one_way, "");
        print_time(found.open, 1e6 * static_cast<double>(links), "");
        print_time(found.region, 1.5 * one.region, "");
        print_time(found.park, 2 * one.park, "\n");
        std::fflush(stdout);
    }
}

/// Both ends of every link are in this process.
std::size_t raise_descriptors() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return static_cast<std::size_t>(limit.rlim_max);
}

/// As many links as there are descriptors for.
std::vector<std::size_t> possible(std::vector<std::size_t> counts, std::size_t descriptors,
                                  std::size_t each) {
    constexpr std::size_t others = 64;
    const std::size_t most = descriptors > others + each ? (descriptors - others) / each : 1;
    for (std::size_t& links : counts) links = std::min(links, most);
    return counts;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view only = argc > 1 ? argv[1] : "";
    std::vector<std::size_t> counts;
    for (int n = 2; n < argc; ++n) counts.push_back(std::strtoul(argv[n], nullptr, 10));
    if ((only != "" && only != "shm" && only != "tcp") || std::count(counts.begin(), counts.end(), 0u) != 0) {
        std::fprintf(stderr, "usage: many_links [shm|tcp [LINKS...]]\n");
        return 2;
    }
    if (counts.empty()) counts = {1, 100, 1000, 5000};
    const std::size_t descriptors = raise_descriptors();
    if (only != "tcp")
        table<rc::shm>("shm", possible(counts, descriptors, 4),
                       "shm://many-links-" + std::to_string(::getpid()));
#if RDMACORO_WITH_TCP
    if (only != "shm") table<rc::tcp>("tcp", possible(counts, descriptors, 2), "tcp://127.0.0.1:0");
#endif
}
