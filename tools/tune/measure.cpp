#include "measure.hpp"

#include "estimate.hpp"

#include "../pingpong/cpus.hpp"
#include "../pingpong/failure.hpp"
#include "../pingpong/idle_choice.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/rank_links_over.hpp>
#include <rdmacoro/service/group.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tune {

namespace {

namespace rc = rdmacoro;
using clock = std::chrono::steady_clock;
using pingpong::run_error;

constexpr std::size_t window = 8;
/// A model has three terms.
constexpr std::size_t least_sizes = 3;
constexpr std::size_t most_further_rounds = 100;

[[nodiscard]] double nanoseconds_since(clock::time_point begin) {
    return std::chrono::duration<double, std::nano>(clock::now() - begin).count();
}

/// The steps of algorithms in a loop, as an algorithm of its own: nothing but them is measured.
struct steps {
    static constexpr std::string_view name = "tune";
    static bool admits(const rc::collective_shape&) { return true; }

    /// The plan of the next run; the same at both ranks.
    static inline what kind = what::message;
    static inline std::size_t bytes = 0;
    static inline std::size_t count = 0;
    static inline bool alone = false;  ///< of `next`: one message instead of a window of them
    /// Its time, in nanoseconds for each turn.
    static inline double took = 0;

    static rc::task<> run(rc::collective& c) {
        const auto begin = clock::now();
        switch (kind) {
            case what::message: co_await there_and_back(c); break;
            case what::exchange: co_await both_ways(c); break;
            case what::next: co_await several(c); break;
        }
        took = nanoseconds_since(begin) / static_cast<double>(count);
    }

    static rc::task<> there_and_back(rc::collective& c) {
        const unsigned other = 1 - c.rank();
        const std::span<std::byte> memory = c.data().first(bytes);
        for (std::size_t turn = 0; turn < 2 * count; ++turn) {
            if (turn % 2 == c.rank()) {
                rc::collective::sending out(c, other, memory);
                co_await out;
            } else {
                rc::collective::receiving in(c, other, memory);
                co_await in;
            }
            c.check();
        }
    }
    static rc::task<> both_ways(rc::collective& c) {
        const unsigned other = 1 - c.rank();
        for (std::size_t turn = 0; turn < count; ++turn) {
            rc::collective::receiving in(c, other, c.data().subspan(bytes, bytes));
            rc::collective::sending out(c, other, c.data().first(bytes));
            co_await out;
            co_await in;
            c.check();
        }
    }
    static rc::task<> several(rc::collective& c) {
        const unsigned other = 1 - c.rank();
        const std::size_t messages = alone ? 1 : window;
        for (std::size_t turn = 0; turn < count; ++turn) {
            if (c.rank() == 0) {
                {
                    rc::detail::transfer_list<rc::collective::sending> out(c, messages);
                    for (std::size_t n = 0; n < messages; ++n)
                        out.begin(c, other, c.data().subspan(n * bytes, bytes));
                    for (std::size_t n = 0; n < messages; ++n) co_await out[n];
                }
                rc::collective::receiving end(c, other, {});
                co_await end;
            } else {
                {
                    rc::detail::transfer_list<rc::collective::receiving> in(c, messages);
                    for (std::size_t n = 0; n < messages; ++n)
                        in.begin(c, other, c.data().subspan(n * bytes, bytes));
                    for (std::size_t n = 0; n < messages; ++n) co_await in[n];
                }
                rc::collective::sending end(c, other, {});
                co_await end;
            }
            c.check();
        }
    }
};

/// One loop of `turns`, at both ranks. Ends with the time of a turn as rank 0 sees it, at both.
rc::task<double> loop(rc::group& g, std::span<std::byte> memory, std::size_t turns) {
    steps::count = turns;
    co_await g.broadcast(memory, rc::root{0}, rc::use<steps>);
    double took = steps::took;
    co_await g.broadcast(std::span(&took, 1), rc::root{0});
    co_return took;
}

/// The times of a size in all rounds, in nanoseconds for each turn; the same at both ranks.
struct size_times {
    std::size_t turns = 0;  ///< of a round; 0: not found out yet
    std::vector<double> whole;
    std::vector<double> alone;  ///< of `next`: of one message
};

/// One round of a size.
rc::task<> take_times(rc::group& g, std::span<std::byte> memory, double seconds, size_times& of) {
    if (of.turns == 0) {
        for (of.turns = 1;; of.turns *= 4) {
            const double took = co_await loop(g, memory, of.turns);
            const double wanted = seconds * 1e9 / took;
            if (static_cast<double>(of.turns) * 4 < wanted) continue;
            of.turns = std::max<std::size_t>(1, static_cast<std::size_t>(wanted));
            break;
        }
    }
    of.whole.push_back(co_await loop(g, memory, of.turns));
    if (steps::kind != what::next) co_return;
    steps::alone = true;
    of.alone.push_back(co_await loop(g, memory, of.turns));
    steps::alone = false;
}

/// The cost of a size, in nanoseconds.
[[nodiscard]] double cost_of(what kind, const size_times& of) {
    if (kind == what::next) return further_message(of.whole, of.alone, window);
    return quarter_of(of.whole) / (kind == what::message ? 2 : 1);
}

using all_times = std::array<std::vector<size_times>, 3>;  // by `what`, by size

rc::task<> take_round(rc::group& g, std::span<std::byte> memory, const plan& how, all_times& times) {
    for (std::size_t kind = 0; kind < 3; ++kind) {
        for (std::size_t at = 0; at < how.sizes.size(); ++at) {
            steps::kind = static_cast<what>(kind);
            steps::bytes = how.sizes[at];
            co_await take_times(g, memory, how.seconds, times[kind][at]);
        }
    }
}

void estimate(const plan& how, const all_times& times, link_samples& found) {
    for (std::size_t kind = 0; kind < 3; ++kind) {
        found.of[kind].clear();
        for (std::size_t at = 0; at < how.sizes.size(); ++at) {
            const double ns = cost_of(static_cast<what>(kind), times[kind][at]);
            // A further message that costs nothing that can be measured is left out.
            if (ns > 0) found.of[kind].push_back({how.sizes[at], ns});
        }
    }
}

[[nodiscard]] bool suffices(const link_samples& found) {
    return std::all_of(found.of.begin(), found.of.end(),
                       [](const auto& samples) { return samples.size() >= least_sizes; });
}

rc::task<> measure(rc::group& g, const plan& how, link_samples& found,
                   const std::function<void(const std::string&)>& progress) {
    const std::size_t longest = *std::max_element(how.sizes.begin(), how.sizes.end());
    std::vector<std::byte> memory(std::max<std::size_t>(1, window * longest));
    all_times times;
    for (auto& one : times) one.resize(how.sizes.size());
    for (std::size_t round = 0; round < how.rounds; ++round) {
        progress("round " + std::to_string(round + 1) + " of " + std::to_string(how.rounds));
        co_await take_round(g, memory, how, times);
    }
    estimate(how, times, found);
    // Both ranks have the same times, and go on alike.
    for (std::size_t further = 0; further < most_further_rounds && !suffices(found); ++further) {
        progress("a further round: too few sizes have costs that stand out of the noise");
        co_await take_round(g, memory, how, times);
        estimate(how, times, found);
    }
}

/// Of adding one row of numbers to another, in the processor's caches.
[[nodiscard]] double measure_touch() {
    std::vector<double> into(8192, 1.0);
    const std::vector<double> other(8192, 0.5);
    const std::plus<> add;
    const rc::detail::reduction with = rc::detail::make_reduction<double>(add);
    std::vector<double> all;
    for (int round = 0; round < 200; ++round) {
        const auto begin = clock::now();
        auto* const sums = reinterpret_cast<std::byte*>(into.data());
        with.apply(with.op, sums, sums, reinterpret_cast<const std::byte*>(other.data()), into.size());
        all.push_back(nanoseconds_since(begin) / static_cast<double>(into.size() * sizeof(double)));
    }
    return std::max(quarter_of(std::move(all)), 1e-4);
}

/// Reads or writes all of it.
void move_all(int at, void* data, std::size_t bytes, bool write) {
    auto* byte = static_cast<char*>(data);
    while (bytes != 0) {
        const ssize_t moved = write ? ::send(at, byte, bytes, MSG_NOSIGNAL) : ::read(at, byte, bytes);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) throw run_error("the other process has ended too early");
        byte += moved;
        bytes -= static_cast<std::size_t>(moved);
    }
}
struct packed_card {
    std::array<std::byte, rc::node_card::most_bytes> bytes{};
    std::size_t length = 0;
};
[[nodiscard]] rc::node_card card_of(const packed_card& packed) {
    if (packed.length > packed.bytes.size())
        throw run_error("the other process says where it is in no form known");
    return rc::decode_card(std::span<const std::byte>(packed.bytes).first(packed.length)).value();
}

template <class T>
rc::task<> be_rank(unsigned rank, std::string url, int to_other, const plan& how, link_samples& found,
                   const std::function<void(const std::string&)>& progress) {
    rc::detail::counted_ptr<rc::detail::rank_links_over<T>> links(
        new rc::detail::rank_links_over<T>(*rc::scheduler::current(), rank, 2, {}));
    co_await links->over().listen(url);
    const std::vector<std::byte> encoded = rc::encode_card(links->over().card());
    std::array<packed_card, 2> cards{};
    cards[rank].length = encoded.size();
    std::copy(encoded.begin(), encoded.end(), cards[rank].bytes.begin());
    move_all(to_other, &cards[rank], sizeof(packed_card), true);
    move_all(to_other, &cards[1 - rank], sizeof(packed_card), false);
    const std::vector<rc::node_card> known{card_of(cards[0]), card_of(cards[1])};
    links->open(known);
    rc::group g(rc::detail::counted_ptr<rc::detail::group_state>(
        new rc::detail::group_state(rc::detail::counted_ptr<rc::detail::rank_links>(links.get()), {0, 1}, 1,
                                    &rc::default_collectives::choose)));
    co_await measure(g, how, found, progress);
    co_await g.barrier();
    co_await links->over().close();
}

rc::task<> within(std::chrono::seconds limit, rc::task<> what) {
    co_await rc::timeout(std::move(what), limit);
}

/// A process that runs this rank, and ends with this one.
class other_process {
public:
    template <class Work>
    explicit other_process(Work work) {
        const pid_t parent = ::getpid();
        id_ = ::fork();
        if (id_ < 0) throw run_error(std::string("fork: ") + std::strerror(errno));
        if (id_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::_exit(work());
    }
    other_process(const other_process&) = delete;
    other_process& operator=(const other_process&) = delete;
    ~other_process() {
        if (id_ == 0) return;
        ::kill(id_, SIGKILL);
        int status = 0;
        ::waitpid(id_, &status, 0);
    }
    /// Its status, once it has ended.
    int end() {
        int status = 0;
        while (::waitpid(id_, &status, 0) < 0 && errno == EINTR) {}
        id_ = 0;
        return status;
    }

private:
    pid_t id_ = 0;
};

template <class T>
void measure_over(const plan& how, link_samples& found,
                  const std::function<void(const std::string&)>& progress) {
    const auto work = [&](unsigned rank, int to_other) {
        pingpong::pin_to(how.cpus[rank]);
        const std::string url = std::string_view(T::name) == "tcp"
                                    ? std::string("tcp://127.0.0.1:0")
                                    : "shm://tune-" + std::to_string(::getpid());
        const pingpong::idle_kind idle =
            how.spins ? pingpong::idle_kind::spin : pingpong::idle_kind::adaptive;
        rc::scheduler on{pingpong::chosen_idle(&idle)};
        const std::function<void(const std::string&)> silent = [](const std::string&) {};
        on.run(within(how.limit, be_rank<T>(rank, url, to_other, how, found, rank == 0 ? progress : silent)));
    };
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        throw run_error(std::string("socketpair: ") + std::strerror(errno));
    other_process other([&] {
        ::close(ends[0]);
        try {
            work(1, ends[1]);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "tune: the other process: %s\n", e.what());
            return 1;
        }
        return 0;
    });
    ::close(ends[1]);
    work(0, ends[0]);
    ::close(ends[0]);
    if (other.end() != 0) throw run_error("the other process has failed");
}

}  // namespace

std::vector<std::string> transport_names() {
    return {"shm",
#if RDMACORO_WITH_TCP
            "tcp"
#endif
    };
}

link_samples measure_link(const std::string& transport, const plan& how,
                          const std::function<void(const std::string&)>& progress) {
    link_samples found;
    found.transport = transport;
    if (transport == "shm") measure_over<rc::shm>(how, found, progress);
#if RDMACORO_WITH_TCP
    if (transport == "tcp") measure_over<rc::tcp>(how, found, progress);
#endif
    if (!suffices(found)) {
        throw run_error(transport +
                        ": fewer than three sizes have costs that stand out of the noise; measure on an idle "
                        "machine, with more --sizes, --rounds or --seconds");
    }
    found.touch_ns_per_byte = measure_touch();
    return found;
}

}  // namespace tune
