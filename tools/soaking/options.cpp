#include "options.hpp"

#include "transports.hpp"

#include "../pingpong/failure.hpp"
#include "../pingpong/number_between.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <random>

namespace soak {

std::optional<options> parse_options(int argc, char** argv) {
    options asked;
    CLI::App app("Random messages, gets and puts among processes that are killed, stopped and restarted, "
                 "with every byte checked and each\n"
                 "process's memory, descriptors and mappings watched. Ends with 0 when no fault was seen.",
                 "soak");
    app.add_option("--minutes", asked.minutes, "how long")
        ->check(pingpong::number_between(0.01, 100'000.0))
        ->capture_default_str();
    app.add_option("--workers", asked.workers, "processes")
        ->check(CLI::Range(2u, 64u))
        ->capture_default_str();
    app.add_option("--links", asked.links, "links that each process keeps open towards others")
        ->check(CLI::Range(1u, 1000u))
        ->capture_default_str();
    app.add_option("--transports", asked.transports, "of " + transport_names() + "; all where not given")
        ->delimiter(',');
    app.add_option("--kill-every", asked.kill_every, "mean seconds between two kills; 0: none")
        ->check(pingpong::number_between(0, 1e9))
        ->capture_default_str();
    app.add_option("--stop-every", asked.stop_every, "mean seconds between two stops (SIGSTOP); 0: none")
        ->check(pingpong::number_between(0, 1e9))
        ->capture_default_str();
    app.add_option("--longest-stop", asked.longest_stop,
                   "seconds that a process stands still at most; up to a quarter of --round-limit")
        ->check(pingpong::number_between(0.01, 600.0))
        ->capture_default_str();
    app.add_option("--longest", asked.longest, "bytes of the longest message, such as 4M")
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30))
        ->capture_default_str();
    app.add_option("--round-limit", asked.round_limit,
                   "seconds after which a round counts as hung, or a dropped link as not noticed; stops are "
                   "part of them")
        ->check(pingpong::number_between(1.0, 3600.0))
        ->capture_default_str();
    app.add_option("--seed", asked.seed, "of the random numbers; 0: another one each time")
        ->capture_default_str();
    app.add_option("--corrupt", asked.corrupt,
                   "send every so many messages one with a wrong byte, to see that it is noticed");
    app.add_option("--drop", asked.drop,
                   "drop a link that should go on after every so many rounds, to see that it is noticed");
    app.add_option("--deafen", asked.deafen,
                   "drop a listener after so many sessions, to see that it is noticed");
    app.add_option("--json", asked.json, "a file for the summary; - for standard output");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& answered) {
        app.exit(answered);
        return std::nullopt;
    } catch (const CLI::Error& wrong) {
        throw pingpong::usage_error(std::string(wrong.what()) + "; --help lists the options");
    }
    for (const std::string& name : asked.transports) {
        if (!has_transport(name))
            throw pingpong::usage_error("--transports: this build has " + transport_names() + ", not " +
                                        name);
    }
    // Both ends may stand still one after the other, and more than once.
    if (asked.stop_every > 0 && asked.longest_stop > asked.round_limit / 4)
        throw pingpong::usage_error("--longest-stop: longer than a quarter of --round-limit, so that rounds "
                                    "which only stood still would count as hung");
    if (asked.transports.empty()) asked.transports = all_transports();
    if (asked.seed == 0) asked.seed = std::random_device{}() | std::uint64_t{1} << 32;
    return asked;
}

}  // namespace soak
