// collectives_model: what collectives of many ranks take in a network of the LogGP model, by each algorithm, beside a lower bound.
//
// All ranks are in this process, on `sim`, in virtual time: the figures are the same on every machine. Computing costs nothing there. An algorithm that
// sends more than `--most-messages` is not simulated: its time comes from the cost model that chooses algorithms, with link costs that were simulated between
// two ranks and nine.

#include "common/report.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/collectives_by_costs.hpp>
#include <rdmacoro/service/cost_fit.hpp>
#include <rdmacoro/service/detail/rank_links_over.hpp>
#include <rdmacoro/service/group.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace bench;

/// The one algorithm of the run; every shape goes by it that it admits.
const rc::algorithm* forced = nullptr;
const rc::algorithm* choose_forced(const rc::collective_shape& shape) {
    return forced != nullptr && forced->admits(shape) ? forced : nullptr;
}

/// Whether the length of a call is that of one rank's block.
bool is_of_blocks(rc::collective_kind kind) {
    using enum rc::collective_kind;
    return kind == scatter || kind == gather || kind == allgather || kind == alltoall ||
           kind == reduce_scatter;
}

/// The ranks of a job on one scheduler.
class job_in_sim {
public:
    /// `name`: of its ranks in the network.
    job_in_sim(rc::sim_world& in, unsigned size, std::string name) : name_(std::move(name)) {
        rc::scheduler& on = *rc::scheduler::current();
        rc::sim_options network;
        network.world = &in;
        for (unsigned rank = 0; rank < size; ++rank) {
            domains_.push_back(std::make_unique<rc::sim::domain>(on, network));
            rc::node_options options;
            options.connect_limit = std::chrono::hours(1);
            options.attempt_limit = std::chrono::hours(1);
            options.hello_limit = std::chrono::hours(1);
            options.born = static_cast<rc::generation>(rank + 1);
            options.mailbox.unexpected_bytes = 256U << 10;
            links_.emplace_back(new links(on, rank, size, options, *domains_.back()));
        }
    }
    rc::task<> open() {
        std::vector<rc::node_card> cards;
        std::vector<unsigned> all;
        for (auto& one : links_) {
            static_cast<void>(
                co_await one->over().listen("sim://" + name_ + '-' + std::to_string(all.size())));
            cards.push_back(one->over().card());
            all.push_back(static_cast<unsigned>(all.size()));
        }
        for (auto& one : links_) {
            one->open(cards);
            auto* const state = new rc::detail::group_state(
                rc::detail::counted_ptr<rc::detail::rank_links>(one.get()), all, 1, &choose_forced);
            state->checks = false;
            states_.push_back(state);
            groups_.emplace_back(rc::detail::counted_ptr<rc::detail::group_state>(state));
        }
    }
    /// From now on all go by that algorithm.
    void use(const rc::algorithm& by) {
        forced = &by;
        for (rc::detail::group_state* const one : states_)
            one->choose_by(&choose_forced);  // forgets what it chose
    }
    /// The virtual time until the last rank has ended, in nanoseconds. `elements`: as in the shape of a call.
    rc::task<double> time(rc::collective_kind kind, std::size_t elements) {
        // All ranks share them: the contents say nothing, and thousands of ranks would not find room for their own.
        const std::size_t whole = elements * (is_of_blocks(kind) ? groups_.size() : 1);
        for (std::vector<double>* one : {&in_, &out_, &block_}) one->resize(std::max(whole, one->size()));
        const auto begin = rc::scheduler::current()->now();
        rc::task_group ranks;
        for (rc::group& one : groups_) ranks.spawn(run, this, std::ref(one), kind, elements, whole);
        co_await ranks.join();
        co_return std::chrono::duration<double, std::nano>(rc::scheduler::current()->now() - begin).count();
    }

private:
    using links = rc::detail::rank_links_over<rc::sim>;

    static rc::task<> run(job_in_sim* self, rc::group& g, rc::collective_kind kind, std::size_t elements,
                          std::size_t whole) {
        const std::span<const double> in = std::span(self->in_).first(whole);
        const std::span<double> out = std::span(self->out_).first(whole);
        const std::span<double> block = std::span(self->block_).first(elements);
        const std::span<const double> mine = block;
        const rc::root to{0};
        switch (kind) {
            case rc::collective_kind::barrier: co_await g.barrier(); break;
            case rc::collective_kind::broadcast: co_await g.broadcast(out, to); break;
            case rc::collective_kind::scatter: co_await g.scatter(in, block, to); break;
            case rc::collective_kind::gather: co_await g.gather(mine, out, to); break;
            case rc::collective_kind::allgather: co_await g.allgather(mine, out); break;
            case rc::collective_kind::alltoall: co_await g.alltoall(in, out); break;
            case rc::collective_kind::reduce: co_await g.reduce(in, out, std::plus<>{}, to); break;
            case rc::collective_kind::allreduce: co_await g.allreduce(in, out, std::plus<>{}); break;
            case rc::collective_kind::reduce_scatter:
                co_await g.reduce_scatter(in, block, std::plus<>{});
                break;
            case rc::collective_kind::scan: co_await g.scan(in, out, std::plus<>{}); break;
            case rc::collective_kind::exscan: co_await g.exscan(in, out, std::plus<>{}); break;
        }
    }

    std::string name_;
    std::vector<std::unique_ptr<rc::sim::domain>> domains_;
    std::vector<rc::detail::counted_ptr<links>> links_;
    std::vector<rc::detail::group_state*> states_;
    std::vector<rc::group> groups_;
    std::vector<double> in_;
    std::vector<double> out_;
    std::vector<double> block_;
};

/// Whether each rank speaks to each other one: of thousands there are too many connections for one machine.
bool connects_all(rc::collective_kind kind, std::string_view algorithm) {
    using enum rc::collective_kind;
    const bool to_all =
        kind == allgather || kind == alltoall || kind == reduce_scatter || kind == scan || kind == exscan;
    return to_all &&
           (algorithm == "overlapped_flat_tree" || algorithm == "flat_tree" || algorithm == "pairwise");
}

/// About how many messages all ranks together send.
double messages_of(rc::collective_kind kind, const rc::algorithm& by, unsigned ranks) {
    const auto goes_around = [](std::string_view name) {
        return name.find("ring") != std::string_view::npos || name == "scatter_allgather";
    };
    const bool of_all = connects_all(kind, by.name) || goes_around(by.name) || goes_around(by.steps[0]) ||
                        goes_around(by.steps[1]);
    return of_all ? static_cast<double>(ranks) * ranks : 4.0 * ranks * std::bit_width(ranks);
}

/// When news of one rank can have reached all: each rank that has it sends it on, one message after the other, to one that has it not (Karp, Sahay, Santos and
/// Schauser, 1993).
double news_to_all(unsigned ranks, double each, double between) {
    // When the next message of a rank that has the news arrives.
    std::priority_queue<double, std::vector<double>, std::greater<>> arrivals;
    arrivals.push(each);
    double last = 0;
    for (unsigned heard = 1; heard < ranks; ++heard) {
        last = arrivals.top();
        arrivals.pop();
        arrivals.push(last + each);
        arrivals.push(last + between);
    }
    return last;
}

/// No algorithm is faster, by the time in which the news of a rank can be where it has to be, or by the bytes that one card has to send. What a rank takes in
/// at a time costs nothing more in this network. `bytes`: of the whole.
double lower_bound(rc::collective_kind kind, std::size_t bytes, unsigned ranks, const rc::sim_costs& costs) {
    const auto nanoseconds = [](rc::duration d) {
        return std::chrono::duration<double, std::nano>(d).count();
    };
    const double each = nanoseconds(costs.latency) + 2 * nanoseconds(costs.overhead);
    const double between = nanoseconds(std::max(costs.overhead, costs.gap));
    const double share = static_cast<double>(ranks - 1) / ranks;
    double cards = 0;
    bool to_all = true;
    switch (kind) {
        case rc::collective_kind::barrier: break;
        case rc::collective_kind::allreduce: cards = 2 * share; break;
        case rc::collective_kind::scatter:
        case rc::collective_kind::allgather:
        case rc::collective_kind::alltoall:
        case rc::collective_kind::reduce_scatter: cards = share; break;
        case rc::collective_kind::gather:
            cards = 1.0 / ranks;
            to_all = false;
            break;
        case rc::collective_kind::reduce:
            cards = 1;
            to_all = false;
            break;
        case rc::collective_kind::broadcast:
        case rc::collective_kind::scan:
        case rc::collective_kind::exscan: cards = 1; break;
    }
    const double per_byte = static_cast<double>(costs.picoseconds_per_byte) / 1000;
    return std::max(to_all ? news_to_all(ranks, each, between) : each,
                    std::floor(cards * static_cast<double>(bytes) * per_byte) + each);
}

/// `body` runs in a network of the model, in virtual time.
template <class F>
auto in_sim(F body) {
    rc::sim_world world{rc::sim_world_options{}};
    rc::scheduler on{rc::idle::spin{}, world.time()};
    return on.run(body(world));
}

/// By that algorithm: the first one makes the connections.
rc::task<double> time_of(job_in_sim& job, rc::collective_kind kind, const rc::algorithm& by,
                         std::size_t elements) {
    job.use(by);
    static_cast<void>(co_await job.time(kind, elements));
    co_return co_await job.time(kind, elements);
}

/// What a link of the model costs, of what two ranks take, and a root with eight others.
rc::task<rc::link_costs> link_costs_in_sim(rc::sim_world& in) {
    using enum rc::collective_kind;
    constexpr unsigned others = 8;
    job_in_sim two(in, 2, "two"), nine(in, 1 + others, "nine");
    co_await two.open();
    co_await nine.open();
    std::vector<rc::cost_sample> message, exchange, next;
    for (std::size_t bytes = 8; bytes <= 1U << 17; bytes *= 4) {
        const std::size_t elements = bytes / sizeof(double);
        const rc::algorithm& at_a_time = *rc::find_algorithm(broadcast, "overlapped_flat_tree");
        const double one = co_await time_of(two, broadcast, at_a_time, elements);
        const double all = co_await time_of(nine, broadcast, at_a_time, elements);
        const double both =
            co_await time_of(two, allreduce, *rc::find_algorithm(allreduce, "recursive_doubling"), elements);
        message.push_back({bytes, one});
        exchange.push_back({bytes, both});
        next.push_back({bytes, std::max(1.0, (all - one) / (others - 1))});
    }
    rc::link_costs found;
    found.message = rc::fit_cost(message).cost;
    found.exchange = rc::fit_cost(exchange).cost;
    found.next = rc::fit_cost(next).cost;
    co_return found;
}

/// By the cost model; nothing: it does not know the algorithm.
std::optional<double> modelled(const rc::algorithm& by, const rc::collective_shape& shape,
                               const rc::link_costs& link) {
    for (const rc::costed_algorithm& one : rc::costed_algorithms(shape.kind)) {
        if (one.how.name == by.name && one.how.steps == by.steps) return rc::cost_of(one, shape, link, link);
    }
    return {};
}

std::vector<std::string> split_list(const std::string& list) {
    std::vector<std::string> parts;
    std::istringstream from(list);
    for (std::string one; std::getline(from, one, ',');) parts.push_back(one);
    return parts;
}

/// A length as it is asked for: "64K" of all ranks together, "8r" for each rank.
struct asked_length {
    std::size_t bytes = 0;
    bool each = false;
};
asked_length parse_length(std::string text) {
    asked_length length;
    length.each = text.ends_with('r');
    if (length.each) text.pop_back();
    length.bytes = pingpong::parse_sizes(text).at(0);
    return length;
}

struct question {
    rc::collective_kind kind;
    asked_length length;

    [[nodiscard]] rc::collective_shape shape(unsigned ranks) const {
        rc::collective_shape of;
        of.kind = kind;
        of.ranks = ranks;
        const std::size_t part = is_of_blocks(kind) && !length.each ? ranks : 1;
        of.elements = kind == rc::collective_kind::barrier ? 0 : length.bytes / sizeof(double) / part;
        of.bytes = of.elements * sizeof(double);
        return of;
    }
    [[nodiscard]] std::string text() const {
        if (kind == rc::collective_kind::barrier) return "barrier";
        return std::string(rc::name_of(kind)) + ", " + size_text(length.bytes) +
               (length.each ? " a rank" : "");
    }
};

std::vector<question> questions_of(const std::string& operations, const std::string& sizes) {
    std::vector<question> all;
    for (const std::string& name : split_list(operations)) {
        auto kind = rc::collective_kind::barrier;
        while (rc::name_of(kind) != name) {
            if (kind == rc::collective_kind::exscan) throw usage_error("no collective is called " + name);
            kind = static_cast<rc::collective_kind>(static_cast<unsigned>(kind) + 1);
        }
        for (const std::string& size : split_list(sizes)) {
            const asked_length length = parse_length(size);
            // Of a whole that every rank has there is no part for each.
            if (length.each && !is_of_blocks(kind)) continue;
            all.push_back({kind, length});
            if (kind == rc::collective_kind::barrier) break;
        }
    }
    return all;
}

struct plan {
    std::vector<question> questions;
    std::vector<std::string> algorithms;  // none: all
    double most_messages = 0;
    rc::link_costs link;
};

/// One number of ranks, on the same connections.
rc::task<> answer(rc::sim_world& in, unsigned ranks, const plan& asked, report& out) {
    job_in_sim job(in, ranks, "rank");
    co_await job.open();
    for (const question& one : asked.questions) {
        const rc::collective_shape shape = one.shape(ranks);
        if (shape.elements == 0 && one.kind != rc::collective_kind::barrier) continue;  // fewer than ranks
        const std::size_t whole = shape.bytes * (is_of_blocks(one.kind) ? ranks : 1);
        const double bound = lower_bound(one.kind, whole, ranks, {});
        const rc::algorithm* const chosen = rc::default_collectives::choose(shape);
        for (const rc::algorithm& by : rc::algorithms_of(one.kind)) {
            if (!by.admits(shape)) continue;
            if (!asked.algorithms.empty() && std::find(asked.algorithms.begin(), asked.algorithms.end(),
                                                       by.name) == asked.algorithms.end())
                continue;
            const bool simulates = messages_of(one.kind, by, ranks) <= asked.most_messages &&
                                   (ranks <= 256 || !connects_all(one.kind, by.name));
            std::optional<double> took;
            if (simulates) {
                const double found = co_await time_of(job, one.kind, by, shape.elements);
                took = found;
            } else {
                took = modelled(by, shape, asked.link);
            }
            if (!took) continue;
            const bool is_default = chosen != nullptr && chosen->name == by.name && chosen->steps == by.steps;
            out.row({one.text(), std::string(by.name), time_text(*took), number_text(*took / bound, 2) + " x",
                     simulates ? "simulated" : "model", is_default ? "default" : ""},
                    {{"op", rc::name_of(one.kind)},
                     {"bytes", one.length.bytes},
                     {"each", one.length.each},
                     {"ranks", ranks},
                     {"algorithm", by.name},
                     {"virtual_ns", rounded(*took)},
                     {"bound_ns", rounded(bound)},
                     {"simulated", simulates},
                     {"default", is_default}});
        }
    }
}

void run(int argc, char** argv) {
    settings asked;
    asked.name = "collectives_model";
    std::string operations = "allreduce";
    std::string sizes = "8,64K";
    unsigned most = 256;
    std::vector<unsigned> only;
    std::string names;
    double most_messages = 300'000;
    options app("Prints what collectives of many ranks take in a simulated network, by each algorithm.");
    app.add("--op", operations,
            "which, separated by commas: barrier, broadcast, scatter, gather, allgather, alltoall, reduce, "
            "allreduce, "
            "reduce_scatter, scan, exscan")
        .show_default();
    app.add("--sizes", sizes,
            "bytes of the whole, separated by commas; 8r: 8 for each rank, of collectives with a block for "
            "each")
        .show_default();
    app.add("--ranks", most, "up to so many, in powers of two").between(2, 65536).show_default();
    app.add("--only-ranks", only, "these numbers, and no powers of two: 127,1000").separated_by(',');
    app.add("--algorithms", names, "these alone, separated by commas");
    app.add("--most-messages", most_messages, "algorithms with more are not simulated, but by the cost model")
        .show_default();
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    plan of;
    of.questions = questions_of(operations, sizes);
    of.algorithms = split_list(names);
    of.most_messages = most_messages;
    of.link = in_sim([](rc::sim_world& in) { return link_costs_in_sim(in); });
    report out(
        asked,
        {{"collective", 26}, {"algorithm", 22}, {"time", 12}, {"of the bound", 14}, {"", 11}, {"", 9}});
    std::vector<unsigned> counts = only;
    for (unsigned ranks = 2; ranks <= most && only.empty(); ranks *= 2) counts.push_back(ranks);
    for (const unsigned ranks : counts) {
        out.section(std::to_string(ranks) + " ranks");
        in_sim([&](rc::sim_world& in) { return answer(in, ranks, of, out); });
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("collectives_model", argc, argv, run); }
