#include "options.hpp"

#include "../pingpong/cpus.hpp"
#include "../pingpong/failure.hpp"
#include "../pingpong/number_between.hpp"
#include "../pingpong/output.hpp"
#include "../pingpong/sizes.hpp"
#include "../pingpong/text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

namespace tune {

namespace {

constexpr std::string_view keywords[] = {
    "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
    "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
    "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
    "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
    "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
    "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
    "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
    "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
    "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
    "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
    "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
    "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
    "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
    "xor_eq"};

[[nodiscard]] bool is_name(const std::string& text) {
    const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    return !text.empty() && letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
        return letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
}

void check_name(const std::string& text) {
    if (!is_name(text)) throw pingpong::usage_error("--name: " + text + " is no name of a namespace");
    if (std::find(std::begin(keywords), std::end(keywords), text) != std::end(keywords))
        throw pingpong::usage_error("--name: " + text + " is a keyword of C++, and no name of a namespace");
    // The header includes the toolkit, which has these.
    if (text == "std" || text == "rdmacoro")
        throw pingpong::usage_error("--name: the namespace " + text + " is taken");
}

}  // namespace

std::optional<options> parse_options(int argc, char** argv) {
    options asked;
    std::string sizes = "0,8,64,256,1K,4K,8K,16K,32K,64K,128K,256K,512K,1M";
    std::string cpus;
    std::string known;
    for (const std::string& one : transport_names()) pingpong::append_item(known, one);
    std::size_t seconds_limit = 600;
    CLI::App app(
        "Measures what messages between two processes of this machine cost, fits a model to it, prints "
        "which algorithm each\ncollective should use, and writes a C++ header for group::use.",
        "tune");
    app.add_option("--transport", asked.transports,
                   "one, or the one within hosts and then the one between hosts; of " + known +
                       "; all of them where not given")
        ->delimiter(',');
    app.add_option("--ranks", asked.ranks, "for which numbers of ranks the choice is printed")
        ->delimiter(',')
        ->check(CLI::Range(2u, 1u << 20))
        ->capture_default_str();
    app.add_option("--hosts", asked.hosts, "on how many hosts these are, numbered one host after the other")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    app.add_option("--sizes", sizes, "of the messages, such as 0,8,1K or 8:1M; at least three")
        ->capture_default_str();
    app.add_option("--rounds", asked.how.rounds,
                   "everything is measured so often, and the lower quartiles are taken")
        ->check(CLI::Range(std::size_t{1}, std::size_t{1000}))
        ->capture_default_str();
    app.add_option("--seconds", asked.how.seconds, "that a figure of a round takes, about")
        ->check(pingpong::number_between(0.0001, 10.0))
        ->capture_default_str();
    app.add_option("--limit", seconds_limit, "seconds after which a link is given up")
        ->check(CLI::Range(std::size_t{1}, std::size_t{100'000}))
        ->capture_default_str();
    app.add_option("--cpus", cpus,
                   "the CPUs of the two processes, such as 0,1; by default the first that may be used");
    app.add_option("--from", asked.from, "take the measurements of an earlier run from its JSON file");
    app.add_option("--json", asked.json, "a file for measurements, costs and choices; - for standard output");
    app.add_option("--header", asked.header, "a C++ header with the costs; - for standard output");
    app.add_option("--name", asked.name, "the namespace of that header")->capture_default_str();
    app.add_flag("--quiet", asked.quiet, "no words of progress on standard error");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& answered) {
        app.exit(answered);
        return std::nullopt;
    } catch (const CLI::Error& wrong) {
        throw pingpong::usage_error(std::string(wrong.what()) + "; --help lists the options");
    }
    for (const std::string& one : asked.transports) {
        const std::vector<std::string> all = transport_names();
        if (std::find(all.begin(), all.end(), one) == all.end())
            throw pingpong::usage_error("--transport: this build has " + known + ", not " + one);
    }
    if (asked.transports.size() > 2) throw pingpong::usage_error("--transport: at most two");
    if (asked.transports.empty()) asked.transports = transport_names();
    check_name(asked.name);
    pingpong::check_apart("--json", asked.json, "--header", asked.header);
    asked.how.sizes = pingpong::parse_sizes(sizes);
    std::sort(asked.how.sizes.begin(), asked.how.sizes.end());
    asked.how.sizes.erase(std::unique(asked.how.sizes.begin(), asked.how.sizes.end()), asked.how.sizes.end());
    if (asked.how.sizes.size() < 3) throw pingpong::usage_error("--sizes: a model needs at least three");
    if (asked.how.sizes.back() > (std::size_t{64} << 20)) throw pingpong::usage_error("--sizes: at most 64M");
    asked.how.limit = std::chrono::seconds(seconds_limit);
    const std::vector<int> usable = cpus.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(cpus);
    asked.how.cpus = {usable.front(), usable.size() > 1 ? usable[1] : usable.front()};
    asked.how.spins = asked.how.cpus[0] != asked.how.cpus[1];
    return asked;
}

}  // namespace tune
