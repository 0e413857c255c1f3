#include "options.hpp"

#include "../pingpong/number_between.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>

namespace run {

host parse_host(const std::string& text) {
    const std::size_t colon = text.find(':');
    host one{text.substr(0, colon)};
    const bool printable =
        std::all_of(one.name.begin(), one.name.end(), [](char c) { return c > ' ' && c <= '~' && c != ','; });
    // A name that begins with - would be an option of ssh.
    if (one.name.empty() || !printable || one.name.front() == '-')
        throw CLI::ValidationError("--hosts", "\"" + text + "\" is no host, such as alpha or alpha:4");
    if (colon == std::string::npos) return one;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, one.ranks);
    if (read.ec != std::errc() || read.ptr != end || one.ranks == 0)
        throw CLI::ValidationError("--hosts",
                                   "\"" + text + "\": a number of ranks follows the colon, as in alpha:4");
    return one;
}

std::vector<std::string> place_ranks(const std::vector<host>& hosts, std::uint32_t ranks) {
    std::vector<std::string> places;
    if (hosts.empty()) return places;
    const bool counted =
        std::any_of(hosts.begin(), hosts.end(), [](const host& one) { return one.ranks != 0; });
    const auto count = static_cast<std::uint32_t>(hosts.size());
    while (places.size() < ranks) {
        for (std::uint32_t n = 0; n < count; ++n) {
            std::uint32_t here = std::max(hosts[n].ranks, 1u);
            if (!counted) here = ranks / count + (n < ranks % count ? 1 : 0);
            for (; here != 0 && places.size() < ranks; --here) places.push_back(hosts[n].name);
        }
    }
    return places;
}

bool is_variable_name(std::string_view text) noexcept {
    return !text.empty() && (text[0] < '0' || text[0] > '9') &&
           text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") ==
               std::string_view::npos;
}

std::optional<options> parse_options(int argc, char** argv) {
    options asked;
    std::string hosts;
    CLI::App app(
        "run -n 4 [--hosts alpha,beta] [OPTIONS] PROGRAM [ARGUMENT...]\n\n"
        "Starts the ranks of a job, which find each other by rdmacoro::join_job: on this machine, or on "
        "several by ssh.\n"
        "When one fails the others are ended, and the exit status is that of the first that failed;\n"
        "128 and the signal's number for one that a signal ended. 1: run itself failed, 2: a wrong command "
        "line.",
        "run");
    app.add_option("-n,--ranks", asked.ranks, "how many")
        ->check(CLI::Range(1u, 65536u))
        ->capture_default_str();
    const CLI::Option* const given =
        app.add_option("--hosts", hosts, "where: alpha,beta or alpha:4,beta:2; this machine where not given");
    app.add_flag("--tag-output", asked.tag_output,
                 "forwards output line by line, with the rank in front: [3] text. A line of more than 64 KiB "
                 "may come in pieces");
    app.add_option("--ssh", asked.ssh,
                   "the program that starts a command on another host: PROGRAM HOST COMMAND")
        ->capture_default_str();
    app.add_option(
        "--address", asked.address,
        "an address of this machine, in numbers, at which ranks on other hosts reach it; without it "
        "RDMACORO_ADDRESS, or that of the first network interface");
    app.add_option("--grace", asked.grace,
                   "seconds that a rank which is told to end (SIGTERM) has before SIGKILL")
        ->check(pingpong::number_between(0.0, 3600.0))
        ->capture_default_str();
    app.add_option(
           "--env", asked.environment,
           "NAME or NAME=VALUE, a variable for the ranks; may be repeated. Ranks on this machine have all of "
           "this environment but what another launcher says of its job, others those that begin with "
           "RDMACORO_")
        ->allow_extra_args(false);
    app.prefix_command();
    try {
        app.parse(argc, argv);
        asked.command = app.remaining();
        if (!asked.command.empty() && asked.command.front() == "--")
            asked.command.erase(asked.command.begin());
        if (asked.command.empty()) throw CLI::ValidationError("PROGRAM", "which program?");
        if (asked.command.front().starts_with('-'))
            throw CLI::ValidationError(asked.command.front(), "no such option; run --help lists them");
        for (std::size_t at = 0; given->count() != 0 && at <= hosts.size();) {
            const std::size_t end = std::min(hosts.find(',', at), hosts.size());
            asked.hosts.push_back(parse_host(hosts.substr(at, end - at)));
            at = end + 1;
        }
        for (const std::string& one : asked.environment) {
            if (!is_variable_name(one.substr(0, one.find('='))))
                throw CLI::ValidationError("--env", "\"" + one + "\" is no NAME or NAME=VALUE");
        }
    } catch (const CLI::ParseError& error) {
        if (app.exit(error) != 0) std::exit(status_usage);
        if (!std::cout.flush())
            throw std::runtime_error(std::string("cannot write standard output: ") + std::strerror(errno));
        return std::nullopt;
    }
    return asked;
}

}  // namespace run
