// collectives: what collectives of processes on one machine take, beside one matched exchange of messages, and beside MPI.
//
// Each rank is a process. A round of an operation is a barrier and a loop of it; a rank's figure is the loop's time for one. As in the Intel MPI
// Benchmarks the smallest, the middle and the largest of the ranks are reported; here each is the median over the rounds. Operations, sizes
// and libraries take turns, so that the machine's moods meet all of them.

#include "common/child.hpp"
#include "common/report.hpp"
#include "common/settings.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/cpus.hpp"
#include "../tools/pingpong/idle_choice.hpp"
#include "../tools/pingpong/sizes.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/detail/rank_links_over.hpp>
#include <rdmacoro/service/group.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

struct plan {
    std::vector<std::string> operations{"exchange",       "barrier",  "allreduce", "started",
                                        "broadcast",      "reduce",   "gather",    "allgather",
                                        "reduce_scatter", "alltoall", "scan"};
    std::vector<std::size_t> sizes{8, 1024, 65536, 1u << 20};
    std::size_t rounds = 9;
    double seconds = 0.02;  // of a loop, about
    bool fresh = false;     // what a rank gives was written just before
    bool shared = false;    // what a rank gives and gets lies in memory that its peers map
};

/// The middle one of several ranks' figures, in nanoseconds, and the extremes.
struct figure {
    double least = 0;
    double middle = 0;
    double most = 0;
};

/// Zeros of this process, or in memory that its peers over shm map.
class doubles {
public:
    doubles(std::size_t count, bool shared) {
        if (shared) {
            shared_ =
                rc::scheduler::current()->service<rc::shm::domain>().allocate_shared(count * sizeof(double));
            all_ = {reinterpret_cast<double*>(shared_.bytes().data()), count};
            std::fill(all_.begin(), all_.end(), 0.0);  // has its pages from here on
        } else {
            own_.resize(count);
            all_ = own_;
        }
    }
    [[nodiscard]] std::span<double> all() const { return all_; }

private:
    rc::shared_memory shared_;
    std::vector<double> own_;
    std::span<double> all_;
};

/// One operation in a loop.
class workload {
public:
    workload(rc::group& g, std::size_t bytes, bool fresh, bool shared)
        : g_(g), fresh_(fresh), block_(std::max<std::size_t>(1, bytes / 8 / g.size())) {
        // Of one length and half of it more or less, in turn.
        for (unsigned rank = 0; rank < g.size(); ++rank) {
            counts_.push_back(uneven(rank));
            between_.push_back(uneven(g.rank() + rank));
        }
        total_ = std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
        const std::size_t most =
            std::max(std::accumulate(between_.begin(), between_.end(), total_), block_ * g.size());
        const std::size_t own = std::max<std::size_t>(1, bytes / 8);
        for (const std::size_t count : {own, std::max(own, uneven(0)), most, most})
            memory_.push_back(std::make_unique<doubles>(count, shared));
        in_ = memory_[0]->all();
        out_ = memory_[1]->all();
        wide_ = memory_[2]->all();
        wider_ = memory_[3]->all();
        std::iota(in_.begin(), in_.end(), 0.0);
    }

    /// Throws for a name that is none.
    rc::task<> once(const std::string& what) {
        const std::span<double> part(out_.data(), block_);
        const std::span<double> own(out_.data(), counts_[g_.rank()]);
        const std::span<double> all(wide_.data(), block_ * g_.size());
        const std::span<double> all_uneven(wide_.data(), total_);
        const std::size_t crossing = std::accumulate(between_.begin(), between_.end(), std::size_t{0});
        const std::span<double> out(out_.data(), in_.size());
        if (what == "barrier") return g_.barrier();
        if (what == "broadcast") return g_.broadcast(out, rc::root{0});
        if (what == "allreduce") return g_.allreduce(std::span<const double>(in_), out, std::plus<>{});
        if (what == "reduce") return g_.reduce(std::span<const double>(in_), out, std::plus<>{}, rc::root{0});
        if (what == "scan") return g_.scan(std::span<const double>(in_), out, std::plus<>{});
        if (what == "exscan") return g_.exscan(std::span<const double>(in_), out, std::plus<>{});
        if (what == "scatter") return g_.scatter(all, part, rc::root{0});
        if (what == "scatterv") return g_.scatterv(all_uneven, counts_, own, rc::root{0});
        if (what == "gather") return g_.gather(std::span<const double>(part), all, rc::root{0});
        if (what == "gatherv")
            return g_.gatherv(std::span<const double>(own), all_uneven, counts_, rc::root{0});
        if (what == "allgather") return g_.allgather(std::span<const double>(part), all);
        if (what == "allgatherv") return g_.allgatherv(std::span<const double>(own), all_uneven, counts_);
        if (what == "reduce_scatter") return g_.reduce_scatter(all, part, std::plus<>{});
        if (what == "reduce_scatterv") return g_.reduce_scatterv(all_uneven, counts_, own, std::plus<>{});
        if (what == "alltoall") return g_.alltoall(all, wider_.first(all.size()));
        if (what == "alltoallv")
            return g_.alltoallv(std::span<const double>(wide_).first(crossing), between_,
                                wider_.first(crossing), between_);
        throw usage_error("no operation is called " + what);
    }
    /// Of as many bytes as the operations have.
    [[nodiscard]] std::span<const std::byte> given() const { return std::as_bytes(in_); }
    [[nodiscard]] std::span<std::byte> taken() { return std::as_writable_bytes(out_.first(in_.size())); }
    /// Writes a word of each cache line of what this rank gives: no other core has a copy of it.
    void write_anew(const std::string& what) {
        if (!fresh_) return;
        const bool of_out =
            what == "broadcast" || what.starts_with("gather") || what.starts_with("allgather");
        const bool of_wide =
            what.starts_with("scatter") || what.starts_with("reduce_scatter") || what.starts_with("alltoall");
        const std::span<double> given = of_out ? out_ : of_wide ? wide_ : in_;
        for (std::size_t at = 0; at < given.size(); at += 8) given[at] += 1;
    }
    rc::task<> loop(const std::string& what, std::size_t count) {
        if (what == "started") {
            const std::span<double> out(out_.data(), in_.size());
            for (std::size_t n = 0; n < count; ++n) {
                write_anew(what);
                auto sum = rc::start(g_.allreduce(std::span<const double>(in_), out, std::plus<>{}));
                co_await sum;
            }
        } else {
            for (std::size_t n = 0; n < count; ++n) {
                write_anew(what);
                co_await once(what);
            }
        }
    }

private:
    [[nodiscard]] std::size_t uneven(unsigned rank) const {
        return rank % 2 == 0 ? block_ + block_ / 2 : block_ - block_ / 2;
    }

    rc::group& g_;
    bool fresh_;
    std::vector<std::size_t> counts_;
    std::vector<std::size_t> between_;  // this rank and each other one
    std::size_t total_ = 0;
    std::size_t block_;
    std::vector<std::unique_ptr<doubles>> memory_;
    std::span<double> in_;
    std::span<double> out_;
    std::span<double> wide_;
    std::span<double> wider_;
};

/// The bound for two ranks of a group: each sends the other a message, and receives one.
template <class Peer>
rc::task<> exchange(Peer& with, workload& work, std::size_t count) {
    for (std::size_t n = 0; n < count; ++n) {
        work.write_anew("exchange");
        static_cast<void>(co_await rc::when_all(with.send(work.given(), 7), with.recv(work.taken(), 7)));
    }
}

template <class T>
rc::task<> loop_of(rc::group& g, workload& work, typename rc::node<T>::peer_type* other, std::string what,
                   std::size_t count) {
    if (what == "turns") {
        // No rank of a CPU can be quicker than that each of them has had it once.
        for (std::size_t n = 0; n < count; ++n) ::sched_yield();
        co_return;
    }
    if (what != "exchange") {
        co_await work.loop(what, count);
        co_return;
    }
    static_cast<void>(g);
    rc::task<> run = other->visit([&](auto& end) { return exchange(end, work, count); });
    co_await std::move(run);
}

std::string key_of(const std::string& what, std::size_t bytes) { return what + ' ' + std::to_string(bytes); }
bool has_sizes(const std::string& what) { return what != "barrier" && what != "turns"; }

/// One rank of the program: everything of the plan, `rounds` times. Ends with the figures of each round, at rank 0.
template <class T>
rc::task<> measure(rc::group& g, rc::node<T>& over, const plan& asked,
                   std::map<std::string, std::vector<figure>>& found) {
    typename rc::node<T>::peer_type other;
    rc::node_hold held;
    if (g.size() == 2) {
        other = over.peer(2 - g.rank());
        held = co_await other.connect();
    }
    std::map<std::string, std::size_t> counts;
    for (std::size_t round = 0; round <= asked.rounds; ++round) {
        for (const std::string& what : asked.operations) {
            if (what == "exchange" && g.size() != 2) continue;
            for (const std::size_t bytes : asked.sizes) {
                if (!has_sizes(what) && bytes != asked.sizes.front()) continue;
                workload work(g, bytes, asked.fresh, asked.shared);
                // The first one of these buffers is not counted, nor is a peer's.
                co_await loop_of<T>(g, work, &other, what, 1);
                std::size_t& count = counts[key_of(what, bytes)];
                if (round == 0) {
                    // How many fit into the time, as rank 0 sees it.
                    for (count = 4;; count *= 4) {
                        co_await g.barrier();
                        const auto begin = steady::now();
                        co_await loop_of<T>(g, work, &other, what, count);
                        double took = std::chrono::duration<double>(steady::now() - begin).count();
                        co_await g.broadcast(std::span(&took, 1), rc::root{0});
                        if (took < asked.seconds / 4) continue;
                        count = std::max<std::size_t>(
                            1, static_cast<std::size_t>(static_cast<double>(count) * asked.seconds / took));
                        break;
                    }
                    continue;
                }
                co_await g.barrier();
                const auto begin = steady::now();
                co_await loop_of<T>(g, work, &other, what, count);
                const double took = std::chrono::duration<double, std::nano>(steady::now() - begin).count() /
                                    static_cast<double>(count);
                std::vector<double> all(g.size());
                co_await g.gather(std::span(&took, 1), all, rc::root{0});
                if (g.rank() != 0) continue;
                found[key_of(what, bytes)].push_back({*std::min_element(all.begin(), all.end()), median(all),
                                                      *std::max_element(all.begin(), all.end())});
            }
        }
    }
}

using socket_end = rc::detail::shm::unique_fd;

/// Reads or writes all of it; the other end is rank `with`'s, and of it alone.
void move_all(const socket_end& at, void* data, std::size_t bytes, bool write, unsigned with) {
    auto* byte = static_cast<char*>(data);
    while (bytes != 0) {
        const ssize_t moved =
            write ? ::send(at.get(), byte, bytes, MSG_NOSIGNAL) : ::read(at.get(), byte, bytes);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) throw run_error("rank " + std::to_string(with) + " has ended too early");
        byte += moved;
        bytes -= static_cast<std::size_t>(moved);
    }
}
struct packed_card {
    std::array<std::byte, rc::node_card::most_bytes> bytes{};
    std::size_t length = 0;
};

/// The cards of all ranks, by rank. They go through rank 0, whose `ends` are to the others in turn; that of another rank is to it.
std::vector<packed_card> exchange_cards(unsigned rank, unsigned size, std::span<const socket_end> ends,
                                        packed_card own) {
    std::vector<packed_card> all(size);
    if (rank != 0) {
        move_all(ends[0], &own, sizeof own, true, 0);
        move_all(ends[0], all.data(), size * sizeof own, false, 0);
        return all;
    }
    all[0] = own;
    for (unsigned other = 1; other < size; ++other)
        move_all(ends[other - 1], &all[other], sizeof own, false, other);
    for (unsigned other = 1; other < size; ++other)
        move_all(ends[other - 1], all.data(), size * sizeof own, true, other);
    return all;
}

/// One rank: exchanges cards over `ends`, and measures.
template <class T>
rc::task<> be_rank(unsigned rank, unsigned size, std::string url, std::span<const socket_end> ends,
                   const plan& asked, std::map<std::string, std::vector<figure>>& found) {
    rc::detail::counted_ptr<rc::detail::rank_links_over<T>> links(
        new rc::detail::rank_links_over<T>(*rc::scheduler::current(), rank, size, {}));
    co_await links->over().listen(url);
    const std::vector<std::byte> encoded = rc::encode_card(links->over().card());
    packed_card own;
    own.length = encoded.size();
    std::copy(encoded.begin(), encoded.end(), own.bytes.begin());
    const std::vector<packed_card> cards = exchange_cards(rank, size, ends, own);
    std::vector<unsigned> members;
    std::vector<rc::node_card> known;
    for (unsigned at = 0; at < size; ++at) {
        members.push_back(at);
        known.push_back(
            rc::decode_card(std::span<const std::byte>(cards[at].bytes).first(cards[at].length)).value());
    }
    links->open(known);
    rc::group g(rc::detail::counted_ptr<rc::detail::group_state>(
        new rc::detail::group_state(rc::detail::counted_ptr<rc::detail::rank_links>(links.get()), members, 1,
                                    &rc::default_collectives::choose)));
    co_await measure<T>(g, links->over(), asked, found);
    co_await g.barrier();
    co_await links->over().close();
}

/// How a process has ended, by what `waitpid` says of it; empty: well.
std::string how_ended(int status) {
    if (WIFSIGNALED(status)) return "was ended by signal " + std::to_string(WTERMSIG(status));
    return status == 0 ? "" : "has failed";
}

/// All ranks but the first are processes of their own.
template <class T>
std::map<std::string, std::vector<figure>> run_ranks(unsigned size, const std::vector<int>& cpus, bool spins,
                                                     const plan& asked) {
    std::map<std::string, std::vector<figure>> found;
    const auto url = [](unsigned rank) {
        return std::string(std::string_view(T::name)) +
               (std::string_view(T::name) == "tcp"
                    ? std::string("://127.0.0.1:0")
                    : "://collectives-" + std::to_string(::getpid()) + "-" + std::to_string(rank));
    };
    std::vector<socket_end> ends;
    const auto work = [&](unsigned rank) {
        pingpong::pin_to(cpus[rank % cpus.size()]);
        const pingpong::idle_kind idle = spins ? pingpong::idle_kind::spin : pingpong::idle_kind::adaptive;
        rc::scheduler on{pingpong::chosen_idle(&idle)};
        on.run(be_rank<T>(rank, size, url(rank), ends, asked, found));
    };
    const auto as_child = [&](unsigned rank, socket_end& own) {
        try {
            // An end that another process holds as well would hide that this one has ended.
            ends.clear();
            ends.push_back(std::move(own));
            work(rank);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "collectives: rank %u: %s\n", rank, e.what());
            ::_exit(1);
        }
    };
    using process = child<std::function<void()>>;
    std::vector<std::unique_ptr<process>> others;
    for (unsigned rank = 1; rank < size; ++rank) {
        std::array<int, 2> pair{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
            throw run_error(std::string("socketpair: ") + std::strerror(errno));
        ends.emplace_back(pair[0]);
        socket_end theirs(pair[1]);
        others.push_back(std::make_unique<process>([&, rank] { as_child(rank, theirs); }));
    }
    work(0);
    for (unsigned rank = 1; rank < size; ++rank) {
        const std::string how = how_ended(others[rank - 1]->end(false));
        if (!how.empty()) throw run_error("rank " + std::to_string(rank) + ' ' + how);
    }
    return found;
}

/// The output of a peer's program for the same plan: "ranks N", then lines of "operation bytes least middle most".
std::map<std::string, std::vector<figure>> run_peer(std::string command, const plan& asked, unsigned ranks,
                                                    const std::string& transport) {
    const auto replace = [&command](const std::string& name, const std::string& with) {
        for (std::size_t at = command.find(name); at != std::string::npos; at = command.find(name))
            command.replace(at, name.size(), with);
    };
    replace("{ranks}", std::to_string(ranks));
    replace("{transport}", transport);
    std::string line = command + " --seconds " + std::to_string(asked.seconds) + " --rounds " +
                       std::to_string(asked.rounds) + " --op";
    char before = ' ';
    for (const std::string& operation : asked.operations) {
        line += std::exchange(before, ',');
        line += operation;
    }
    if (asked.fresh) line += " --fresh 1";
    line += " --sizes";
    before = ' ';
    for (const std::size_t size : asked.sizes) {
        line += std::exchange(before, ',');
        line += std::to_string(size);
    }
    std::FILE* const output = ::popen(line.c_str(), "r");
    if (output == nullptr) throw run_error("cannot run " + line);
    std::map<std::string, std::vector<figure>> found;
    std::vector<std::size_t> sizes;  // of its jobs: several where each process is one of its own
    std::array<char, 512> text{};
    while (std::fgets(text.data(), text.size(), output) != nullptr) {
        std::istringstream words(text.data());
        std::string what;
        std::size_t bytes = 0;
        figure one;
        if (!(words >> what >> bytes)) continue;
        if (what == "ranks") {
            sizes.push_back(bytes);
        } else if (words >> one.least >> one.middle >> one.most) {
            found[key_of(what, bytes)].push_back(one);
        }
    }
    if (::pclose(output) != 0) throw run_error("failed: " + line);
    if (sizes.empty()) throw run_error("does not print how many ranks it has: " + line);
    if (sizes.size() > 1 || sizes.front() != ranks)
        throw run_error("has " + std::to_string(sizes.size()) + " jobs of " + std::to_string(sizes.front()) +
                        " ranks, not one of " + std::to_string(ranks) + ": " + line);
    return found;
}

std::vector<std::string> split_list(const std::string& list) {
    std::vector<std::string> parts;
    std::istringstream from(list);
    for (std::string one; std::getline(from, one, ',');) parts.push_back(one);
    return parts;
}

void run(int argc, char** argv) {
    settings asked;
    asked.name = "collectives";
    plan todo;
    std::string operations;
    std::string sizes;
    std::string ranks = "2";
    std::string transports = "shm";
#if RDMACORO_WITH_TCP
    transports += ",tcp";
#endif
    std::string cpus;
    std::vector<std::string> peers;
    bool spins = false;
    options app("Measures collectives among processes of this machine.");
    app.add("--op", operations,
            "which, separated by commas: exchange, barrier, allreduce, started, broadcast, reduce, "
            "gather, allgather, reduce_scatter, alltoall, scan, which is the default; scatter, exscan, "
            "scatterv, gatherv, allgatherv, reduce_scatterv, alltoallv; turns: each rank of a CPU yields "
            "it once");
    app.add("--sizes", sizes,
            "bytes of the whole, of each rank, of doubles: 8,64K,1M; by default 8,1K,64K,1M");
    app.add("--ranks", ranks, "how many: 2,4").show_default();
    app.add("--transport", transports, "shm, tcp").show_default();
    app.add("--rounds", todo.rounds, "of each figure").between(1, 10000).show_default();
    app.add("--seconds", todo.seconds, "of an operation's loop in a round").within(0, 3600).show_default();
    app.add("--cpus", cpus, "the CPUs of the ranks, in turn; by default those that may be used");
    app.add("--peer", peers,
            "LIBRARY=COMMAND: another library's program, which takes the same turns; {ranks} and "
            "{transport} are those of the turn: openmpi=\"mpirun -n {ranks} --mca btl self,{transport} "
            "peer_collectives\"");
    app.add_flag("--fresh", todo.fresh,
                 "each rank writes to what it gives before each operation: no other core has its lines");
    app.add_flag("--shared", todo.shared,
                 "what a rank gives and gets lies in memory that its peers map (shm; the other libraries' is "
                 "ordinary)");
    app.add_flag("--spin", spins, "spin when nothing moves, also with more ranks than CPUs");
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.cpus = cpus.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(cpus);
    if (!operations.empty()) todo.operations = split_list(operations);
    if (!sizes.empty()) {
        todo.sizes = pingpong::parse_sizes(sizes);
        for (const std::size_t bytes : todo.sizes) {
            if (bytes == 0 || bytes % sizeof(double) != 0)
                throw usage_error("--sizes: " + std::to_string(bytes) +
                                  " bytes are no whole number of doubles");
        }
    }
    std::vector<unsigned> jobs;
    for (const std::string& count : split_list(ranks))
        jobs.push_back(static_cast<unsigned>(parse_number("--ranks", count, 1, 1024)));
    for (const std::string& over : split_list(transports)) {
        if (over == "tcp" && todo.shared) throw usage_error("--shared is for shm: --transport shm");
#if RDMACORO_WITH_TCP
        if (over == "tcp") continue;
#endif
        if (over != "shm") throw usage_error("no transport here is called " + over);
    }
    // Figures of other ranks or another way would stand beside these.
    for (const std::string& peer : peers) {
        if (peer.find('=') == std::string::npos) throw usage_error("--peer is LIBRARY=COMMAND");
        if (jobs.size() > 1 && peer.find("{ranks}") == std::string::npos)
            throw usage_error("--ranks has several numbers: --peer needs {ranks} where its command has them");
        if (split_list(transports).size() > 1 && peer.find("{transport}") == std::string::npos)
            throw usage_error("--transport has several: --peer needs {transport} where its command has them");
    }
    report out(asked, {{"operation", 16},
                       {"bytes", 10},
                       {"library", 12},
                       {"median", 12},
                       {"min", 12},
                       {"max", 12},
                       {"of ours", 8}});
    for (const std::string& over : split_list(transports)) {
        for (const unsigned size : jobs) {
            out.section(std::to_string(size) + " ranks over " + over);
            const bool busy = spins || size <= asked.cpus.size();
            std::map<std::string, std::map<std::string, std::vector<figure>>> all;
            const std::size_t turns = peers.empty() ? 1 : 3;
            for (std::size_t turn = 0; turn < turns; ++turn) {
                std::map<std::string, std::vector<figure>> ours;
                if (over == "shm") ours = run_ranks<rc::shm>(size, asked.cpus, busy, todo);
#if RDMACORO_WITH_TCP
                if (over == "tcp") ours = run_ranks<rc::tcp>(size, asked.cpus, busy, todo);
#endif
                for (auto& [key, figures] : ours)
                    all[key]["rdmacoro"].insert(all[key]["rdmacoro"].end(), figures.begin(), figures.end());
                for (const std::string& peer : peers) {
                    const std::size_t equals = peer.find('=');
                    for (auto& [key, figures] : run_peer(peer.substr(equals + 1), todo, size, over))
                        all[key][peer.substr(0, equals)].insert(all[key][peer.substr(0, equals)].end(),
                                                                figures.begin(), figures.end());
                }
            }
            for (const std::string& what : todo.operations) {
                for (const std::size_t bytes : todo.sizes) {
                    const auto found = all.find(key_of(what, bytes));
                    if (found == all.end()) continue;
                    double ours = 0;
                    std::vector<std::string> libraries{"rdmacoro"};
                    for (const auto& [library, figures] : found->second) {
                        if (library != "rdmacoro") libraries.push_back(library);
                    }
                    for (const std::string& library : libraries) {
                        const std::vector<figure>& figures = found->second[library];
                        if (figures.empty()) continue;
                        std::vector<double> least;
                        std::vector<double> middle;
                        std::vector<double> most;
                        for (const figure& one : figures) {
                            least.push_back(one.least);
                            middle.push_back(one.middle);
                            most.push_back(one.most);
                        }
                        const double typical = median(middle);
                        if (library == "rdmacoro") ours = typical;
                        out.row({what, has_sizes(what) ? size_text(bytes) : "", library, time_text(typical),
                                 time_text(median(least)), time_text(median(most)),
                                 library == "rdmacoro" ? "" : number_text(typical / ours, 2) + " x"},
                                {{"op", what},
                                 {"bytes", has_sizes(what) ? bytes : 0},
                                 {"ranks", size},
                                 {"transport", over},
                                 {"library", library},
                                 {"median_ns", rounded(typical)},
                                 {"min_ns", rounded(median(least))},
                                 {"max_ns", rounded(median(most))}});
                    }
                }
            }
        }
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("collectives", argc, argv, run); }
