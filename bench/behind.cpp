// behind: how long 8 bytes take that are sent while messages of 256 MiB are under way on the same link.
//
// Two processes on two CPUs, one scheduler each, which spin. One sends long messages one after the other; at random moments,
// between 100 us and 1 ms apart, it sends 8 bytes with the time. The other receives both. Two figures of each short message: from the
// call of `send`, and from the moment at which the program wanted to send it, which a copy of its own may delay. With `--alone`
// there are no long messages. Goal over shared memory: 100 us.

#include "common/pair.hpp"
#include "common/report.hpp"

#include <rdmacoro/rdmacoro.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using namespace bench;
using namespace std::chrono_literals;

struct asked_for {
    double seconds = 3;
    std::size_t bytes = 0;  ///< of a long message
    bool alone = false;
};

constexpr rc::tag_type long_tag = 1;
constexpr rc::tag_type short_tag = 2;
constexpr double goal_us = 100;  // over shared memory

/// In nanoseconds, the same in both processes.
std::int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// A short message: when it was sent, and when it was to be sent. Nothing else fits 8 bytes: nanoseconds of the run, and their lateness.
struct stamp {
    std::uint32_t sent_in_tens = 0;  ///< tens of nanoseconds since `begin`; of the last: how many came before
    std::uint32_t late = 0;          ///< nanoseconds from the moment it was due; `last`: no further one comes
    static constexpr std::uint32_t last = 0xffffffff;
};
static_assert(sizeof(stamp) == 8);

struct found {
    std::vector<double> from_send;  // microseconds
    std::vector<double> from_due;
    double gigabytes_a_second = 0;
    std::uint64_t messages = 0;  // long ones
    std::string policy;          // of long ones
};

// The endpoints are not type-erased as a `peer`: long messages replace what the caches hold, and the memory that each further level of
// calls touches doubles the time of a short message.

/// A message without a byte is the last.
template <class Endpoint>
rc::task<> send_long(Endpoint& over, std::span<const std::byte> memory, const bool& stop) {
    while (!stop) co_await over.send(memory, long_tag);
    co_await over.send(memory.first(0), long_tag);
}

template <class Endpoint>
rc::task<> send_short(Endpoint& over, std::int64_t begin, double seconds, bool& stop) {
    std::mt19937_64 random(1);
    const std::int64_t end = now() + static_cast<std::int64_t>(seconds * 1e9);
    stamp one;
    std::uint32_t sent = 0;
    do {
        const auto pause = static_cast<std::int64_t>(100'000 + random() % 900'000);
        const std::int64_t due = now() + pause;
        co_await rc::sleep_for(std::chrono::nanoseconds(pause));
        const std::int64_t is = now();
        one.sent_in_tens = static_cast<std::uint32_t>((is - begin) / 10);
        one.late = static_cast<std::uint32_t>(std::clamp<std::int64_t>(is - due, 0, stamp::last - 1));
        co_await over.send(rc::bytes_of(one), short_tag);
        ++sent;
    } while (now() < end);
    stop = true;
    one = {sent, stamp::last};
    co_await over.send(rc::bytes_of(one), short_tag);
}

template <class Endpoint>
rc::task<> receive_long(Endpoint& over, std::span<std::byte> memory, std::uint64_t& messages) {
    for (;;) {
        const rc::received got = co_await over.recv(memory, long_tag);
        if (got.bytes == 0) co_return;
        check_length(got, memory.size());
        ++messages;
    }
}

template <class Endpoint>
rc::task<> receive_short(Endpoint& over, std::int64_t begin, found& into) {
    const std::int64_t first = now();
    for (;;) {
        stamp one;
        co_await over.recv(rc::bytes_of(one), short_tag);
        const std::int64_t is = now();
        if (one.late == stamp::last) {
            if (one.sent_in_tens != into.from_send.size())
                throw run_error(std::to_string(into.from_send.size()) + " short messages came of " +
                                std::to_string(one.sent_in_tens));
            co_return;
        }
        const double took = static_cast<double>(is - begin - 10 * std::int64_t{one.sent_in_tens}) / 1e3;
        into.from_send.push_back(took);
        into.from_due.push_back(took + one.late / 1e3);
        watch::reached(static_cast<std::uint64_t>(is - first) / 1'000'000);
    }
}

template <class T, class P>
rc::task<> sending(std::string url, asked_for asked, std::int64_t begin,
                   const std::function<void(const std::string&)>& listening) {
    std::vector<std::byte> memory(asked.alone ? 1 : asked.bytes, std::byte{1});
    auto listener = co_await rc::listen<T, P>(url);
    listening(listener.address());
    auto over = co_await listener.accept();
    bool stop = asked.alone;
    rc::task_group both(rc::on_child_error::stop_others);
    both.spawn([&] { return send_long(over, memory, stop); });
    co_await rc::sleep_for(200ms);  // the long ones are well under way
    both.spawn([&] { return send_short(over, begin, asked.seconds, stop); });
    co_await both.join();
    co_await over.close();
}

template <class T, class P>
rc::task<> receiving(std::string address, asked_for asked, std::int64_t begin, found& made) {
    std::vector<std::byte> memory(asked.alone ? 1 : asked.bytes);
    auto over = co_await rc::connect<T, P>(address);
    made.policy = P::name_of(P::choose({asked.bytes, false}, over.link_capabilities()));
    const std::int64_t first = now();
    rc::task_group both(rc::on_child_error::stop_others);
    both.spawn([&] { return receive_long(over, memory, made.messages); });
    both.spawn([&] { return receive_short(over, begin, made); });
    co_await both.join();
    watch::rest();
    made.gigabytes_a_second = static_cast<double>(made.messages) * static_cast<double>(asked.bytes) /
                              static_cast<double>(now() - first);
    co_await over.close();
}

double at(const std::vector<double>& sorted, double share) {
    return sorted[std::min(sorted.size() - 1,
                           static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

template <class T, class P>
void row(const settings& all, const asked_for& asked, const char* list, const std::string& url, report& out) {
    const std::string transport(T::name);
    const std::string where = transport + ", " + list;
    found made;
    const std::int64_t begin = now();
    run_processes(
        all, where,
        [&](const auto& listening) {
            rc::scheduler on{rc::idle::spin{}};
            on.run(sending<T, P>(url, asked, begin, listening));
        },
        [&](const std::string& address) {
            watch::expect(where, static_cast<std::uint64_t>(asked.seconds * 1e3));
            rc::scheduler on{rc::idle::spin{}};
            on.run(receiving<T, P>(address, asked, begin, made));
        });
    std::ranges::sort(made.from_send);
    std::ranges::sort(made.from_due);
    const auto beyond = std::ranges::count_if(made.from_send, [](double one) { return one > goal_us; });
    const double percent = 100 * static_cast<double>(beyond) / static_cast<double>(made.from_send.size());
    const auto microseconds = [](double us) { return number_text(us, 1) + " us"; };
    nlohmann::ordered_json fields = {{"transport", transport},
                                     {"protocol", list},
                                     {"alone", asked.alone},
                                     {"messages", made.from_send.size()},
                                     {"from_send_p50_us", rounded(at(made.from_send, 0.5))},
                                     {"from_send_p99_us", rounded(at(made.from_send, 0.99))},
                                     {"from_send_max_us", rounded(made.from_send.back())},
                                     {"beyond_100_us_percent", rounded(percent)},
                                     {"from_due_p50_us", rounded(at(made.from_due, 0.5))},
                                     {"from_due_p99_us", rounded(at(made.from_due, 0.99))},
                                     {"from_due_max_us", rounded(made.from_due.back())}};
    if constexpr (std::is_same_v<T, rc::shm>) fields["goal_us"] = goal_us;
    if (!asked.alone) {
        fields["policy"] = made.policy;
        fields["bytes"] = asked.bytes;
        fields["long_messages"] = made.messages;
        fields["gigabytes_per_second"] = rounded(made.gigabytes_a_second);
    }
    out.row({list, std::to_string(made.from_send.size()), microseconds(at(made.from_send, 0.5)),
             microseconds(at(made.from_send, 0.99)), microseconds(made.from_send.back()),
             number_text(percent, 2) + " %", microseconds(at(made.from_due, 0.5)),
             microseconds(at(made.from_due, 0.99)), microseconds(made.from_due.back()),
             asked.alone ? "-" : number_text(made.gigabytes_a_second, 1) + " GB/s"},
            std::move(fields));
}

template <class T>
void table(const settings& all, const asked_for& asked, const std::string& url, report& out) {
    using rc::eager;
    constexpr bool shared_memory = std::is_same_v<T, rc::shm>;
    out.section("8 bytes over " + std::string(T::name) +
                (asked.alone ? ", alone" : ", behind messages of " + size_text(asked.bytes)) +
                (shared_memory ? " (goal: 100 us)" : ""));
    row<T, rc::default_protocols<T>>(all, asked, "default", url, out);
    if (asked.alone) return;
    row<T, rc::protocols<eager<>, rc::get_rendezvous<>>>(all, asked, "get", url, out);
    row<T, rc::protocols<eager<>, rc::put_rendezvous<>>>(all, asked, "put", url, out);
    if constexpr (shared_memory)
        row<T, rc::protocols<eager<>, rc::cooperative_rendezvous<>, rc::get_rendezvous<>>>(
            all, asked, "cooperative", url, out);
}

void run(int argc, char** argv) {
    settings all;
    all.name = "behind";
    asked_for asked;
    unsigned mebibytes = 256;
    std::string transports = "all";
    std::vector<std::string_view> known{"shm"};
#if RDMACORO_WITH_TCP
    known.push_back("tcp");
#endif
    std::string cpus;
    options app("Measures 8 bytes that are sent while long messages are under way on the same link.",
                all.name);
    app.add("--transport", transports, "over these: shm, tcp where it was built, or all")
        .type_name("NAME,...")
        .show_default();
    app.add("--seconds", asked.seconds, "how long each row is measured").within(0.01, 30.0).show_default();
    app.add("--mebibytes", mebibytes, "of a long message").between(1, 4096).show_default();
    app.add_flag("--alone", asked.alone, "without long messages");
    app.add("--cpus", cpus, "the receiver's and the sender's, such as 0,1; by default the first two");
    app.add("--timeout", all.timeout_seconds, "seconds without a message that end the program; 0: none do")
        .between(0, 1'000'000)
        .show_default();
    app.add("--json", all.json, "a file for the results; - for standard output");
    if (!app.parse(argc, argv)) return;
    asked.bytes = std::size_t{mebibytes} << 20;
    all.cpus = parse_sides(cpus, 2);
    const std::vector<std::size_t> chosen = parse_names("--transport", transports, known);
    report out(all, {{"list", 12},
                     {"messages", 8},
                     {"sent: p50", 11},
                     {"p99", 11},
                     {"max", 11},
                     {"> 100 us", 9},
                     {"due: p50", 11},
                     {"p99", 11},
                     {"max", 11},
                     {"long ones", 10}});
    for (const std::size_t which : chosen) {
        if (known[which] == "shm")
            table<rc::shm>(all, asked, "shm://behind-" + std::to_string(::getpid()), out);
#if RDMACORO_WITH_TCP
        else
            table<rc::tcp>(all, asked, "tcp://127.0.0.1:0", out);
#endif
    }
    out.finish({{"seconds", asked.seconds}, {"mebibytes", mebibytes}, {"alone", asked.alone}});
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program("behind", argc, argv, run); }
