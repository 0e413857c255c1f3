// overlap: how much of a transfer a computation beside it hides.
//
// One side begins a send or a receive with `start`, computes without calling the library, and awaits it; the other side
// blocks in the matching call. The computation grows by 10 % a step until the loop takes more than 1.1 times as long as
// without one; see common/overlap_search.hpp for the arithmetic. Every time is the median of --repeat loops; a step
// that is too long is measured once more, and the better time counts, so that one disturbance does not end the search.

#include "common/order.hpp"
#include "common/overlap_search.hpp"
#include "common/report.hpp"
#include "common/spin.hpp"
#include "common/statistics.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace bench;

/// A request of the measuring side to the other.
struct command {
    std::uint64_t count;  ///< loops; 0: nothing more is wanted
    std::uint64_t bytes;
    measured_side side;
    arrival_order order;
};

rc::task<> other_side(peer& measuring) {
    std::vector<std::byte> memory;
    for (;;) {
        const auto asked = co_await receive_value<command>(measuring, command_tag);
        if (asked.count == 0) co_return;
        memory.resize(static_cast<std::size_t>(asked.bytes), std::byte{0x5a});
        for (std::uint64_t i = 0; i < asked.count; ++i) {
            if (asked.side == measured_side::send) {
                co_await blocking_receive(measuring, memory, asked.order);
            } else {
                co_await blocking_send(measuring, memory, asked.order);
            }
        }
        co_await send_go(measuring);
    }
}

using pingpong::now_ticks;
using pingpong::tick_count;

rc::task<tick_count> timed_send(peer& other, std::span<const std::byte> from, std::uint64_t turns) {
    co_await receive_go(other);
    const tick_count begin = now_ticks();
    pending sending = pending::send(other, from, data_tag);
    compute(turns);
    co_await sending;
    co_return now_ticks() - begin;
}

rc::task<tick_count> timed_receive(peer& other, std::span<std::byte> into, arrival_order order,
                                   std::uint64_t turns) {
    if (order == arrival_order::sender_first) {
        co_await send_go(other);
        co_await receive_go(other);
    }
    const tick_count begin = now_ticks();
    pending receiving = pending::recv(other, into, data_tag);
    if (order == arrival_order::sender_first) {
        compute(turns);
        check_length(co_await receiving, into.size());
        co_return now_ticks() - begin;
    }
    const tick_count started = now_ticks() - begin;
    go_message behind(other);
    const tick_count again = now_ticks();
    compute(turns);
    check_length(co_await receiving, into.size());
    const tick_count took = started + (now_ticks() - again);
    co_await behind.sent;
    co_return took;
}

/// Options beside the common settings.
struct plan {
    std::vector<std::size_t> sides;
    std::vector<std::size_t> orders;
};

class measurement {
public:
    measurement(const settings& asked, const plan& what, report& out)
        : asked_(asked), plan_(what), out_(out), clock_(out.ns_per_tick()) {}

    rc::task<> measure(peer& other, const link_entry& link) {
        for (const std::size_t side : plan_.sides) {
            for (const std::size_t order : plan_.orders) {
                out_.section(std::string(link.transport) + ", " + std::string(link.protocol) + " (" +
                             link.text + "), " + std::string(side_names[side]) + " test, " +
                             std::string(order_names[order]));
                for (const std::size_t bytes : asked_.sizes) {
                    check_size(other, link, bytes);
                    co_await measure_one(other, link, static_cast<measured_side>(side),
                                         static_cast<arrival_order>(order), bytes);
                }
            }
        }
        co_await send_value(other, command{}, command_tag);
    }

private:
    static constexpr std::uint64_t warm_up = 20;

    /// The median of the loop's time with so much computation, in ns.
    rc::task<double> loop(peer& other, measured_side side, arrival_order order, std::uint64_t turns) {
        const std::uint64_t count = warm_up + asked_.repeat;
        co_await send_value(other, command{count, memory_.size(), side, order}, command_tag);
        times_.clear();
        for (std::uint64_t i = 0; i < count; ++i) {
            tick_count took = 0;
            if (side == measured_side::send) {
                took = co_await timed_send(other, memory_, turns);
            } else {
                took = co_await timed_receive(other, memory_, order, turns);
            }
            if (i >= warm_up) times_.push_back(static_cast<double>(took) * out_.ns_per_tick());
            watch::reached(++loops_);
        }
        co_await receive_go(other);
        co_return median(times_);
    }

    rc::task<> measure_one(peer& other, const link_entry& link, measured_side side, arrival_order order,
                           std::size_t bytes) {
        memory_.assign(bytes, std::byte{0x5a});
        loops_ = 0;
        // About 48 steps where all is hidden.
        watch::expect(size_text(bytes), 50 * (warm_up + asked_.repeat));
        const double no_computation = co_await loop(other, side, order, 0);
        overlap_search search(no_computation);
        while (search.goes_on()) {
            const std::uint64_t turns = clock_.turns_for(search.next());
            const double alone = turns == 0 ? 0 : clock_.measure(turns);
            double took = co_await loop(other, side, order, turns);
            if (search.too_long(took)) {
                const double again = co_await loop(other, side, order, turns);
                took = std::min(took, again);
            }
            search.took(alone, took);
        }
        watch::rest();

        const std::string policy = other.policy_for(bytes);
        nlohmann::ordered_json steps = nlohmann::ordered_json::array();
        for (const overlap_search::step& one : search.steps())
            steps.push_back({rounded(one.computation), rounded(one.loop)});
        out_.row({size_text(bytes), policy, time_text(search.no_computation()),
                  std::to_string(search.steps().size()), time_text(search.last().computation),
                  time_text(search.last().loop), number_text(search.ratio(), 3)},
                 {{"transport", link.transport},
                  {"protocol", link.protocol},
                  {"policy", policy},
                  {"test", side_names[static_cast<std::size_t>(side)]},
                  {"order", order_names[static_cast<std::size_t>(order)]},
                  {"bytes", bytes},
                  {"l0_ns", rounded(search.no_computation())},
                  {"c_ns", rounded(search.last().computation)},
                  {"l_ns", rounded(search.last().loop)},
                  {"ratio", rounded(search.ratio())},
                  {"steps", std::move(steps)}});
    }

    const settings& asked_;
    const plan& plan_;
    report& out_;
    compute_clock clock_;
    std::vector<std::byte> memory_;
    std::vector<double> times_;
    std::uint64_t loops_ = 0;
};

void run(int argc, char** argv) {
    command_line line("overlap",
                      "Measures how much of a transfer a computation beside it hides: begins a send or a "
                      "receive, computes, awaits it. "
                      "The ratio is 1 when all of it is hidden, 0 when nothing is.",
                      {.sizes = "8K,64K,256K,1M",
                       .repeat = "100",
                       .repeat_help = "Loops for each time, whose median counts",
                       .rounds = ""});
    std::string sides = "all";
    std::string orders = "all";
    line.add("--test", sides, "Which side is measured: send, receive. Default: all").type_name("NAME,...");
    line.add("--order", orders, "Who comes first: sender-first, receiver-first. Default: all")
        .type_name("NAME,...");
    if (!line.parse(argc, argv)) return;
    const plan what{parse_names("--test", sides, side_names), parse_names("--order", orders, order_names)};
    report out(line.asked,
               {{"size", 6}, {"policy", 16}, {"l0", 10}, {"steps", 6}, {"c", 10}, {"l", 10}, {"overlap", 8}});
    measurement all(line.asked, what, out);
    for (const link_entry* link : line.asked.links) {
        run_pair(line.asked, *link, [&](peer& other) { return all.measure(other, *link); }, other_side);
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("overlap", argc, argv, run); }
