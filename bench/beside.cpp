// beside: what 8 bytes over shared memory cost beside a link of another transport, and what that link's own messages cost.
//
// Two processes on two CPUs, one scheduler each, which spin. Both ends bounce 8 bytes over shared memory; there is also a link of
// another transport, idle or with 1,000 requests a second, each answered at once. Every arrangement is a pair of processes of
// its own; the arrangements are taken in turns, and the figures are medians over the rounds. Goals: 1.15 times alone beside an
// idle link, 1.3 times beside a busy one, whose own latency grows by 2 us at most.

#include "common/pair.hpp"
#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/text.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/shm.hpp>
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
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;

constexpr std::size_t rounds_of_a_sample = 2000;
constexpr double idle_goal = 1.15;       // of 8 bytes over shm, alone
constexpr double busy_goal = 1.3;        // likewise
constexpr double longer_goal_ns = 2000;  // of the other link's own 8 bytes

enum class traffic { none, idle, busy };

/// What the two processes have.
struct arrangement {
    const char* name;
    bool shm;
    traffic beside;
};
constexpr arrangement alone{"shm alone", true, traffic::none};
constexpr arrangement beside_idle{"shm beside it, idle", true, traffic::idle};
constexpr arrangement busy_alone{"its own messages alone", false, traffic::busy};
constexpr arrangement beside_busy{"shm beside it, busy", true, traffic::busy};

/// Nanoseconds; 0: there was none.
struct figures {
    double shm = 0;    ///< 8 bytes one way
    double other = 0;  ///< likewise, over the other link
};

double now_ns() {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// Answers until it gets 0.
template <class T>
rc::task<> answer(rc::endpoint<T>& over) {
    for (std::uint64_t value = 1; value != 0;) {
        co_await over.recv(rc::bytes_of(value), 1);
        if (value != 0) co_await over.send(rc::bytes_of(value), 1);
    }
}

template <class T>
rc::task<> bounce(rc::endpoint<T>& over, std::size_t times) {
    for (std::uint64_t n = 1; n <= times; ++n) {
        std::uint64_t value = n;
        co_await over.send(rc::bytes_of(value), 1);
        co_await over.recv(rc::bytes_of(value), 1);
        if (value != n) throw run_error("an answer was another's");
    }
}

template <class T>
rc::task<> end(rc::endpoint<T>& over) {
    std::uint64_t last = 0;
    co_await over.send(rc::bytes_of(last), 1);
}

/// One request each millisecond until `stop`.
template <class T>
rc::task<> thousand_a_second(rc::endpoint<T>& over, const bool& stop, std::vector<double>& one_way) {
    while (!stop) {
        co_await rc::sleep_for(1ms);
        const double begin = now_ns();
        co_await bounce(over, 1);
        one_way.push_back((now_ns() - begin) / 2);
    }
    co_await end(over);
}

/// Up to five samples are not counted. Goes on until `requests`, unless it is null, has one.
rc::task<> measure_shm(rc::endpoint<rc::shm>& over, std::size_t samples, const std::vector<double>* requests,
                       std::vector<double>& one_way) {
    co_await bounce(over, std::min<std::size_t>(5, samples) * rounds_of_a_sample);
    while (one_way.size() < samples || (requests != nullptr && requests->empty())) {
        const double begin = now_ns();
        co_await bounce(over, rounds_of_a_sample);
        one_way.push_back((now_ns() - begin) / (2 * rounds_of_a_sample));
        watch::reached(one_way.size());
    }
    co_await end(over);
}

/// Only the other link, as busy: about as long as `measure_shm`.
rc::task<> measure_time(std::size_t samples) {
    for (std::size_t n = 0; n < samples; ++n) {
        co_await rc::sleep_for(3ms);
        watch::reached(n + 1);
    }
}

/// The child: accepts and answers.
template <class T>
rc::task<> answering_side(arrangement what, std::string url,
                          const std::function<void(const std::string&)>& listening) {
    rc::task_group links;
    const auto serve = []<class U>(rc::listener<U> listener) -> rc::task<> {
        auto over = co_await listener.accept();
        co_await answer(over);
        co_await over.close();
    };
    std::string addresses;
    if (what.shm) {
        auto listener = co_await rc::listen<rc::shm>("shm://beside-" + std::to_string(::getpid()));
        pingpong::append_item(addresses, listener.address(), ",");
        links.spawn(serve, std::move(listener));
    }
    if (what.beside != traffic::none) {
        auto listener = co_await rc::listen<T>(url);
        pingpong::append_item(addresses, listener.address(), ",");
        links.spawn(serve, std::move(listener));
    }
    listening(addresses);
    co_await links.join();
}

template <class T>
rc::task<figures> asking_side(arrangement what, std::size_t samples, std::string addresses) {
    const std::vector<std::string> listening = pingpong::split_at_commas(addresses);
    std::vector<double> shm;
    std::vector<double> other;
    bool stop = false;
    watch::expect(what.name, samples);
    if (what.beside == traffic::none) {
        auto over = co_await rc::connect<rc::shm>(listening.front());
        co_await measure_shm(over, samples, nullptr, shm);
        co_await over.close();
        co_return figures{median(shm), 0};
    }
    rc::endpoint<rc::shm> near;
    if (what.shm) near = co_await rc::connect<rc::shm>(listening.front());
    auto over = co_await rc::connect<T>(listening.back());
    co_await bounce(over, 100);
    co_await rc::sleep_for(20ms);
    const bool busy = what.beside == traffic::busy;
    rc::task_group links;
    if (busy) links.spawn(thousand_a_second<T>, std::ref(over), std::cref(stop), std::ref(other));
    if (what.shm) {
        co_await measure_shm(near, samples, busy ? &other : nullptr, shm);
    } else {
        co_await measure_time(samples);
    }
    stop = true;
    co_await links.join();
    if (!busy) co_await end(over);
    if (what.shm) co_await near.close();
    co_await over.close();
    co_return figures{what.shm ? median(shm) : 0, busy ? median(other) : 0};
}

template <class T>
figures measure(const settings& asked, std::size_t samples, arrangement what, const std::string& url) {
    figures found;
    run_processes(
        asked, url + ", " + what.name,
        [&](const auto& listening) {
            rc::scheduler on{rc::idle::spin{}};
            on.run(answering_side<T>(what, url, listening));
        },
        [&](const std::string& addresses) {
            rc::scheduler on{rc::idle::spin{}};
            found = on.run(asking_side<T>(what, samples, addresses));
        });
    return found;
}

template <class T>
void measure_link(const settings& asked, std::size_t samples, const std::string& url, report& out) {
    std::vector<double> one, with_idle, with_busy, own, own_beside;
    for (std::uint64_t n = 0; n < asked.rounds; ++n) {
        one.push_back(measure<T>(asked, samples, alone, url).shm);
        with_idle.push_back(measure<T>(asked, samples, beside_idle, url).shm);
        own.push_back(measure<T>(asked, samples, busy_alone, url).other);
        const figures both = measure<T>(asked, samples, beside_busy, url);
        with_busy.push_back(both.shm);
        own_beside.push_back(both.other);
    }
    const double shm = median(one);
    const double idle = median(with_idle);
    const double busy = median(with_busy);
    const double other = median(own);
    const double longer = median(own_beside) - other;
    const auto ratio = [](double value, double goal) {
        return number_text(value, 2) + " x (" + number_text(goal, 2) + ")";
    };
    const std::string transport = url.substr(0, url.find(':'));
    out.row({transport, time_text(shm), time_text(idle), ratio(idle / shm, idle_goal), time_text(busy),
             ratio(busy / shm, busy_goal), time_text(other), time_text(median(own_beside)),
             number_text(longer / 1e3, 1) + " us (" + number_text(longer_goal_ns / 1e3, 1) + ")"},
            {{"transport", transport},
             {"url", url},
             {"shm_alone_ns", rounded(shm)},
             {"shm_beside_idle_ns", rounded(idle)},
             {"idle_ratio", rounded(idle / shm)},
             {"idle_ratio_goal", idle_goal},
             {"shm_beside_busy_ns", rounded(busy)},
             {"busy_ratio", rounded(busy / shm)},
             {"busy_ratio_goal", busy_goal},
             {"own_alone_ns", rounded(other)},
             {"own_beside_shm_ns", rounded(median(own_beside))},
             {"own_longer_ns", rounded(longer)},
             {"own_longer_goal_ns", longer_goal_ns}});
}

/// A transport beside shm, by the beginning of its URLs.
struct other_transport {
    std::string_view scheme;
    const char* usual_url;  ///< null: a device's address is needed
    void (*measure)(const settings& asked, std::size_t samples, const std::string& url, report& out);
};

const std::vector<other_transport>& others() {
    static const std::vector<other_transport> all{
#if RDMACORO_WITH_TCP
        {"tcp://", "tcp://127.0.0.1:0", &measure_link<rc::tcp>},
#endif
#if RDMACORO_WITH_OFI
        {"ofi+tcp://", "ofi+tcp://127.0.0.1:0", &measure_link<rc::ofi<rc::provider::tcp>>},
#endif
#if RDMACORO_WITH_VERBS
        {"verbs://", nullptr, &measure_link<rc::verbs_rc>},
#endif
    };
    return all;
}

const other_transport& transport_of(const std::string& url) {
    for (const other_transport& one : others()) {
        if (url.starts_with(one.scheme)) return one;
    }
    throw usage_error("no transport here that is measured beside shm has the URL " + url);
}

void run(int argc, char** argv) {
    settings asked;
    asked.name = "beside";
    asked.rounds = 5;
    std::uint64_t samples = 100;
    std::string cpus;
    std::vector<std::string> urls;
    for (const other_transport& one : others()) {
        if (one.usual_url != nullptr) urls.emplace_back(one.usual_url);
    }
    options app(
        "Measures 8 bytes over shared memory beside a link of another transport, and that link's own.",
        asked.name);
    app.add("url", urls,
            "where the other link listens: tcp://, ofi+tcp://, or verbs:// and the address of a device of "
            "this "
            "host, such as verbs://192.168.7.1:0")
        .show_default();
    app.add("--rounds", asked.rounds, "of which the medians are shown").between(1, 1000).show_default();
    app.add("--samples", samples, "of each arrangement in each round; one is 2,000 round trips over shm")
        .between(1, 1'000'000)
        .show_default();
    app.add("--cpus", cpus, "the asking process's and the other's, such as 0,1; by default the first two");
    app.add("--timeout", asked.timeout_seconds, "seconds without a sample that end the program; 0: none do")
        .between(0, 1'000'000)
        .show_default();
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.cpus = parse_sides(cpus, 2);
    for (const std::string& url : urls) static_cast<void>(transport_of(url));
    if (urls.empty()) throw run_error("no transport was built that is measured beside shm without a URL");
    report out(asked, {{"link", 8},
                       {"shm alone", 9},
                       {"idle", 9},
                       {"ratio (goal)", 14},
                       {"busy", 9},
                       {"ratio (goal)", 14},
                       {"own alone", 9},
                       {"own", 9},
                       {"longer (goal)", 15}});
    out.section("8 bytes over shm alone, beside a link that is idle or has 1,000 requests a second; that "
                "link's own, alone and beside shm");
    for (const std::string& url : urls) transport_of(url).measure(asked, samples, url, out);
    out.finish({{"samples", samples}});
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("beside", argc, argv, run); }
