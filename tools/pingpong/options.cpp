#include "options.hpp"

#include "cpus.hpp"
#include "failure.hpp"
#include "output.hpp"
#include "sizes.hpp"
#include "text.hpp"
#include "transports.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>

namespace pingpong {

namespace {

constexpr std::uint64_t most_iterations = std::uint64_t{1} << 40;
constexpr std::uint64_t most_window = 65536;
constexpr std::uint64_t most_threads = 256;

std::uint64_t parse_number(const char* option, const std::string& text, std::uint64_t least,
                           std::uint64_t most) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || number < least || number > most) {
        throw usage_error(std::string(option) + ": \"" + text + "\" is not a number from " +
                          std::to_string(least) + " to " + std::to_string(most));
    }
    return number;
}

/// A number, or nothing for "auto".
std::optional<std::uint64_t> parse_automatic(const char* option, const std::string& text,
                                             std::uint64_t most) {
    if (text == "auto") return std::nullopt;
    return parse_number(option, text, 0, most);
}

std::vector<test_kind> parse_tests(const std::string& list) {
    std::vector<test_kind> tests;
    for (const std::string& name : split_at_commas(list)) {
        bool found = false;
        for (const test_facts& test : all_tests) {
            if (test.name != name) continue;
            tests.push_back(test.kind);
            found = true;
        }
        if (found) continue;
        std::string names;
        for (const test_facts& test : all_tests) append_item(names, test.name);
        throw usage_error("--test: there is no test \"" + name + "\"; there are " + names);
    }
    return tests;
}

idle_kind parse_idle(const std::string& name) {
    for (std::size_t i = 0; i < idle_names.size(); ++i) {
        if (idle_names[i] == name) return static_cast<idle_kind>(i);
    }
    throw usage_error("--idle: there is no strategy \"" + name + "\"; there are spin, yield, adaptive");
}

url parse_url(std::string text, const std::string& transport, std::string& provider) {
    std::size_t colon = text.find("://");
    if (colon == std::string::npos) {
        if (transport.empty()) throw usage_error("\"" + text + "\" is no address; write " + address_forms());
        text.insert(0, transport + "://");
        colon = transport.size();
    } else if (!transport.empty() && text.compare(0, colon, transport) != 0) {
        throw usage_error("--transport " + transport + " and \"" + text + "\" contradict each other");
    }
    // ofi+tcp://HOST:PORT is ofi://HOST:PORT with the provider tcp.
    constexpr std::string_view ofi = "ofi+";
    if (text.compare(0, ofi.size(), ofi) == 0) {
        const std::string named = text.substr(ofi.size(), colon - ofi.size());
        if (provider.empty()) provider = named;
        if (provider != named)
            throw usage_error("--provider " + provider + " and \"" + text + "\" contradict each other");
        text.erase(ofi.size() - 1, named.size() + 1);
        colon = ofi.size() - 1;
    }
    url parsed{text.substr(0, colon), text};
    if (find_transport(parsed.scheme) == nullptr) {
        throw usage_error("\"" + text + "\": there is no transport \"" + parsed.scheme +
                          "\" in this build; write " + address_forms());
    }
    return parsed;
}

/// The options as text.
struct raw_options {
    std::string connect;
    std::string listen;
    std::string pair;
    std::string transport;
    std::string device;
    std::string port;
    std::string gid_index;
    std::string connect_by;
    std::string provider;
    std::string tests = "latency,rate,bandwidth";
    std::string sizes;
    std::string window;
    std::string buffers;
    std::string iterations = "auto";
    std::string warmup = "auto";
    std::string idle;
    std::string cpus;
    std::string threads = "1";
    std::string timeout = "60";
    std::string spoil;
};

void interpret_address(raw_options& raw, options& parsed) {
    const int addresses = !raw.connect.empty() + !raw.listen.empty() + !raw.pair.empty();
    if (addresses != 1) {
        throw usage_error(
            std::string(addresses == 0 ? "no address" : "more than one address") +
            ": write --listen URL on one side and URL on the other, or --pair URL; --help says more");
    }
    if (!raw.listen.empty()) {
        parsed.as = options::role::listen;
        parsed.where = parse_url(raw.listen, raw.transport, raw.provider);
    } else if (!raw.pair.empty()) {
        parsed.as = options::role::pair;
        parsed.where = parse_url(raw.pair, raw.transport, raw.provider);
    } else {
        parsed.where = parse_url(raw.connect, raw.transport, raw.provider);
    }
    if (parsed.forever && parsed.as != options::role::listen)
        throw usage_error("--forever goes with --listen");
    static_cast<void>(find_list(*find_transport(parsed.where.scheme), parsed.protocol));
}

/// Options of one transport go into the environment, which its domain reads, here and in a process of the pair.
void interpret_device(const raw_options& raw, const options& parsed) {
    const auto pass_on = [&](const char* option, const std::string& value, std::string_view scheme,
                             const char* variable) {
        if (value.empty()) return;
        if (parsed.where.scheme != scheme)
            throw usage_error(std::string(option) + " goes with " + std::string(scheme) + "://");
        if (::setenv(variable, value.c_str(), 1) != 0) throw usage_error(std::string(option) + ": no memory");
    };
    if (!raw.port.empty()) static_cast<void>(parse_number("--port", raw.port, 1, 255));
    if (!raw.gid_index.empty()) static_cast<void>(parse_number("--gid-index", raw.gid_index, 0, 255));
    pass_on("--device", raw.device, "verbs", "RDMACORO_VERBS_DEVICE");
    pass_on("--port", raw.port, "verbs", "RDMACORO_VERBS_PORT");
    pass_on("--gid-index", raw.gid_index, "verbs", "RDMACORO_VERBS_GID_INDEX");
    pass_on("--connect-by", raw.connect_by, "verbs", "RDMACORO_VERBS_CONNECT_BY");
    pass_on("--provider", raw.provider, "ofi", "RDMACORO_OFI_PROVIDER");
}

void interpret_cpus(const raw_options& raw, options& parsed) {
    const bool pair = parsed.as == options::role::pair;
    parsed.threads = parse_number("--threads", raw.threads, 1, most_threads);
    if (parsed.threads != 1 && parsed.as == options::role::listen)
        throw usage_error("--threads: the connecting side's option holds for both");
    if (!raw.cpus.empty()) {
        parsed.cpus = parse_cpus(raw.cpus, parsed.threads);
        if (pair && (parsed.cpus.size() < 2 || parsed.cpus.front() == parsed.cpus.back())) {
            throw usage_error("--cpus: --pair needs two different CPUs, such as 0,1");
        }
    } else if (pair) {
        parsed.cpus = usable_cpus();
        if (parsed.cpus.size() < 2)
            throw usage_error("--pair pins its two sides to two CPUs, and this process may use only one");
        parsed.cpus.resize(2 * std::min<std::size_t>(parsed.threads, parsed.cpus.size() / 2));
    }
}

void interpret(raw_options& raw, options& parsed) {
    interpret_address(raw, parsed);
    interpret_device(raw, parsed);
    parsed.tests = parse_tests(raw.tests);
    for (const test_kind test : parsed.tests) {
        if (!is_service(test) || parsed.protocol == "auto") continue;
        throw usage_error("--test " + std::string(facts_of(test).name) +
                          " goes by the library's own protocol list: --protocol auto");
    }
    if (!raw.sizes.empty()) parsed.sizes = parse_sizes(raw.sizes);
    if (!raw.window.empty()) parsed.window = parse_number("--window", raw.window, 1, most_window);
    if (!raw.buffers.empty()) {
        if (parsed.verify) throw usage_error("--buffers: with --verify every message has one of its own");
        parsed.buffers = parse_number("--buffers", raw.buffers, 1, most_window);
    }
    parsed.iterations = parse_automatic("--iterations", raw.iterations, most_iterations);
    if (parsed.iterations == 0) parsed.iterations.reset();
    parsed.warmup = parse_automatic("--warmup", raw.warmup, most_iterations);
    if (!raw.idle.empty()) parsed.idle = parse_idle(raw.idle);
    interpret_cpus(raw, parsed);
    parsed.timeout_seconds = parse_number("--timeout", raw.timeout, 0, 1'000'000);
    if (!raw.spoil.empty()) {
        if (!parsed.verify) throw usage_error("--spoil goes with --verify");
        parsed.spoil = parse_number("--spoil", raw.spoil, 0, most_iterations);
    }
    check_apart("--json", parsed.json, "--csv", parsed.csv);
    if (parsed.explain && !(parsed.json.empty() && parsed.csv.empty()))
        throw usage_error("--explain measures nothing, and has no results for --json or --csv");
}

std::string test_help() {
    return "What to measure, one or several:\n"
           "latency (half a round trip of matched messages), rate and bandwidth (one way, --window "
           "outstanding), "
           "bidirectional (both ways at a time; both are counted), get, put (one-sided); and by the "
           "toolkit's "
           "services: "
           "call (a round trip: a value there, one of its size back; counted as one message), cast (calls "
           "without "
           "an answer: half a round trip of two, and the rate with --window outstanding), "
           "stream (elements that the listening side writes and this one reads). "
           "Default: latency,rate,bandwidth";
}

}  // namespace

int cpu_of(const options& asked, bool connecting, std::size_t thread) {
    if (asked.cpus.empty()) return -1;
    if (asked.cpus.size() == 1) return asked.cpus.front();
    const std::size_t each = asked.cpus.size() / 2;
    return asked.cpus[thread % each + (connecting ? 0 : each)];
}

std::optional<options> parse_options(int argc, char** argv) {
    options parsed;
    raw_options raw;
    CLI::App app{"Measures how fast two processes exchange messages.\n"
                 "One side: pingpong --listen URL. The other: pingpong [options] URL; what it asks for holds "
                 "for both.\n"
                 "Or both on this machine, on a CPU each: pingpong [options] --pair URL.\n"
                 "URL: " +
                     address_forms(),
                 "pingpong"};
    app.set_version_flag("--version", "pingpong " PINGPONG_VERSION, "Print the version and end");
    app.add_option("URL", raw.connect, "Connect to a listening pingpong and measure");
    app.add_option("--listen", raw.listen, "Serve one client, then end; with tcp://HOST:0, any free port")
        ->type_name("URL");
    app.add_flag("--forever", parsed.forever, "With --listen: serve one client after the other");
    app.add_option("--pair", raw.pair, "Start both sides, as two processes on two CPUs")->type_name("URL");
    app.add_option("--transport", raw.transport, "Of a URL without one: tcp with 127.0.0.1:7471")
        ->type_name("NAME");
    app.add_option("--device", raw.device,
                   "With verbs://: the device's name, such as mlx5_0; default: that of the address")
        ->type_name("NAME");
    app.add_option("--port", raw.port, "With verbs://: the device's port; default: the first active one")
        ->type_name("N");
    app.add_option(
           "--gid-index", raw.gid_index,
           "With verbs:// and --connect-by tcp: of the port's GIDs; default: that of the address that the "
           "connection comes from")
        ->type_name("N");
    app.add_option("--connect-by", raw.connect_by,
                   "With verbs://: how queue pairs find each other, rdma_cm, tcp or automatic")
        ->type_name("HOW");
    app.add_option(
           "--provider", raw.provider,
           "With ofi://: libfabric's provider, such as tcp, shm, verbs, cxi, efa or gni; default: tcp")
        ->type_name("NAME");
    app.add_option("--test", raw.tests, test_help())->type_name("TEST,...");
    app.add_option(
           "--sizes", raw.sizes,
           "Sizes of messages: 8,1K,1M, or a range of powers of two, 1:64M; K, M, G are powers of 1024. "
           "Default: a few that suit the test")
        ->type_name("SIZE,...");
    app.add_option(
           "--iterations", raw.iterations,
           "Messages for each row, rounded up to whole windows; auto or 0: as many as take about a second")
        ->type_name("N|auto");
    app.add_option("--warmup", raw.warmup, "Messages before them that are not counted; auto: some 30 ms")
        ->type_name("N|auto");
    app.add_option("--window", raw.window,
                   "Operations outstanding; default 64, but 1 for get, put and call; latency has always 1; "
                   "of a stream "
                   "it is the elements that a time is the mean of")
        ->type_name("N");
    app.add_option("--buffers", raw.buffers,
                   "Buffers, at each side, that a window's messages take turns in, as far as 256 MiB reach; "
                   "default 1, "
                   "which a processor's cache may hold")
        ->type_name("N");
    app.add_option("--protocol", parsed.protocol,
                   "How messages travel, the same on both sides: " + list_names() + ". Default: auto")
        ->type_name("NAME");
    app.add_option("--idle", raw.idle,
                   "What a side does when nothing moves: spin, yield, or adaptive (spin, yield, then sleep), "
                   "the default. "
                   "The listening side takes that of the connecting side unless it has the option itself")
        ->type_name("HOW");
    app.add_option(
           "--cpus", raw.cpus,
           "Pin to these CPUs: the connecting side's, then the listening side's; or one, for this side; "
           "with --threads one, two, or each thread's. "
           "--pair pins to the first of this machine by default")
        ->type_name("A[,B...]");
    app.add_option(
           "--threads", raw.threads,
           "Threads of each side, each with a scheduler and a connection of its own, that measure at a "
           "time; "
           "--iterations and --window are each thread's, times are of all, rates their sum; the others "
           "listen at any free port. Default: 1")
        ->type_name("N");
    app.add_option(
           "--timeout", raw.timeout,
           "Give up when nothing moves for so long, and when a listening side, which may serve another "
           "client, does not answer; 0: never. Default: 60")
        ->type_name("SECONDS");
    app.add_flag("--verify", parsed.verify,
                 "Give every payload contents of its own and check every byte that arrives; times then "
                 "include some of that");
    app.add_option("--spoil", raw.spoil,
                   "With --verify: fill message number N of each row wrongly, to see that it is noticed")
        ->type_name("N");
    app.add_flag("--explain", parsed.explain,
                 "Print which protocol carries which sizes, and measure nothing");
    app.add_option("--json", parsed.json, "Write the results as JSON; - is standard output")
        ->type_name("FILE");
    app.add_option("--csv", parsed.csv, "Write the results as comma-separated values; - is standard output")
        ->type_name("FILE");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& answered) {
        app.exit(answered);
        return std::nullopt;
    } catch (const CLI::Error& wrong) {
        throw usage_error(std::string(wrong.what()) + "; --help lists the options");
    }
    interpret(raw, parsed);
    return parsed;
}

}  // namespace pingpong
