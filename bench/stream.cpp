// stream: what a byte_stream costs above matched messages, and what Asio's loop costs above a scheduler's own.
//
// A child process answers on three connections of one transport: matched messages, a byte_stream, and matched messages for a client in
// an asio::io_context. The parent exchanges 8 bytes and 1 MB on each in turn, round by round; both spin, each on its CPU. A row is the median of
// its rounds' means, and the best of them; the ratios are to messages: of the medians, and of the best.

#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/cpus.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/service/byte_stream.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_ASIO
#include <rdmacoro/adapters/asio.hpp>

#include <asio/co_spawn.hpp>
#endif

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;
using seconds = std::chrono::duration<double>;

constexpr std::size_t sizes[] = {8, std::size_t{1} << 20};

struct asked_for {
    seconds each_round{0.05};
    int rounds = 20;
    std::vector<int> cpus;
};

template <class T>
using endpoint_of = rc::endpoint<T>;

// ---- the child

template <class T>
rc::task<> echo(endpoint_of<T> peer) {
    std::vector<std::byte> memory(sizes[1]);
    while (auto got = co_await rc::as_result(peer.recv(memory))) {
        co_await peer.send(std::span<const std::byte>(memory).first(got->bytes));
    }
}
template <class T>
rc::task<> echo_bytes(endpoint_of<T> over) {
    rc::byte_stream<T> stream(std::move(over));
    std::vector<std::byte> memory(sizes[1]);
    std::uint64_t bytes = 0;
    // The sizes of the next round come first.
    while (co_await stream.read_exactly(rc::bytes_of(bytes)) != 0) {
        std::uint64_t count = 0;
        co_await stream.read_exactly(rc::bytes_of(count));
        const auto room = std::span(memory).first(bytes);
        for (std::uint64_t n = 0; n < count; ++n) {
            co_await stream.read_exactly(room);
            co_await stream.write(room);
        }
    }
}
template <class T>
rc::task<> serve(std::string url, int pipe) {
    auto listening = co_await rc::listen<T>(url);
    const std::string where = listening.address() + "\n";
    if (::write(pipe, where.data(), where.size()) != static_cast<ssize_t>(where.size()))
        throw run_error("pipe");
    ::close(pipe);
    rc::task_group peers;
    peers.spawn(echo<T>, co_await listening.accept());
    peers.spawn(echo_bytes<T>, co_await listening.accept());
#if RDMACORO_WITH_ASIO
    peers.spawn(echo<T>, co_await listening.accept());
#endif
    co_await peers.join();
}

// ---- the parent: so many exchanges of so many bytes on each

template <class T>
rc::task<> matched(endpoint_of<T>& peer, std::span<std::byte> memory, std::uint64_t count) {
    for (std::uint64_t n = 0; n < count; ++n) {
        co_await peer.send(memory);
        co_await peer.recv(memory);
    }
}
template <class T>
rc::task<> streamed(rc::byte_stream<T>& stream, std::span<std::byte> memory, std::uint64_t count) {
    const std::uint64_t bytes = memory.size();
    co_await stream.write(rc::bytes_of(bytes));
    co_await stream.write(rc::bytes_of(count));
    for (std::uint64_t n = 0; n < count; ++n) {
        co_await stream.write(memory);
        co_await stream.read_exactly(memory);
    }
}
#if RDMACORO_WITH_ASIO
template <class T>
asio::awaitable<void> in_asio(rc::asio_guest on, endpoint_of<T>& peer, std::span<std::byte> memory,
                              std::uint64_t count) {
    for (std::uint64_t n = 0; n < count; ++n) {
        co_await on.run(peer.send(memory));
        co_await on.run(peer.recv(memory));
    }
}
template <class T>
asio::awaitable<void> in_asio_at_once(rc::asio_guest on, endpoint_of<T>& peer, std::span<std::byte> memory,
                                      std::uint64_t count) {
    co_await on.run(matched<T>(peer, memory, count));
}
#endif

/// One way of exchanging: seconds for each, of all rounds.
struct way {
    const char* name;
    std::vector<double> took{};
};

template <class T>
void compare(const char* url, const asked_for& asked, report& out) {
    int ends[2];
    if (::pipe(ends) != 0) throw run_error(std::string("pipe: ") + std::strerror(errno));
    const pid_t parent = ::getpid();
    pingpong::pin_to(asked.cpus.back());  // the child begins there
    const pid_t child = ::fork();
    if (child < 0) throw run_error(std::string("fork: ") + std::strerror(errno));
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::close(ends[0]);
        try {
            rc::scheduler on{rc::idle::spin{}};
            on.run(serve<T>(url, ends[1]));
        } catch (const std::exception& failed) {
            std::fprintf(stderr, "stream: the answering process: %s\n", failed.what());
            ::_exit(1);
        }
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string where;
    for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) where += c;
    ::close(ends[0]);
    if (where.empty()) throw run_error("the answering process did not listen");
    pingpong::pin_to(asked.cpus.front());
    {
        rc::scheduler on{rc::idle::spin{}};
        auto of_messages = on.run(rc::connect<T>(where));
        rc::byte_stream<T> of_bytes(on.run(rc::connect<T>(where)));
#if RDMACORO_WITH_ASIO
        asio::io_context context;
        rc::asio_guest guest(context, rc::idle::spin{});
        const auto in_context = [&](auto work) {
            std::exception_ptr failure;
            asio::co_spawn(context, std::move(work), [&](std::exception_ptr why) { failure = why; });
            context.restart();
            context.run();
            if (failure) std::rethrow_exception(failure);
        };
        endpoint_of<T> of_asio;
        in_context([](rc::asio_guest in, endpoint_of<T>& into, std::string at) -> asio::awaitable<void> {
            into = co_await in.run(rc::connect<T>(at));
        }(guest, of_asio, where));
#endif
        std::vector<std::byte> memory(sizes[1]);
        for (const std::size_t bytes : sizes) {
            const auto room = std::span(memory).first(bytes);
            way ways[] = {{"messages"}, {"byte_stream"}, {"Asio, each operation"}, {"Asio, one task"}};
            std::uint64_t count = 20;  // of exchanges in a round; found in the first ones, which do not count
            for (int round = -4; round < asked.rounds; ++round) {
                double longest = 0;
                for (std::size_t which = 0; which < std::size(ways); ++which) {
                    const auto began = std::chrono::steady_clock::now();
                    if (which == 0) {
                        on.run(matched<T>(of_messages, room, count));
                    } else if (which == 1) {
                        on.run(streamed<T>(of_bytes, room, count));
                    } else {
#if RDMACORO_WITH_ASIO
                        if (which == 2) {
                            in_context(in_asio<T>(guest, of_asio, room, count));
                        } else {
                            in_context(in_asio_at_once<T>(guest, of_asio, room, count));
                        }
#else
                        continue;
#endif
                    }
                    const double took = seconds(std::chrono::steady_clock::now() - began).count();
                    longest = std::max(longest, took);
                    if (round >= 0) ways[which].took.push_back(took / static_cast<double>(count));
                }
                if (round < 0) {
                    const double more = asked.each_round.count() / std::max(longest, 1e-9);
                    count = std::max<std::uint64_t>(
                        1, static_cast<std::uint64_t>(static_cast<double>(count) * more));
                }
            }
            for (way& one : ways) {
                if (one.took.empty()) continue;
                const double trip = median(one.took);
                const double best = *std::min_element(one.took.begin(), one.took.end());
                const double of_medians = trip / median(ways[0].took);
                const double of_best = best / *std::min_element(ways[0].took.begin(), ways[0].took.end());
                out.row({std::string(T::name), size_text(bytes), one.name, time_text(trip * 1e9),
                         number_text(of_medians, 3), time_text(best * 1e9), number_text(of_best, 3),
                         number_text(2 * static_cast<double>(bytes) / best * 1e-9, 3)},
                        {{"test", "stream"},
                         {"transport", T::name},
                         {"bytes", bytes},
                         {"way", one.name},
                         {"round_trip_us", rounded(trip * 1e6)},
                         {"ratio_to_messages", rounded(of_medians)},
                         {"best_round_trip_us", rounded(best * 1e6)},
                         {"ratio_of_best", rounded(of_best)}});
            }
        }
        on.run([](endpoint_of<T>& a, rc::byte_stream<T>& b) -> rc::task<> {
            co_await a.close();
            co_await b.close();
        }(of_messages, of_bytes));
#if RDMACORO_WITH_ASIO
        in_context([](rc::asio_guest in, endpoint_of<T>& it) -> asio::awaitable<void> {
            co_await in.run(it.close());
            it = {};
        }(guest, of_asio));
#endif
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) throw run_error("the answering process failed");
}

void run(int argc, char** argv) {
    settings asked;
    asked.name = "stream";
    asked_for how;
    double each_round = 0.05;
    std::string cpus;
    options app("Measures 8 bytes and 1 MB through a byte_stream, and through messages in Asio's loop, "
                "against messages "
                "in a scheduler's own loop: round trips between two processes, over shm and tcp.");
    app.add("--seconds", each_round, "how long each round of each way takes")
        .within(0.001, 60.0)
        .show_default();
    app.add("--rounds", how.rounds, "how often the ways take turns").between(1, 100000).show_default();
    app.add("--cpus", cpus, "the CPUs of the two processes, such as 0,1");
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    how.each_round = seconds(each_round);
    how.cpus = cpus.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(cpus);
    if (how.cpus.size() > 2) how.cpus.resize(2);
    asked.cpus = how.cpus;
    report out(asked, {{"transport", 9},
                       {"bytes", 6},
                       {"way", 20},
                       {"round trip", 10},
                       {"ratio", 6},
                       {"best", 9},
                       {"ratio", 6},
                       {"GB/s", 6}});
    out.section("round trips of two processes that spin");
    compare<rc::shm>(("shm://stream-" + std::to_string(::getpid())).c_str(), how, out);
#if RDMACORO_WITH_TCP
    compare<rc::tcp>("tcp://127.0.0.1:0", how, out);
#endif
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("stream", argc, argv, run); }
