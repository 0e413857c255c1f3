// exchange: the gain by overlap for a program that exchanges messages and computes.
//
// Two processes do the same, iteration by iteration; both send one message of --sizes bytes and receive one. Producing and
// consuming are computation of equal length, packing is a copy of the produced data into the message's memory.
//
//   model 1: receive(i) begins; pack(i); send(i) begins; produce(i+1); wait for the send, for the receive; consume(i)
//   model 2: pack(i); send(i) begins; consume(i-1); receive(i) begins; produce(i+1); wait for both
//
// The first production comes before the loop, and in model 2 the last consumption after it; the time of an iteration is
// that of the whole loop over their number. The communication time is an iteration's without computation (so it has the
// packing in it); the computation of an iteration is a multiple of that of the first list asked for, the same for every
// list: `comm/comp` is the one over the other. In model 2 two messages are under consideration at a time, so there are two
// buffers of each kind, in turn; model 1 does the same, so that both have as many. Rounds measure all lists in turn, the
// medians over them are shown, and how much shorter an iteration is than with the first list.

#include "common/pair.hpp"
#include "common/report.hpp"
#include "common/spin.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/text.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using namespace bench;
using pingpong::now_ticks;
using pingpong::tick_count;

enum class exchange_model : std::uint64_t { first, second };
const std::vector<std::string_view> model_names{"1", "2"};

struct command {
    std::uint64_t iterations;  ///< 0: nothing more is wanted
    std::uint64_t bytes;
    exchange_model model;
    std::uint64_t turns;  ///< of producing, and of consuming
};

/// One process's memory.
class buffers {
public:
    void prepare(std::size_t bytes) {
        for (auto* set : {&out_, &in_}) {
            for (auto& one : *set) one.assign(bytes, std::byte{0x5a});
        }
        produced_.assign(bytes, std::byte{0x5a});
    }
    [[nodiscard]] std::span<const std::byte> pack(std::uint64_t iteration) {
        std::vector<std::byte>& to = out_[iteration % 2];
        std::memcpy(to.data(), produced_.data(), to.size());
        return to;
    }
    [[nodiscard]] std::span<std::byte> in(std::uint64_t iteration) { return in_[iteration % 2]; }

private:
    std::array<std::vector<std::byte>, 2> out_;
    std::array<std::vector<std::byte>, 2> in_;
    std::vector<std::byte> produced_;
};

/// Both sides' part. Gives the ticks of the loop.
rc::task<tick_count> exchange_messages(peer& other, buffers& memory, command what) {
    const std::uint64_t turns = what.turns;
    compute(turns);  // the first production
    const tick_count begin = now_ticks();
    for (std::uint64_t i = 0; i < what.iterations; ++i) {
        if (what.model == exchange_model::first) {
            pending receiving = pending::recv(other, memory.in(i), data_tag);
            const std::span<const std::byte> message = memory.pack(i);
            pending sending = pending::send(other, message, data_tag);
            compute(turns);
            co_await sending;
            check_length(co_await receiving, message.size());
            compute(turns);
        } else {
            const std::span<const std::byte> message = memory.pack(i);
            pending sending = pending::send(other, message, data_tag);
            if (i != 0) compute(turns);
            pending receiving = pending::recv(other, memory.in(i), data_tag);
            compute(turns);
            co_await sending;
            check_length(co_await receiving, message.size());
        }
        watch::reached(i);
    }
    if (what.model == exchange_model::second) compute(turns);
    co_return now_ticks() - begin;
}

rc::task<> other_side(peer& measuring) {
    buffers memory;
    for (;;) {
        const auto what = co_await receive_value<command>(measuring, command_tag);
        if (what.iterations == 0) co_return;
        memory.prepare(static_cast<std::size_t>(what.bytes));
        co_await send_go(measuring);
        static_cast<void>(co_await exchange_messages(measuring, memory, what));
    }
}

class measurement {
public:
    measurement(const settings& asked, std::vector<std::size_t> models, std::vector<double> ratios,
                report& out)
        : asked_(asked),
          models_(std::move(models)),
          ratios_(std::move(ratios)),
          out_(out),
          clock_(out.ns_per_tick()) {}

    /// One round over one link.
    rc::task<> measure(peer& other, const link_entry& link) {
        for (const std::size_t bytes : asked_.sizes) {
            check_size(other, link, bytes);
            policies_[{&link, bytes}] = other.policy_for(bytes);
            for (const std::size_t model : models_) {
                const double alone = co_await iteration(other, bytes, model, 0);
                times_[{&link, bytes, model, 0}].push_back(alone);
                const auto [base, first] = bases_.try_emplace({link.transport, bytes, model}, alone);
                static_cast<void>(first);
                for (std::size_t r = 0; r < ratios_.size(); ++r) {
                    const std::uint64_t turns = clock_.turns_for(base->second / ratios_[r] / 2);
                    const double took = co_await iteration(other, bytes, model, turns);
                    times_[{&link, bytes, model, r + 1}].push_back(took);
                }
            }
        }
        co_await send_value(other, command{}, command_tag);
    }

    void print_results() {
        for (const transport_entry* transport : asked_.transports) {
            for (const std::size_t bytes : asked_.sizes) {
                for (const std::size_t model : models_) {
                    out_.section(std::string(transport->name) + ", " + size_text(bytes) + ", model " +
                                 std::string(model_names[model]));
                    for (std::size_t r = 0; r <= ratios_.size(); ++r)
                        print_ratio(*transport, bytes, model, r);
                }
            }
        }
    }

private:
    rc::task<double> iteration(peer& other, std::size_t bytes, std::size_t model, std::uint64_t turns) {
        const exchange_model which = static_cast<exchange_model>(model);
        memory_.prepare(bytes);
        // The first messages are not counted.
        const std::array<std::uint64_t, 2> counts{10, asked_.repeat};
        for (const std::uint64_t count : counts) {
            const command what{count, bytes, which, turns};
            co_await send_value(other, what, command_tag);
            co_await receive_go(other);
            watch::expect("model " + std::string(model_names[model]) + ", " + size_text(bytes), count);
            ticks_ = co_await exchange_messages(other, memory_, what);
            watch::rest();
        }
        co_return static_cast<double>(ticks_) * out_.ns_per_tick() / static_cast<double>(asked_.repeat);
    }

    /// `r`: 0 is without computation.
    void print_ratio(const transport_entry& transport, std::size_t bytes, std::size_t model, std::size_t r) {
        double first = 0;
        for (const link_entry* link : asked_.links) {
            if (link->transport != transport.name) continue;
            const double took = median(times_.at({link, bytes, model, r}));
            if (first == 0) first = took;
            const double comm = bases_.at({transport.name, bytes, model});
            const double comp = r == 0 ? 0 : comm / ratios_[r - 1];
            const double shorter = 1 - took / first;
            const std::string& policy = policies_.at({link, bytes});
            out_.row({r == 0 ? "no comp" : number_text(ratios_[r - 1], 2), std::string(link->protocol),
                      policy, time_text(comp), time_text(took), number_text(100 * shorter, 1) + " %"},
                     {{"transport", transport.name},
                      {"protocol", link->protocol},
                      {"policy", policy},
                      {"bytes", bytes},
                      {"model", model_names[model]},
                      {"comm_over_comp",
                       r == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(rounded(ratios_[r - 1]))},
                      {"computation_ns", rounded(comp)},
                      {"iteration_ns", rounded(took)},
                      {"shorter", rounded(shorter)}});
        }
    }

    const settings& asked_;
    std::vector<std::size_t> models_;
    std::vector<double> ratios_;
    report& out_;
    compute_clock clock_;
    buffers memory_;
    tick_count ticks_ = 0;
    std::map<std::tuple<const link_entry*, std::size_t, std::size_t, std::size_t>, std::vector<double>>
        times_;
    std::map<std::tuple<std::string_view, std::size_t, std::size_t>, double> bases_;
    std::map<std::pair<const link_entry*, std::size_t>, std::string> policies_;
};

std::vector<double> parse_ratios(const std::string& list) {
    std::vector<double> ratios;
    for (const std::string& item : pingpong::split_at_commas(list)) {
        char* end = nullptr;
        const double ratio = std::strtod(item.c_str(), &end);
        if (item.empty() || *end != '\0' || !(ratio >= 0.01 && ratio <= 100))
            throw usage_error("--ratios: \"" + item + "\" is not a number from 0.01 to 100");
        ratios.push_back(ratio);
    }
    return ratios;
}

void run(int argc, char** argv) {
    command_line line(
        "exchange",
        "Measures two programs that exchange messages and compute, in two orders, with more and "
        "less computation.",
        {.protocols = "all",
         .sizes = "128K",
         .repeat = "300",
         .repeat_help = "Iterations of each loop",
         .rounds = "3"});
    std::string models = "all";
    std::string ratios = "0.2,0.4,0.5,0.6,0.8,1,1.5,2";
    line.add("--model", models,
             "1 (receive, pack, send, produce, wait, consume), 2 (pack, send, consume, receive, "
             "produce, wait). Default: all")
        .type_name("N,...");
    line.add("--ratios", ratios, "Communication time over computation time. Default: " + ratios)
        .type_name("R,...");
    if (!line.parse(argc, argv)) return;
    const std::vector<std::size_t> which = parse_names("--model", models, model_names);
    const std::vector<double> parsed = parse_ratios(ratios);
    report out(line.asked, {{"comm/comp", 9},
                            {"protocol", 12},
                            {"policy", 24},
                            {"comp", 10},
                            {"iteration", 10},
                            {"shorter", 8}});
    measurement all(line.asked, which, parsed, out);
    for (std::uint64_t round = 0; round < line.asked.rounds; ++round) {
        for (const link_entry* link : line.asked.links) {
            run_pair(line.asked, *link, [&](peer& other) { return all.measure(other, *link); }, other_side);
        }
    }
    all.print_results();
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("exchange", argc, argv, run); }
