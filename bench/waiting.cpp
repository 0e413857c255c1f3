// waiting: what a scheduler costs while it waits, and what two of them cost each other on one core.
//
// First a coroutine that sleeps for some milliseconds at a time, beside a listener over shared memory: the process's user and system
// time, as a part of one core. Then a child process that answers messages of 8 bytes over shared memory while both processes are kept
// on one CPU: the median time of a round trip. At last, with a child process on another CPU: a program that computes on this process's CPU,
// and answers after 20 us, and each fiftieth time after 1.5 ms: the median time of a round trip beside it; and a coroutine that
// sleeps for 4 ms and waits for an answer, in turns: the process's time, as a part of one core, and the median time of a round trip.

#include "common/child.hpp"
#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/shm.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;
using seconds = std::chrono::duration<double>;

constexpr const char* strategies[] = {"adaptive", "parks at once", "yield"};
enum class strategy { adaptive, parks, yield };

double processor_seconds() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto of = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return of(used.ru_utime) + of(used.ru_stime);
}

/// Calls `use` with a scheduler.
template <class Use>
void with_scheduler(strategy kind, Use use) {
    if (kind == strategy::yield) {
        rc::scheduler on{rc::idle::yield{}};
        use(on);
    } else if (kind == strategy::parks) {
        rc::scheduler on{rc::idle::adaptive{0ms, 0ms}};
        use(on);
    } else {
        rc::scheduler on;
        use(on);
    }
}

std::string own_url() { return "shm://waiting-" + std::to_string(::getpid()); }

rc::task<> tick(std::chrono::milliseconds each, seconds whole) {
    const auto listening = co_await rc::listen<rc::shm>(own_url());
    const auto end = std::chrono::steady_clock::now() + whole;
    while (std::chrono::steady_clock::now() < end) co_await rc::sleep_for(each);
}

void tickers(seconds each_one, report& out) {
    out.section("a coroutine that sleeps, in percent of a core");
    for (const auto each : {1ms, 2ms, 4ms, 10ms, 20ms, 100ms}) {
        for (const strategy kind : {strategy::adaptive, strategy::parks}) {
            double percent = 0;
            with_scheduler(kind, [&](rc::scheduler& on) {
                on.run(tick(each, each_one / 10));  // it learns
                const double before = processor_seconds();
                on.run(tick(each, each_one));
                percent = (processor_seconds() - before) / each_one.count() * 100;
            });
            const char* const name = strategies[static_cast<int>(kind)];
            const std::string sleep = std::to_string(each.count()) + " ms";
            out.row({name, sleep, number_text(percent, 2) + " %"}, {{"test", "ticker"},
                                                                    {"idle", name},
                                                                    {"sleep_ms", each.count()},
                                                                    {"percent_of_a_core", rounded(percent)}});
        }
    }
}

using delay = std::chrono::microseconds (*)(std::uint64_t);
std::chrono::microseconds none(std::uint64_t) { return 0us; }
std::chrono::microseconds fiftieth_late(std::uint64_t number) { return number % 50 == 49 ? 1500us : 20us; }
template <int Microseconds>
std::chrono::microseconds always(std::uint64_t) {
    return std::chrono::microseconds(Microseconds);
}

/// Computes for the time of `late` before each answer.
rc::task<> answer(std::string url, delay late) {
    auto listening = co_await rc::listen<rc::shm>(url);
    auto peer = co_await listening.accept();
    std::uint64_t number = 0;
    while (co_await rc::as_result(peer.recv(rc::bytes_of(number)))) {
        const auto until = std::chrono::steady_clock::now() + late(number);
        while (late != none && std::chrono::steady_clock::now() < until) {}
        co_await peer.send(rc::bytes_of(number));
    }
}

/// The cost of asking.
struct asked_for {
    double microseconds = 0;  ///< the median round trip
    double percent = 0;       ///< of a core
};

rc::task<> ask(std::string url, seconds whole, std::chrono::milliseconds pause, asked_for& took) {
    auto peer = co_await rc::connect<rc::shm>(url, rc::connect_options{.retry_for = 10s});
    std::uint64_t number = 0;
    const auto exchange = [&](seconds limit) -> rc::task<double> {
        std::vector<double> trips;
        const auto begin = std::chrono::steady_clock::now();
        for (auto now = begin; now - begin < limit;) {
            if (pause != 0ms) co_await rc::sleep_for(pause);
            const auto before = std::chrono::steady_clock::now();
            co_await peer.send(rc::bytes_of(number));
            co_await peer.recv(rc::bytes_of(number));
            now = std::chrono::steady_clock::now();
            trips.push_back(seconds(now - before).count() * 1e6);
            ++number;
        }
        co_return median(trips);
    };
    static_cast<void>(co_await exchange(whole / 10));  // both learn
    const double before = processor_seconds();
    took.microseconds = co_await exchange(whole);
    took.percent = (processor_seconds() - before) / whole.count() * 100;
    co_await peer.close();
}

/// Round trips to a child process on CPU `other`, which answers `late`, with pauses between them.
asked_for round_trips(strategy kind, seconds each_one, strategy of_child, int other, delay late,
                      std::chrono::milliseconds pause = 0ms) {
    const std::string url = own_url();
    child answering(other,
                    [&] { with_scheduler(of_child, [&](rc::scheduler& on) { on.run(answer(url, late)); }); });
    asked_for took;
    with_scheduler(kind, [&](rc::scheduler& on) { on.run(ask(url, each_one, pause, took)); });
    if (answering.end(false) != 0) throw run_error("the other process failed");
    return took;
}

void one_core(seconds each_one, int cpu, report& out) {
    out.section("8 bytes over shm and back, both processes on CPU " + std::to_string(cpu));
    pingpong::pin_to(cpu);
    for (const strategy kind : {strategy::adaptive, strategy::parks, strategy::yield}) {
        const double microseconds = round_trips(kind, each_one, kind, cpu, none).microseconds;
        const char* const name = strategies[static_cast<int>(kind)];
        out.row({name, "", number_text(microseconds, 1) + " us"},
                {{"test", "one core"}, {"idle", name}, {"round_trip_us", rounded(microseconds)}});
    }
}

void beside_a_computation(seconds each_one, int cpu, int other, report& out) {
    out.section("the same to CPU " + std::to_string(other) +
                ", answers after 20 us, each fiftieth after 1.5 ms, "
                "beside a program that computes on CPU " +
                std::to_string(cpu));
    pingpong::pin_to(cpu);
    child computing([] {
        for (volatile unsigned n = 0;;) n = n + 1;
    });
    for (const strategy kind : {strategy::adaptive, strategy::parks, strategy::yield}) {
        const double microseconds =
            round_trips(kind, each_one, strategy::yield, other, fiftieth_late).microseconds;
        const char* const name = strategies[static_cast<int>(kind)];
        out.row({name, "", number_text(microseconds, 1) + " us"},
                {{"test", "beside a computation"}, {"idle", name}, {"round_trip_us", rounded(microseconds)}});
    }
}

void asks_after_sleeps(seconds each_one, int cpu, int other, report& out) {
    out.section("a coroutine that sleeps for 4 ms and waits for an answer of CPU " + std::to_string(other) +
                ", in turns");
    pingpong::pin_to(cpu);
    struct answered {
        int after;
        delay late;
    };
    static constexpr answered all[] = {{10, always<10>},   {50, always<50>},   {100, always<100>},
                                       {200, always<200>}, {400, always<400>}, {600, always<600>},
                                       {900, always<900>}};
    for (const answered& one : all) {
        for (const strategy kind : {strategy::adaptive, strategy::parks}) {
            const asked_for took = round_trips(kind, each_one, strategy::yield, other, one.late, 4ms);
            const char* const name = strategies[static_cast<int>(kind)];
            out.row({name, std::to_string(one.after) + " us",
                     number_text(took.percent, 1) + " %, " + number_text(took.microseconds, 1) + " us"},
                    {{"test", "asks after sleeps"},
                     {"idle", name},
                     {"answer_us", one.after},
                     {"percent_of_a_core", rounded(took.percent)},
                     {"round_trip_us", rounded(took.microseconds)}});
        }
    }
}

void run(int argc, char** argv) {
    settings asked;
    asked.name = "waiting";
    double each_one = 2;
    const std::vector<int> cpus = pingpong::usable_cpus();
    int cpu = cpus.front();
    options app("Measures what a waiting program costs, and a round trip between two processes on one core.");
    app.add("--seconds", each_one, "how long each row is measured").within(0.05, 3600.0).show_default();
    app.add("--cpu", cpu, "the CPU of all but the first part").show_default();
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.cpus = pingpong::parse_cpus(std::to_string(cpu));
    asked.idle = idle_kind::adaptive;
    report out(asked, {{"idle strategy", 14}, {"sleeps", 7}, {"", 18}});
    tickers(seconds(each_one), out);
    one_core(seconds(each_one), cpu, out);
    // The others need a second CPU.
    const auto other = std::find_if(cpus.begin(), cpus.end(), [cpu](int one) { return one != cpu; });
    if (other != cpus.end()) {
        beside_a_computation(seconds(each_one), cpu, *other, out);
        asks_after_sleeps(seconds(each_one), cpu, *other, out);
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("waiting", argc, argv, run); }
