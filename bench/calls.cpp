// calls: what a call costs beside the two messages that it is made of.
//
// A child process on another CPU answers. In turns: round trips of 8-byte messages, matched by tag, and calls with an argument and a
// result of 8 bytes; then 64 of each under way at a time, the messages with a tag for each exchange.

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
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;
using seconds = std::chrono::duration<double>;
using steady = std::chrono::steady_clock;

struct plus {
    static constexpr rc::method<"plus.one", std::uint64_t(std::uint64_t)> one{};
};

constexpr std::size_t window = 64;
constexpr rc::tag_type ask_tag = 1;
constexpr rc::tag_type end_tag = 2;
constexpr rc::tag_type many_tag = 3;
constexpr rc::tag_type first_of_many = 100;

/// Answers messages and calls until it is told to end.
template <class T>
rc::task<> answer(std::string url) {
    auto listening = co_await rc::listen<T>(url);
    auto peer = co_await listening.accept();
    rc::service adding;
    adding.on(plus::one,
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
        std::uint64_t end = 0;
        static_cast<void>(co_await rc::as_result(peer.recv(rc::bytes_of(end), end_tag)));
        answers.request_stop();
        co_await answers.join();
    }
}

/// Nanoseconds for each of `rounds` exchanges in a row, as the median of batches.
template <class Exchange>
rc::task<std::vector<double>> one_at_a_time(std::size_t rounds, Exchange exchange) {
    std::vector<double> all;
    all.reserve(rounds);
    for (std::size_t n = 0; n < rounds; ++n) {
        const auto before = steady::now();
        co_await exchange(n);
        all.push_back(seconds(steady::now() - before).count() * 1e9);
    }
    co_return all;
}

double at(std::vector<double> sorted, double part) {
    std::ranges::sort(sorted);
    return sorted[std::min(sorted.size() - 1,
                           static_cast<std::size_t>(part * static_cast<double>(sorted.size())))];
}

template <class T>
rc::task<> measure(std::string url, std::size_t rounds, report& out) {
    auto peer = co_await rc::connect<T>(url, rc::connect_options{.retry_for = 10s});
    {
        rc::calls<T> calling(peer);
        std::vector<double> messages;
        std::vector<double> calls;
        const auto by_message = [&](std::size_t n) -> rc::task<> {
            std::uint64_t number = n;
            co_await peer.send(rc::bytes_of(number), ask_tag);
            co_await peer.recv(rc::bytes_of(number), ask_tag);
        };
        const auto by_call = [&](std::size_t n) -> rc::task<> {
            const std::uint64_t got = co_await calling.call(plus::one, n);
            if (got != n + 1) throw run_error("a wrong answer");
        };
        static_cast<void>(co_await one_at_a_time(rounds / 10, by_message));
        static_cast<void>(co_await one_at_a_time(rounds / 10, by_call));
        for (int turn = 0; turn < 10; ++turn) {
            for (const double one : co_await one_at_a_time(rounds / 10, by_message)) messages.push_back(one);
            for (const double one : co_await one_at_a_time(rounds / 10, by_call)) calls.push_back(one);
        }
        out.section("8 bytes there and back over " + url.substr(0, url.find(':')));
        const double floor = median(messages);
        for (const auto& [name, all] : {std::pair("two messages", &messages), std::pair("a call", &calls)}) {
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

        const auto keep_busy = [&](auto exchange) -> rc::task<double> {
            std::size_t left = rounds;
            const auto before = steady::now();
            rc::task_group some;
            for (std::size_t n = 0; n < window; ++n) {
                some.spawn([&, n]() -> rc::task<> {
                    while (left != 0) {
                        --left;
                        co_await exchange(left, n);
                    }
                });
            }
            co_await some.join();
            co_return static_cast<double>(rounds) / seconds(steady::now() - before).count() / 1e6;
        };
        const auto one_call = [&](std::size_t n, std::size_t) { return by_call(n); };
        const auto one_exchange = [&](std::size_t n, std::size_t which) -> rc::task<> {
            std::uint64_t number = n;
            co_await peer.send(rc::bytes_of(number), first_of_many + which);
            co_await peer.recv(rc::bytes_of(number), first_of_many + which);
        };
        static_cast<void>(co_await keep_busy(one_call));
        const double rate = co_await keep_busy(one_call);
        const std::uint64_t begin = 0;
        co_await peer.send(rc::bytes_of(begin), many_tag);
        static_cast<void>(co_await keep_busy(one_exchange));
        const double exchanges = co_await keep_busy(one_exchange);
        out.section(std::to_string(window) + " under way");
        for (const auto& [name, each] : {std::pair("two messages", exchanges), std::pair("a call", rate)}) {
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

template <class T>
void run_over(const std::string& url, std::size_t rounds, const settings& asked, report& out) {
    const idle_kind idle = asked.idle;
    child answering([&] {
        pingpong::pin_to(asked.cpus.back());
        rc::scheduler on{pingpong::chosen_idle(&idle)};
        on.run(answer<T>(url));
    });
    pingpong::pin_to(asked.cpus.front());
    rc::scheduler on{pingpong::chosen_idle(&idle)};
    on.run(measure<T>(url, rounds, out));
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
    CLI::App app("Measures what a call costs beside the two messages that it is made of.");
    app.add_option("url", urls, "where the other process listens: shm:// or tcp://")->capture_default_str();
    app.add_option("--rounds", rounds, "calls, and exchanges of messages, over each")
        ->check(CLI::Range(100U, 1000000000U))
        ->capture_default_str();
    app.add_option("--cpus", cpus, "a CPU, or one for each process; by default two that may be used");
    bool adaptive = false;
    app.add_flag("--adaptive", adaptive,
                 "spin, yield, then sleep when nothing moves, as schedulers do by default");
    app.add_option("--json", asked.json, "a file for the results; - for standard output");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& answered) {
        app.exit(answered);
        return;
    } catch (const CLI::Error& wrong) {
        throw usage_error(std::string(wrong.what()) + "; --help lists the options");
    }
    asked.cpus = cpus.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(cpus);
    asked.idle = adaptive ? idle_kind::adaptive : idle_kind::spin;
    report out(asked, {{"by", 14}, {"", 12}, {"", 8}, {"", 14}, {"", 16}, {"", 8}});
    for (const std::string& url : urls) {
        if (url.starts_with("shm://")) {
            run_over<rc::shm>(url, rounds, asked, out);
#if RDMACORO_WITH_TCP
        } else if (url.starts_with("tcp://")) {
            run_over<rc::tcp>(url, rounds, asked, out);
#endif
        } else {
            throw usage_error("no transport here has the URL " + url);
        }
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("calls", argc, argv, run); }
