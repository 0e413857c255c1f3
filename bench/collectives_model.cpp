// collectives_model: what collectives of many ranks take in a network of the LogGP model, by each algorithm, beside a lower bound.
//
// All ranks are in this process, on `sim`, in virtual time: the figures are the same on every machine. Computing costs nothing there.

#include "common/report.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/detail/rank_links_over.hpp>
#include <rdmacoro/service/group.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace bench;

/// The one algorithm of the run; every shape goes by it that it admits.
const rc::algorithm* forced = nullptr;
const rc::algorithm* choose_forced(const rc::collective_shape& shape) {
    return forced != nullptr && forced->admits(shape) ? forced : nullptr;
}

/// The ranks of a job on one scheduler.
class job_in_sim {
public:
    job_in_sim(rc::sim_world& in, unsigned size) {
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
            static_cast<void>(co_await one->over().listen("sim://rank-" + std::to_string(all.size())));
            cards.push_back(one->over().card());
            all.push_back(static_cast<unsigned>(all.size()));
        }
        for (auto& one : links_) {
            one->open(cards);
            auto* const state = new rc::detail::group_state(
                rc::detail::counted_ptr<rc::detail::rank_links>(one.get()), all, 1, &choose_forced);
            state->checks = false;
            groups_.emplace_back(rc::detail::counted_ptr<rc::detail::group_state>(state));
        }
    }
    /// The virtual time until the last rank has ended, in nanoseconds.
    rc::task<double> time(rc::collective_kind kind, std::size_t bytes) {
        // All ranks share them: the contents say nothing, and thousands of ranks would not find room for their own.
        in_.resize(bytes / sizeof(double));
        out_.resize(in_.size());
        wide_.resize(in_.size() / groups_.size() * groups_.size());
        const auto begin = rc::scheduler::current()->now();
        rc::task_group ranks;
        for (rc::group& one : groups_) ranks.spawn(run, this, std::ref(one), kind);
        co_await ranks.join();
        co_return std::chrono::duration<double, std::nano>(rc::scheduler::current()->now() - begin).count();
    }

private:
    using links = rc::detail::rank_links_over<rc::sim>;

    static rc::task<> run(job_in_sim* self, rc::group& g, rc::collective_kind kind) {
        const std::span<const double> in(self->in_);
        const std::span<double> out(self->out_);
        const std::span<double> wide(self->wide_);
        const std::span<double> part = out.first(in.size() / g.size());
        switch (kind) {
            case rc::collective_kind::barrier: co_await g.barrier(); break;
            case rc::collective_kind::broadcast: co_await g.broadcast(out, rc::root{0}); break;
            case rc::collective_kind::reduce: co_await g.reduce(in, out, std::plus<>{}, rc::root{0}); break;
            case rc::collective_kind::allreduce: co_await g.allreduce(in, out, std::plus<>{}); break;
            case rc::collective_kind::scan: co_await g.scan(in, out, std::plus<>{}); break;
            case rc::collective_kind::allgather:
                co_await g.allgather(std::span<const double>(part), wide);
                break;
            case rc::collective_kind::reduce_scatter:
                co_await g.reduce_scatter(wide, part, std::plus<>{});
                break;
            default: throw usage_error("not one of the collectives of this program");
        }
    }

    std::vector<std::unique_ptr<rc::sim::domain>> domains_;
    std::vector<rc::detail::counted_ptr<links>> links_;
    std::vector<rc::group> groups_;
    std::vector<double> in_;
    std::vector<double> out_;
    std::vector<double> wide_;
};

/// Whether each rank speaks to each other one: of thousands there are too many connections for one machine.
bool connects_all(rc::collective_kind kind, std::string_view algorithm) {
    using enum rc::collective_kind;
    const bool of_blocks = kind == allgather || kind == reduce_scatter || kind == scan;
    return of_blocks &&
           (algorithm == "overlapped_flat_tree" || algorithm == "flat_tree" || algorithm == "pairwise");
}

/// No algorithm is faster: the steps in which news of one rank can reach all, and the bytes that one network card must send or take in.
double lower_bound(rc::collective_kind kind, std::size_t bytes, unsigned ranks, const rc::sim_costs& costs) {
    const auto nanoseconds = [](rc::duration d) {
        return std::chrono::duration<double, std::nano>(d).count();
    };
    const double steps = std::ceil(std::log2(ranks));
    const double each = nanoseconds(costs.latency) + 2 * nanoseconds(costs.overhead);
    const double share = static_cast<double>(ranks - 1) / ranks;
    double cards = 0;
    switch (kind) {
        case rc::collective_kind::allreduce: cards = 2 * share; break;
        case rc::collective_kind::allgather:
        case rc::collective_kind::reduce_scatter: cards = share; break;
        case rc::collective_kind::barrier: break;
        default: cards = 1;
    }
    const double per_byte = static_cast<double>(costs.picoseconds_per_byte) / 1000;
    return std::max(steps * each, cards * static_cast<double>(bytes) * per_byte + each);
}

double time_in_sim(unsigned ranks, rc::collective_kind kind, std::size_t bytes) {
    rc::sim_world world{rc::sim_world_options{}};
    rc::scheduler on{rc::idle::spin{}, world.time()};
    return on.run([](rc::sim_world& in, unsigned size, rc::collective_kind what,
                     std::size_t length) -> rc::task<double> {
        job_in_sim job(in, size);
        co_await job.open();
        // The first one makes the connections.
        static_cast<void>(co_await job.time(what, length));
        co_return co_await job.time(what, length);
    }(world, ranks, kind, bytes));
}

std::vector<std::string> split_list(const std::string& list) {
    std::vector<std::string> parts;
    std::istringstream from(list);
    for (std::string one; std::getline(from, one, ',');) parts.push_back(one);
    return parts;
}

void run(int argc, char** argv) {
    settings asked;
    asked.name = "collectives_model";
    std::string operations = "allreduce";
    std::string sizes = "8,65536";
    unsigned most = 256;
    std::vector<unsigned> only;
    std::string names;
    options app("Prints what collectives of many ranks take in a simulated network, by each algorithm.");
    app.add("--op", operations,
            "which, separated by commas: barrier, broadcast, reduce, allreduce, scan, allgather, "
            "reduce_scatter")
        .show_default();
    app.add("--sizes", sizes, "bytes of the whole, separated by commas").show_default();
    app.add("--ranks", most, "up to so many, in powers of two").between(2, 65536).show_default();
    app.add("--only-ranks", only, "these numbers, and no powers of two: 127,1000").separated_by(',');
    app.add("--algorithms", names, "these alone, separated by commas");
    app.add("--json", asked.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    report out(asked, {{"ranks", 8}, {"algorithm", 20}, {"time", 12}, {"of the bound", 14}, {"", 10}});
    for (const std::string& name : split_list(operations)) {
        auto kind = rc::collective_kind::barrier;
        while (rc::name_of(kind) != name) {
            if (kind == rc::collective_kind::exscan) throw usage_error("no collective is called " + name);
            kind = static_cast<rc::collective_kind>(static_cast<unsigned>(kind) + 1);
        }
        for (const std::string& length : split_list(sizes)) {
            const std::size_t bytes = std::stoul(length);
            out.section(name + (kind == rc::collective_kind::barrier ? "" : " of " + size_text(bytes)));
            std::vector<unsigned> counts = only;
            for (unsigned ranks = 2; ranks <= most && only.empty(); ranks *= 2) counts.push_back(ranks);
            for (const unsigned ranks : counts) {
                const double bound = lower_bound(kind, bytes, ranks, {});
                rc::collective_shape shape;
                shape.kind = kind;
                shape.ranks = ranks;
                const bool of_blocks =
                    kind == rc::collective_kind::allgather || kind == rc::collective_kind::reduce_scatter;
                shape.elements = of_blocks ? bytes / sizeof(double) / ranks : bytes / sizeof(double);
                shape.bytes = shape.elements * sizeof(double);
                const rc::algorithm* const chosen = rc::default_collectives::choose(shape);
                for (const rc::algorithm& one : rc::algorithms_of(kind)) {
                    if (!one.admits(shape) || (ranks > 256 && connects_all(kind, one.name))) continue;
                    const std::vector<std::string> chosen_names = split_list(names);
                    if (!names.empty() &&
                        std::find(chosen_names.begin(), chosen_names.end(), one.name) == chosen_names.end())
                        continue;
                    forced = &one;
                    const double took = time_in_sim(ranks, kind, bytes);
                    const bool is_default = chosen != nullptr && chosen->name == one.name;
                    out.row({std::to_string(ranks), std::string(one.name), time_text(took),
                             number_text(took / bound, 2) + " x", is_default ? "default" : ""},
                            {{"op", name},
                             {"bytes", bytes},
                             {"ranks", ranks},
                             {"algorithm", one.name},
                             {"virtual_ns", rounded(took)},
                             {"bound_ns", rounded(bound)},
                             {"default", is_default}});
                }
            }
            if (kind == rc::collective_kind::barrier) break;
        }
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("collectives_model", argc, argv, run); }
