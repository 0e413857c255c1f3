// reuse: the gain by sending from and receiving into memory that has been used before.
//
// Ping-pong between two processes, each with a set of send buffers and a set of receive buffers. Of the iterations 0 %, 50 %
// or 100 % use the buffers of the one before, the others take ones that were never used for a message; every pattern has as
// many iterations as the 0 % pattern takes buffers. Each round has newly mapped memory, touched before it
// is used. The time is half a round trip, the mean of a round; the medians over the rounds are shown.
//
// --spectrum: --buffers send buffers (1000), buffer number i is sent from i times in a row, for i from 1 on; one receive
// buffer. They lie back to back, or in pages of their own. The time is half a round trip, the mean of all.

#include "common/pair.hpp"
#include "common/report.hpp"
#include "common/statistics.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace {

using namespace bench;
using pingpong::now_ticks;
using pingpong::tick_count;

constexpr std::size_t page = 4096;
constexpr std::size_t most_memory = std::size_t{256} << 20;  // of a set of buffers

/// Newly mapped memory for buffers of one length.
class buffer_set {
public:
    /// `stride`: from the beginning of one to the next.
    buffer_set(std::size_t count, std::size_t bytes, std::size_t stride)
        : length_(count * stride), bytes_(bytes), stride_(stride) {
        void* const got =
            ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED) throw std::system_error(errno, std::system_category(), "mmap");
        memory_ = static_cast<std::byte*>(got);
        std::memset(memory_, 0x5a, length_);
    }
    buffer_set(const buffer_set&) = delete;
    buffer_set& operator=(const buffer_set&) = delete;
    ~buffer_set() { ::munmap(memory_, length_); }

    [[nodiscard]] std::span<std::byte> operator[](std::size_t index) const noexcept {
        return {memory_ + index * stride_, bytes_};
    }

private:
    std::size_t length_;
    std::size_t bytes_;
    std::size_t stride_;
    std::byte* memory_ = nullptr;
};

std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

enum class pattern : std::uint64_t { none, half, full, packed, pages };
constexpr std::array<pattern, 3> reuse_patterns{pattern::none, pattern::half, pattern::full};
const std::vector<std::string_view> layout_names{"packed", "pages"};

struct command {
    std::uint64_t count;  ///< iterations, or buffers of the spectrum; 0: nothing more is wanted
    std::uint64_t bytes;
    pattern how;
};

/// The buffer of iteration `i`.
std::size_t buffer_of(pattern how, std::size_t i) {
    return how == pattern::full ? 0 : how == pattern::half ? i / 2 : i;
}

rc::task<tick_count> ask(peer& other, command what, const buffer_set& out, const buffer_set& in) {
    const bool spectrum = what.how == pattern::packed || what.how == pattern::pages;
    const tick_count begin = now_ticks();
    std::uint64_t done = 0;
    for (std::size_t i = 0; i < what.count; ++i) {
        const std::size_t at = buffer_of(what.how, i);
        for (std::size_t times = spectrum ? i + 1 : 1; times != 0; --times) {
            pending sending = pending::send(other, out[at], data_tag);
            co_await sending;
            pending receiving = pending::recv(other, in[spectrum ? 0 : at], data_tag);
            check_length(co_await receiving, static_cast<std::size_t>(what.bytes));
            watch::reached(++done);
        }
    }
    co_return now_ticks() - begin;
}

rc::task<> answer(peer& other, command what, const buffer_set& out, const buffer_set& in) {
    const bool spectrum = what.how == pattern::packed || what.how == pattern::pages;
    for (std::size_t i = 0; i < what.count; ++i) {
        const std::size_t at = buffer_of(what.how, i);
        for (std::size_t times = spectrum ? i + 1 : 1; times != 0; --times) {
            pending receiving = pending::recv(other, in[spectrum ? 0 : at], data_tag);
            check_length(co_await receiving, static_cast<std::size_t>(what.bytes));
            pending sending = pending::send(other, out[at], data_tag);
            co_await sending;
        }
    }
}

/// The memory of one round, mapped when this is made.
struct round_memory {
    explicit round_memory(const command& what)
        : spectrum(what.how == pattern::packed || what.how == pattern::pages),
          bytes(static_cast<std::size_t>(what.bytes)),
          count(static_cast<std::size_t>(what.count)),
          out(count, bytes, what.how == pattern::packed ? bytes : whole_pages(bytes)),
          in(spectrum ? 1 : count, bytes, whole_pages(bytes)) {}
    bool spectrum;
    std::size_t bytes;
    std::size_t count;
    buffer_set out;
    buffer_set in;
};

rc::task<> other_side(peer& measuring) {
    for (;;) {
        const auto what = co_await receive_value<command>(measuring, command_tag);
        if (what.count == 0) co_return;
        const round_memory memory(what);
        co_await send_go(measuring);
        co_await answer(measuring, what, memory.out, memory.in);
    }
}

class measurement {
public:
    measurement(const settings& asked, report& out) : asked_(asked), out_(out) {}

    /// One round of the patterns of reuse over one link.
    rc::task<> measure_reuse(peer& other, const link_entry& link) {
        for (const std::size_t bytes : asked_.sizes) {
            check_size(other, link, bytes);
            policies_[{&link, bytes}] = other.policy_for(bytes);
            const std::uint64_t count = iterations(bytes);
            for (const pattern how : reuse_patterns) {
                // A short round first, for the work that the library does once.
                const command first{std::min<std::uint64_t>(4, count), bytes, how};
                static_cast<void>(co_await half_round_trip(other, first));
                const command what{count, bytes, how};
                const double took = co_await half_round_trip(other, what);
                times_[{&link, bytes, how}].push_back(took);
            }
        }
        co_await send_value(other, command{}, command_tag);
    }

    rc::task<> measure_spectrum(peer& other, const link_entry& link, std::uint64_t buffers,
                                const std::vector<std::size_t>& layouts) {
        for (const std::size_t bytes : asked_.sizes) {
            check_size(other, link, bytes);
            if (buffers * whole_pages(bytes) > 4 * most_memory)
                throw run_error("--buffers: " + std::to_string(buffers) + " buffers of " + size_text(bytes) +
                                " are more than 1G");
            policies_[{&link, bytes}] = other.policy_for(bytes);
            for (const std::size_t layout : layouts) {
                const pattern how = layout == 0 ? pattern::packed : pattern::pages;
                const rc::metrics before = other.counts();
                const command what{buffers, bytes, how};
                const double took = co_await half_round_trip(other, what);
                times_[{&link, bytes, how}].push_back(took);
                in_place_[{&link, bytes, how}] = {other.counts().in_place_sent - before.in_place_sent,
                                                  other.counts().reuse_registrations -
                                                      before.reuse_registrations};
            }
        }
        co_await send_value(other, command{}, command_tag);
    }

    void print_reuse() {
        for (const link_entry* link : asked_.links) {
            out_.section(std::string(link->transport) + ", " + std::string(link->protocol) + " (" +
                         link->text + ")");
            for (const std::size_t bytes : asked_.sizes) {
                const double none = median(times_.at({link, bytes, pattern::none}));
                const double half = median(times_.at({link, bytes, pattern::half}));
                const double full = median(times_.at({link, bytes, pattern::full}));
                const std::string& policy = policies_.at({link, bytes});
                out_.row({size_text(bytes), policy, std::to_string(iterations(bytes)), time_text(none),
                          time_text(half), time_text(full), number_text(none / full, 3)},
                         {{"transport", link->transport},
                          {"protocol", link->protocol},
                          {"policy", policy},
                          {"bytes", bytes},
                          {"iterations", iterations(bytes)},
                          {"reuse_0_ns", rounded(none)},
                          {"reuse_50_ns", rounded(half)},
                          {"reuse_100_ns", rounded(full)},
                          {"ratio", rounded(none / full)}});
            }
        }
    }

    void print_spectrum(std::uint64_t buffers, const std::vector<std::size_t>& layouts) {
        for (const transport_entry* transport : asked_.transports) {
            out_.section(std::string(transport->name) + ", " + std::to_string(buffers) +
                         " buffers, number i used i times");
            for (const std::size_t bytes : asked_.sizes) {
                for (const std::size_t layout : layouts) {
                    const pattern how = layout == 0 ? pattern::packed : pattern::pages;
                    double first = 0;
                    for (const link_entry* link : asked_.links) {
                        if (link->transport != transport->name) continue;
                        const double took = median(times_.at({link, bytes, how}));
                        if (first == 0) first = took;
                        const auto [in_place, registrations] = in_place_.at({link, bytes, how});
                        out_.row({size_text(bytes), std::string(layout_names[layout]),
                                  std::string(link->protocol), time_text(took),
                                  number_text(100 * (1 - took / first), 1) + " %", std::to_string(in_place),
                                  std::to_string(registrations)},
                                 {{"transport", transport->name},
                                  {"protocol", link->protocol},
                                  {"policy", policies_.at({link, bytes})},
                                  {"bytes", bytes},
                                  {"layout", layout_names[layout]},
                                  {"buffers", buffers},
                                  {"latency_ns", rounded(took)},
                                  {"shorter", rounded(1 - took / first)},
                                  {"in_place", in_place},
                                  {"registrations", registrations}});
                    }
                }
            }
        }
    }

private:
    using key = std::tuple<const link_entry*, std::size_t, pattern>;

    [[nodiscard]] std::uint64_t iterations(std::size_t bytes) const {
        return std::clamp<std::uint64_t>(most_memory / whole_pages(bytes), 4, asked_.repeat);
    }

    rc::task<double> half_round_trip(peer& other, command what) {
        co_await send_value(other, what, command_tag);
        const round_memory memory(what);
        co_await receive_go(other);
        const std::uint64_t count = memory.spectrum ? what.count * (what.count + 1) / 2 : what.count;
        watch::expect(size_text(memory.bytes), count);
        const tick_count took = co_await ask(other, what, memory.out, memory.in);
        watch::rest();
        co_return static_cast<double>(took) * out_.ns_per_tick() / static_cast<double>(count) / 2;
    }

    const settings& asked_;
    report& out_;
    std::map<key, std::vector<double>> times_;
    std::map<key, std::pair<std::uint64_t, std::uint64_t>> in_place_;
    std::map<std::pair<const link_entry*, std::size_t>, std::string> policies_;
};

void run(int argc, char** argv) {
    command_line line(
        "reuse",
        "Measures ping-pong with 0 %, 50 % and 100 % of the messages in buffers that were used "
        "just before, or a spectrum of buffers that are used more and more often.",
        {.protocols = "auto",
         .sizes = "512,4K,16K,64K,256K,1M",
         .repeat = "200",
         .repeat_help = "Iterations of a round; fewer where a set of buffers would take more than 256M",
         .rounds = "5"});
    bool spectrum = false;
    std::string buffers = "1000";
    std::string layouts = "all";
    line.add_flag("--spectrum", spectrum, "Buffer number i is sent from i times");
    line.add("--buffers", buffers, "With --spectrum: how many. Default: 1000").type_name("N");
    line.add("--layout", layouts,
             "With --spectrum: packed (back to back), pages (each in pages of its own). Default: all")
        .type_name("NAME,...");
    if (!line.parse(argc, argv)) return;
    const std::vector<std::size_t> which = parse_names("--layout", layouts, layout_names);
    const std::uint64_t many = parse_number("--buffers", buffers, 1, 100'000);
    std::vector<column> columns = {{"size", 6},  {"policy", 24}, {"iterations", 10}, {"0 %", 10},
                                   {"50 %", 10}, {"100 %", 10},  {"0 %/100 %", 9}};
    if (spectrum) {
        columns = {{"size", 6},    {"layout", 7},   {"protocol", 12},  {"latency", 10},
                   {"shorter", 8}, {"in place", 9}, {"registered", 10}};
    }
    report out(line.asked, columns);
    measurement all(line.asked, out);
    for (std::uint64_t round = 0; round < line.asked.rounds; ++round) {
        for (const link_entry* link : line.asked.links) {
            run_pair(
                line.asked, *link,
                [&](peer& other) {
                    return spectrum ? all.measure_spectrum(other, *link, many, which)
                                    : all.measure_reuse(other, *link);
                },
                other_side);
        }
    }
    if (spectrum) {
        all.print_spectrum(many, which);
    } else {
        all.print_reuse();
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("reuse", argc, argv, run); }
