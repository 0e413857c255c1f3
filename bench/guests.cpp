// guests: what a round trip costs where a scheduler is a guest of another loop, beside its own loop with the same idle strategy.
//
// A child process on another CPU answers messages of 8 bytes on a connection for each loop: the scheduler's own, a bare one of epoll, and an
// asio::io_context. The parent exchanges messages in each loop in turn, round by round, with each idle strategy; so does the child, in its
// own loop. A row is the median of its rounds, and the best of them; the ratios are to the own loop's: the median of those of the
// rounds, and that of the best.

#include "common/child.hpp"
#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_ASIO
#include <rdmacoro/adapters/asio.hpp>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;
using seconds = std::chrono::duration<double>;
using steady = std::chrono::steady_clock;

struct asked_for {
    seconds each_round{0.02};
    int rounds = 40;
    std::vector<int> cpus;
};

/// Another loop, or the scheduler's own: runs a task to its end.
class loop {
public:
    explicit loop(std::string named) : name(std::move(named)) {}
    loop(const loop&) = delete;
    loop& operator=(const loop&) = delete;
    virtual ~loop() = default;
    virtual void drive(rc::task<> what) = 0;

    const std::string name;
};

template <class Idle>
class own_loop final : public loop {
public:
    explicit own_loop(const Idle& strategy) : loop("own"), on_(strategy) {}
    void drive(rc::task<> what) override { on_.run(std::move(what)); }

private:
    rc::scheduler on_;
};

/// Turns as the strategy says, and looks at its own descriptors now and then.
template <class Idle>
class epoll_loop final : public loop {
public:
    explicit epoll_loop(const Idle& strategy)
        : loop("epoll"), idle_(strategy), on_(strategy), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, on_.descriptor(), &wanted) != 0)
            throw run_error(std::string("epoll: ") + std::strerror(errno));
    }
    ~epoll_loop() override { ::close(epoll_); }

    void drive(rc::task<> what) override {
        auto running = on_.start(std::move(what));
        bool idling = false;
        for (int idle_polls = 0; !running.done();) {
            if (on_.poll()) {
                if (std::exchange(idling, false)) idle_.progress();
                continue;
            }
            idling = true;
            switch (idle_.next(on_.time())) {
                case rc::idle::action::spin:
                    if (++idle_polls % polls_between_looks == 0) look(0ns);
                    break;
                case rc::idle::action::yield: ::sched_yield(); break;
                case rc::idle::action::park: look(on_.prepare_to_wait()); break;
            }
        }
        running.get();
    }

private:
    static constexpr int polls_between_looks = 256;

    void look(rc::duration limit) {
        const auto whole = std::chrono::ceil<std::chrono::milliseconds>(std::min<rc::duration>(limit, 1h));
        epoll_event came{};
        static_cast<void>(::epoll_wait(epoll_, &came, 1, static_cast<int>(whole.count())));
    }

    Idle idle_;
    rc::scheduler on_;
    int epoll_;
};

#if RDMACORO_WITH_ASIO
template <class Idle>
class asio_loop final : public loop {
public:
    explicit asio_loop(const Idle& strategy) : loop("Asio"), guest_(context_, strategy) {}

    void drive(rc::task<> what) override {
        std::exception_ptr failure;
        guest_.run(std::move(what), [&failure](std::exception_ptr why) { failure = std::move(why); });
        context_.restart();
        context_.run();
        if (failure) std::rethrow_exception(failure);
    }

private:
    asio::io_context context_{1};
    rc::asio_guest guest_;
};
#endif

template <class T>
rc::task<> echo(rc::endpoint<T> peer) {
    std::uint64_t number = 0;
    while (co_await rc::as_result(peer.recv(rc::bytes_of(number)))) co_await peer.send(rc::bytes_of(number));
}
/// Answers on `clients` connections.
template <class T>
rc::task<> serve(std::string url, std::size_t clients) {
    auto listening = co_await rc::listen<T>(url);
    rc::task_group answers;
    for (std::size_t n = 0; n < clients; ++n) {
        auto peer = co_await listening.accept();
        answers.spawn(echo<T>, std::move(peer));
    }
    co_await answers.join();
}

template <class T>
using place_of = std::optional<rc::endpoint<T>>;

template <class T>
rc::task<> join(std::string url, place_of<T>& place) {
    auto peer = co_await rc::connect<T>(url, rc::connect_options{.retry_for = 10s});
    place.emplace(std::move(peer));
}
template <class T>
rc::task<> leave(place_of<T>& place) {
    co_await place->close();
    place.reset();
}
/// Round trips for so long; gives the median of the means of 16 each, in nanoseconds, which says nothing of the times in which
/// the process did not run.
template <class T>
rc::task<> exchange(rc::endpoint<T>& peer, seconds limit, std::vector<double>& batches, double& ns) {
    constexpr int each = 16;
    std::uint64_t number = 0;
    batches.clear();
    const auto begin = steady::now();
    for (auto now = begin; now - begin < limit;) {
        const auto before = now;
        for (int n = 0; n < each; ++n) {
            co_await peer.send(rc::bytes_of(number));
            co_await peer.recv(rc::bytes_of(number));
        }
        now = steady::now();
        batches.push_back(seconds(now - before).count() * 1e9 / each);
    }
    ns = median(batches);
}

template <class T, class Idle>
void measure(const std::string& url, const Idle& strategy, const std::string& named, const asked_for& asked,
             report& out) {
    std::size_t clients = 2;
#if RDMACORO_WITH_ASIO
    ++clients;
#endif
    child answering(asked.cpus.back(), [&] {
        rc::scheduler on{strategy};
        on.run(serve<T>(url, clients));
    });
    pingpong::pin_to(asked.cpus.front());
    std::vector<std::unique_ptr<loop>> loops;
    loops.push_back(std::make_unique<own_loop<Idle>>(strategy));
    loops.push_back(std::make_unique<epoll_loop<Idle>>(strategy));
#if RDMACORO_WITH_ASIO
    loops.push_back(std::make_unique<asio_loop<Idle>>(strategy));
#endif
    std::vector<place_of<T>> peers(loops.size());
    std::vector<std::vector<double>> times(loops.size());
    std::vector<double> batches;
    batches.reserve(1 << 20);
    for (std::size_t n = 0; n < loops.size(); ++n) loops[n]->drive(join<T>(url, peers[n]));
    for (int round = -1; round < asked.rounds; ++round) {
        for (std::size_t n = 0; n < loops.size(); ++n) {
            double ns = 0;
            loops[n]->drive(exchange<T>(*peers[n], asked.each_round, batches, ns));
            if (round >= 0) times[n].push_back(ns);  // the first is for the caches
        }
    }
    for (std::size_t n = 0; n < loops.size(); ++n) loops[n]->drive(leave<T>(peers[n]));
    if (answering.end(false) != 0) throw run_error("the other process failed");

    const auto best = [](const std::vector<double>& all) { return *std::ranges::min_element(all); };
    const std::string transport(T::name);
    out.section("8 bytes over " + transport + " and back, idle strategy " + named);
    for (std::size_t n = 0; n < loops.size(); ++n) {
        const double middle = median(times[n]);
        std::vector<double> ratios;  // of rounds: what the machine does meanwhile meets both
        for (std::size_t round = 0; round < times[n].size(); ++round)
            ratios.push_back(times[n][round] / times[0][round]);
        const double ratio = median(ratios);
        const double of_best = best(times[n]) / best(times[0]);
        out.row({loops[n]->name, time_text(middle), number_text(ratio, 3), time_text(best(times[n])),
                 number_text(of_best, 3)},
                {{"transport", transport},
                 {"idle", named},
                 {"loop", loops[n]->name},
                 {"median_ns", rounded(middle)},
                 {"ratio", rounded(ratio)},
                 {"best_ns", rounded(best(times[n]))},
                 {"ratio_of_best", rounded(of_best)}});
    }
}

template <class T>
void measure_all(const std::string& url, const asked_for& asked, report& out) {
    measure<T>(url, rc::idle::spin{}, "spin", asked, out);
    measure<T>(url, rc::idle::adaptive{}, "adaptive", asked, out);
    measure<T>(url, rc::idle::adaptive{0ms, 0ms}, "parks at once", asked, out);
}

void run(int argc, char** argv) {
    settings settings;
    settings.name = "guests";
    asked_for asked;
    double each_round = asked.each_round.count();
    std::string cpus;
    std::vector<std::string> urls{"shm://guests-" + std::to_string(::getpid())};
#if RDMACORO_WITH_TCP
    urls.emplace_back("tcp://127.0.0.1:7483");
#endif
    options app("Measures round trips where a scheduler is a guest of another loop, beside its own loop.");
    app.add("url", urls, "where the other process listens: shm:// or tcp://").show_default();
    app.add("--seconds", each_round, "of each loop in each round").within(0.0001, 60.0).show_default();
    app.add("--rounds", asked.rounds, "rounds").between(1, 1000000).show_default();
    app.add("--cpus", cpus, "a CPU for each process; by default two that may be used");
    app.add("--json", settings.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.each_round = seconds(each_round);
    asked.cpus = cpus.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(cpus);
    settings.cpus = {asked.cpus.front(), asked.cpus.back()};
    settings.idle = idle_kind::spin;
    report out(settings, {{"loop", 8}, {"median", 10}, {"ratio", 7}, {"best", 10}, {"ratio", 7}});
    for (const std::string& url : urls) {
        if (url.starts_with("shm://")) {
            measure_all<rc::shm>(url, asked, out);
#if RDMACORO_WITH_TCP
        } else if (url.starts_with("tcp://")) {
            measure_all<rc::tcp>(url, asked, out);
#endif
        } else {
            throw usage_error("no transport here has the URL " + url);
        }
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("guests", argc, argv, run); }
