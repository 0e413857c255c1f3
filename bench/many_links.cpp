// many_links: what a link costs beside many idle ones, over shared memory and TCP.
//
// One scheduler holds both ends of N links, each an endpoint; all are idle but one. Printed for each N: the time to open all;
// of a turn that finds nothing; of 8 bytes one way over the last link, both ends on the one thread; of registering memory and ending
// that; and the processor's time of a sleep: parking, and waking for a timer. Goals are ratios to the figures of the first number of
// links that is asked for, by default one.
// A link takes four descriptors of the process over shared memory, two over TCP: where RLIMIT_NOFILE does not allow so many links
// there are fewer.

#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/rdmacoro.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;
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
        if (!open) throw run_error("no region");
    }
    co_return;
}

rc::task<> pause() { co_await rc::sleep_for(50ms); }

rc::task<> sleeps(std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) co_await rc::sleep_for(200us);
}

/// The median of five runs of `run`, by `clock`, divided by `count`.
template <class Run>
double time_of_one(std::size_t count, double (*clock)(), Run run) {
    std::vector<double> taken;
    for (int n = 0; n < 5; ++n) {
        const double begin = clock();
        run();
        taken.push_back((clock() - begin) / static_cast<double>(count));
    }
    return median(taken);
}

template <class T>
figures measure(std::size_t links, std::size_t repeat, const std::string& address) {
    figures found;
    {
        rc::scheduler on{rc::idle::spin{}};
        all_pairs<T> pairs;
        const double begin = wall_ns();
        on.run(open_all(pairs, links, address));
        found.open = wall_ns() - begin;
        on.run(pause());  // links that have nothing to say become cold
        const std::size_t tenth = repeat / 10;
        const std::size_t count = links > 1000 ? tenth : repeat;
        found.idle_turn = time_of_one(count, wall_ns, [&] { on.run(turns(count)); });
        found.one_way = time_of_one(count, wall_ns, [&] { on.run(bounce(*pairs.back(), count)); });
        found.region = time_of_one(tenth, wall_ns, [&] { on.run(regions<T>(tenth)); });
    }
    {
        rc::scheduler on{rc::idle::adaptive(rc::duration::zero(), rc::duration::zero())};
        all_pairs<T> pairs;
        on.run(open_all(pairs, links, address));
        on.run(pause());
        on.run(sleeps(100));
        constexpr std::size_t count = 300;
        const std::uint64_t before = on.parks();
        found.park = time_of_one(count, processor_ns, [&] { on.run(sleeps(count)); });
        if (on.parks() - before < 4 * count) throw run_error("it did not park");
    }
    return found;
}

/// As many links as there are descriptors for.
std::size_t possible(std::size_t links, std::size_t descriptors, std::size_t each) {
    constexpr std::size_t others = 64;
    return std::min(links, descriptors > others + each ? (descriptors - others) / each : 1);
}

/// `descriptors`: of this process; a link takes `each`.
template <class T>
void table(const std::string& address, const std::vector<unsigned>& counts, std::size_t repeat,
           std::size_t descriptors, std::size_t each, report& out) {
    const std::string transport(T::name);
    out.section("over " + transport);
    figures first;
    for (const std::size_t asked : counts) {
        const std::size_t links = possible(asked, descriptors, each);
        figures found;
        try {
            found = measure<T>(links, repeat, address);
        } catch (const std::exception& error) {
            throw run_error(transport + ", " + std::to_string(links) + (links == 1 ? " link: " : " links: ") +
                            error.what());
        }
        if (first.open == 0) first = found;
        const figures goal{1e6 * static_cast<double>(links), 3 * first.idle_turn, 1.2 * first.one_way,
                           1.5 * first.region, 2 * first.park};
        const auto cell = [&](double figures::* of) {
            return time_text(found.*of) + " (" + time_text(goal.*of) + ")";
        };
        out.row({std::to_string(links), cell(&figures::idle_turn), cell(&figures::one_way),
                 cell(&figures::open), cell(&figures::region), cell(&figures::park)},
                {{"transport", transport},
                 {"links", links},
                 {"links_asked", asked},
                 {"idle_turn_ns", rounded(found.idle_turn)},
                 {"idle_turn_goal_ns", rounded(goal.idle_turn)},
                 {"one_way_ns", rounded(found.one_way)},
                 {"one_way_goal_ns", rounded(goal.one_way)},
                 {"open_ns", rounded(found.open)},
                 {"open_goal_ns", rounded(goal.open)},
                 {"region_ns", rounded(found.region)},
                 {"region_goal_ns", rounded(goal.region)},
                 {"park_ns", rounded(found.park)},
                 {"park_goal_ns", rounded(goal.park)}});
        if (links != asked)
            out.note("RLIMIT_NOFILE allows no " + std::to_string(asked) + " links of " +
                     std::to_string(each) + " descriptors each");
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

void run(int argc, char** argv) {
    settings asked;
    asked.name = "many_links";
    std::vector<unsigned> counts{1, 100, 1000, 5000};
    unsigned repeat = 20000;
    std::string transports = "all";
    std::vector<std::string_view> known{"shm"};
#if RDMACORO_WITH_TCP
    known.push_back("tcp");
#endif
    options app("Measures what a link costs beside many idle ones.", asked.name);
    app.add("--transport", transports, "over these: shm, tcp where it was built, or all")
        .type_name("NAME,...")
        .show_default();
    app.add("--links", counts, "numbers of links; the goals are ratios to the first")
        .between(1, 1'000'000)
        .separated_by(',')
        .show_default();
    app.add("--repeat", repeat,
            "turns and messages of each run; a tenth with more than 1,000 links, and of regions always")
        .between(10, 1'000'000'000)
        .show_default();
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.repeat = repeat;
    asked.cpus = pingpong::usable_cpus();
    const std::vector<std::size_t> chosen = parse_names("--transport", transports, known);
    const std::size_t descriptors = raise_descriptors();
    report out(asked, {{"links", 6},
                       {"idle turn (goal)", 21},
                       {"8 B one way (goal)", 21},
                       {"opening all (goal)", 21},
                       {"region's life (goal)", 21},
                       {"park + wake (goal)", 21}});
    for (const std::size_t which : chosen) {
        if (known[which] == "shm")
            table<rc::shm>("shm://many-links-" + std::to_string(::getpid()), counts, repeat, descriptors, 4,
                           out);
#if RDMACORO_WITH_TCP
        else
            table<rc::tcp>("tcp://127.0.0.1:0", counts, repeat, descriptors, 2, out);
#endif
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("many_links", argc, argv, run); }
