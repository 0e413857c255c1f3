// progress: whether a transfer goes on while the side that began it does something else.
//
// One side begins a send or a receive with `start`, is away for a delay D without calling the library, and awaits it; the
// other blocks in the matching call. In the send test the time is the receiving side's, in the receive test the delaying
// side's own. D goes from 0 to four times the time without delay. The time that is left after the delay,
//
//     remaining = (latency - D) / latency without delay,
//
// is 0 (or less, shown as 0) when the transfer went on by itself and 1 when none of it happened during the delay. In the
// receive test the buffer's last byte is looked at during the delay, so that it is known whether the message had landed.

#include "common/order.hpp"
#include "common/report.hpp"
#include "common/statistics.hpp"

#include "../tools/pingpong/text.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <time.h>

namespace {

using namespace bench;
using pingpong::now_ticks;
using pingpong::tick_count;

enum class delay_kind : std::uint64_t { spin, sleep };
const std::vector<std::string_view> delay_names{"spin", "sleep"};

struct command {
    std::uint64_t count;  ///< messages; 0: nothing more is wanted
    std::uint64_t bytes;
    measured_side side;
    arrival_order order;
};

/// The last byte of message `index`: never that of the one before, nor 0.
std::byte last_byte(std::uint64_t index) { return static_cast<std::byte>(1 + index % 255); }

rc::task<> other_side(peer& delaying) {
    std::vector<std::byte> memory;
    for (;;) {
        const auto asked = co_await receive_value<command>(delaying, command_tag);
        if (asked.count == 0) co_return;
        memory.assign(static_cast<std::size_t>(asked.bytes), std::byte{0});
        for (std::uint64_t i = 0; i < asked.count; ++i) {
            if (asked.side == measured_side::receive) {
                memory.back() = last_byte(i);
                co_await blocking_send(delaying, memory, asked.order);
                continue;
            }
            const tick_count begin = now_ticks();
            co_await blocking_receive(delaying, memory, asked.order);
            const tick_count took = now_ticks() - begin;
            if (memory.back() != last_byte(i)) throw run_error("a message arrived with wrong contents");
            co_await send_value(delaying, took, go_tag);  // the acknowledgement
        }
    }
}

/// Whether the byte is there, read anew each time.
bool is_there(const std::byte& place, std::byte wanted) noexcept {
    const bool there = *const_cast<const volatile std::byte*>(&place) == wanted;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    return there;
}

class absence {
public:
    absence(delay_kind how, double ns, double ns_per_tick)
        : how_(how), ns_(ns), ticks_(static_cast<tick_count>(ns / ns_per_tick)) {}

    /// Is away. `look` is called all the time while spinning, once at the end of a sleep.
    template <class Look>
    void be(Look look) const {
        const tick_count begin = now_ticks();
        if (ns_ > 0 && how_ == delay_kind::sleep) {
            timespec left{static_cast<time_t>(ns_ / 1e9), static_cast<long>(ns_) % 1'000'000'000};
            while (::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {}
            look(now_ticks() - begin);
        } else if (ns_ > 0) {
            for (tick_count gone = 0; gone < ticks_; gone = now_ticks() - begin) look(gone);
        }
    }

private:
    delay_kind how_;
    double ns_;
    tick_count ticks_;
};

/// Of one message, in ticks.
struct single {
    tick_count latency = 0;
    tick_count delay = 0;   ///< as it was
    tick_count landed = 0;  ///< after the beginning of the delay; `not_seen`: not during it
    static constexpr tick_count not_seen = ~tick_count{0};
};

rc::task<single> delayed_send(peer& other, std::span<const std::byte> from, const absence& away) {
    single times;
    co_await receive_go(other);
    pending sending = pending::send(other, from, data_tag);
    const tick_count begin = now_ticks();
    away.be([](tick_count) {});
    times.delay = now_ticks() - begin;
    co_await sending;
    times.latency = co_await receive_value<tick_count>(other, go_tag);
    co_return times;
}

rc::task<single> delayed_receive(peer& other, std::span<std::byte> into, std::byte wanted,
                                 arrival_order order, const absence& away) {
    single times;
    times.landed = single::not_seen;
    const auto look = [&](tick_count gone) {
        if (times.landed == single::not_seen && is_there(into.back(), wanted)) times.landed = gone;
    };
    if (order == arrival_order::sender_first) {
        co_await send_go(other);
        co_await receive_go(other);
    }
    const tick_count begin = now_ticks();
    pending receiving = pending::recv(other, into, data_tag);
    const tick_count started = now_ticks() - begin;
    if (order == arrival_order::sender_first) {
        const tick_count left = now_ticks();
        away.be(look);
        const tick_count back = now_ticks();
        check_length(co_await receiving, into.size());
        times.latency = started + (now_ticks() - left);
        times.delay = back - left;
    } else {
        go_message behind(other);
        const tick_count left = now_ticks();
        away.be(look);
        const tick_count back = now_ticks();
        check_length(co_await receiving, into.size());
        times.latency = started + (now_ticks() - left);
        times.delay = back - left;
        co_await behind.sent;
    }
    if (!is_there(into.back(), wanted)) throw run_error("a message arrived with wrong contents");
    into.back() = std::byte{0};
    co_return times;
}

/// The medians over the messages of one delay.
struct point {
    double latency = 0;
    double delay = 0;
    double after = 0;  ///< latency - delay
    double landed_part = 0;
    double landed = 0;  ///< when, of those that did; 0 when none did
};

struct plan {
    std::vector<std::size_t> sides;
    std::vector<std::size_t> orders;
    std::vector<std::size_t> delays;
    std::uint64_t points;
};

class measurement {
public:
    measurement(const settings& asked, const plan& what, report& out)
        : asked_(asked), plan_(what), out_(out) {}

    rc::task<> measure(peer& other, const link_entry& link) {
        for (const std::size_t bytes : asked_.sizes) {
            check_size(other, link, bytes);
            for (const std::size_t side : plan_.sides) {
                for (const std::size_t order : plan_.orders) {
                    for (const std::size_t delay : plan_.delays) {
                        out_.section(std::string(link.transport) + ", " + std::string(link.protocol) + " (" +
                                     link.text + "), " + size_text(bytes) + ", " +
                                     std::string(side_names[side]) + " test, " +
                                     std::string(order_names[order]) + ", delay by " +
                                     std::string(delay_names[delay]));
                        co_await sweep(other, link, bytes, static_cast<measured_side>(side),
                                       static_cast<arrival_order>(order), static_cast<delay_kind>(delay));
                    }
                }
            }
        }
        co_await send_value(other, command{}, command_tag);
    }

private:
    static constexpr std::uint64_t warm_up = 20;
    static constexpr double most_delay = 4;  ///< times the latency without delay

    rc::task<point> messages(peer& other, measured_side side, arrival_order order, const absence& away) {
        const std::uint64_t count = warm_up + asked_.repeat;
        co_await send_value(other, command{count, memory_.size(), side, order}, command_tag);
        std::vector<double> latencies;
        std::vector<double> delays;
        std::vector<double> afters;
        std::vector<double> landings;
        for (std::uint64_t i = 0; i < count; ++i) {
            single one;
            if (side == measured_side::send) {
                memory_.back() = last_byte(i);
                one = co_await delayed_send(other, memory_, away);
            } else {
                one = co_await delayed_receive(other, memory_, last_byte(i), order, away);
            }
            watch::reached(++done_);
            if (i < warm_up) continue;
            const double latency = static_cast<double>(one.latency) * out_.ns_per_tick();
            const double delay = static_cast<double>(one.delay) * out_.ns_per_tick();
            latencies.push_back(latency);
            delays.push_back(delay);
            afters.push_back(latency - delay);
            if (side == measured_side::receive && one.landed != single::not_seen)
                landings.push_back(static_cast<double>(one.landed) * out_.ns_per_tick());
        }
        co_return point{median(latencies), median(delays), median(afters),
                        static_cast<double>(landings.size()) / static_cast<double>(asked_.repeat),
                        landings.empty() ? 0 : median(landings)};
    }

    rc::task<> sweep(peer& other, const link_entry& link, std::size_t bytes, measured_side side,
                     arrival_order order, delay_kind how) {
        memory_.assign(bytes, std::byte{0});
        done_ = 0;
        watch::expect(size_text(bytes), plan_.points * (warm_up + asked_.repeat));
        const std::string policy = other.policy_for(bytes);
        double undelayed = 0;
        for (std::uint64_t i = 0; i < plan_.points; ++i) {
            const double part = most_delay * static_cast<double>(i) / static_cast<double>(plan_.points - 1);
            const point at =
                co_await messages(other, side, order, absence(how, part * undelayed, out_.ns_per_tick()));
            if (i == 0) undelayed = at.latency;
            const double after = i == 0 ? at.latency : at.after;
            const double delay = i == 0 ? 0 : at.delay;
            const double remaining = std::max(0.0, after / undelayed);
            const bool looked = side == measured_side::receive && i != 0;
            nlohmann::ordered_json fields = {{"transport", link.transport},
                                             {"protocol", link.protocol},
                                             {"policy", policy},
                                             {"test", side_names[static_cast<std::size_t>(side)]},
                                             {"order", order_names[static_cast<std::size_t>(order)]},
                                             {"delay", delay_names[static_cast<std::size_t>(how)]},
                                             {"bytes", bytes},
                                             {"delay_ns", rounded(delay)},
                                             {"latency_ns", rounded(at.latency)},
                                             {"remaining", rounded(remaining)}};
            if (looked) {
                fields["landed_before_wait"] = rounded(at.landed_part);
                if (at.landed_part > 0 && how == delay_kind::spin) fields["landed_ns"] = rounded(at.landed);
            }
            out_.row({time_text(delay), time_text(at.latency), number_text(remaining, 3),
                      looked ? number_text(100 * at.landed_part, 0) + " %" : "-",
                      looked && at.landed_part > 0 && how == delay_kind::spin ? time_text(at.landed) : "-"},
                     std::move(fields));
        }
        watch::rest();
    }

    const settings& asked_;
    const plan& plan_;
    report& out_;
    std::vector<std::byte> memory_;
    std::uint64_t done_ = 0;
};

void run(int argc, char** argv) {
    command_line line("progress",
                      "Measures whether a transfer goes on while the side that began it is away: begins a "
                      "send or a receive, delays without calling the library, awaits it.",
                      {.sizes = "8K,256K,1M",
                       .repeat = "100",
                       .repeat_help = "Messages for each delay, whose medians count",
                       .rounds = ""});
    std::string sides = "all";
    std::string orders = "all";
    std::string delays = "all";
    std::string points = "9";
    line.add("--test", sides, "Which side delays: send, receive. Default: all").type_name("NAME,...");
    line.add("--order", orders, "Who comes first: sender-first, receiver-first. Default: all")
        .type_name("NAME,...");
    line.add("--delay", delays, "How a side is away: spin (keeps its CPU), sleep. Default: all")
        .type_name("NAME,...");
    line.add("--points", points, "Delays from 0 to four times the latency. Default: 9").type_name("N");
    if (!line.parse(argc, argv)) return;
    const plan what{parse_names("--test", sides, side_names), parse_names("--order", orders, order_names),
                    parse_names("--delay", delays, delay_names), parse_number("--points", points, 2, 1000)};
    // Otherwise a sleep may last 50 us longer than it should.
    ::prctl(PR_SET_TIMERSLACK, 1ul);
    report out(line.asked, {{"delay", 10}, {"latency", 10}, {"remaining", 9}, {"landed", 7}, {"when", 10}});
    measurement all(line.asked, what, out);
    for (const link_entry* link : line.asked.links) {
        run_pair(line.asked, *link, [&](peer& other) { return all.measure(other, *link); }, other_side);
    }
    out.finish();
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("progress", argc, argv, run); }
