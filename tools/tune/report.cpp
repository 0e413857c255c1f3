#include "report.hpp"

#include "../pingpong/failure.hpp"
#include "../pingpong/machine.hpp"
#include "../pingpong/output.hpp"
#include "../pingpong/sizes.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace tune {

namespace rc = rdmacoro;
using json = nlohmann::ordered_json;
using pingpong::number_text;
using pingpong::rounded;
using pingpong::size_text;
using pingpong::time_text;

namespace {

[[nodiscard]] std::string column(std::string text, std::size_t width) {
    text.resize(std::max(width, text.size() + 1), ' ');
    return text;
}
[[nodiscard]] std::string percent(double share) { return number_text(100 * share, 1) + " %"; }

[[nodiscard]] std::string steps_of(const rc::costed_algorithm& by) {
    return std::string(rc::name_of(by.first.kind)) + " (" + std::string(by.first.algorithm) + ") + " +
           std::string(rc::name_of(by.second.kind)) + " (" + std::string(by.second.algorithm) + ")";
}
[[nodiscard]] std::string name_of(const rc::costed_algorithm& by) {
    return std::string(by.how.name) + (by.is_substitute() ? ": " + steps_of(by) : std::string());
}

/// All of a file.
[[nodiscard]] std::string contents_of(const std::string& path) {
    const auto refuse = [&path] {
        throw pingpong::usage_error("--from: cannot read " + path + ": " + std::strerror(errno));
    };
    struct close_file {
        void operator()(std::FILE* file) const noexcept { std::fclose(file); }
    };
    const std::unique_ptr<std::FILE, close_file> file(std::fopen(path.c_str(), "re"));
    if (!file) refuse();
    std::string text;
    std::array<char, 65536> some;
    while (const std::size_t got = std::fread(some.data(), 1, some.size(), file.get()))
        text.append(some.data(), got);
    if (std::ferror(file.get()) != 0) refuse();
    return text;
}

/// A file's length of a message, up to the longest that costs are looked at for.
[[nodiscard]] std::size_t length_of(const json& bytes) {
    constexpr std::uint64_t most = std::uint64_t{64} << 20;
    if (!bytes.is_number_unsigned() || bytes.get<std::uint64_t>() > most)
        throw pingpong::usage_error("--from: bytes " + bytes.dump() + ": a number, 0 to 64 Mi");
    return bytes.get<std::size_t>();
}

/// A file's cost, as far as sums of many stay numbers.
[[nodiscard]] double cost_of(const char* name, const json& value, double least) {
    constexpr double most = 1e15;
    const double cost = value.get<double>();
    if (!(cost >= least && cost <= most))
        throw pingpong::usage_error("--from: " + std::string(name) + " " + value.dump() + " is no cost");
    return cost;
}

[[nodiscard]] std::string exact(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.6g", value);
    return text;
}

}  // namespace

std::string text_of(const fitted_link& link) {
    std::string text = "link " + link.samples.transport + "\n  " + column("cost", 12) + column("start", 12) +
                       column("extra", 12) + column("per byte", 14) + column("mean error", 12) +
                       column("largest", 10) + "left out\n";
    for (std::size_t kind = 0; kind < 3; ++kind) {
        const rc::cost_fit& fit = link.fits[kind];
        text += "  " + column(std::string(names[kind]), 12) + column(time_text(fit.cost.start_ns), 12) +
                column(time_text(fit.cost.extra_ns), 12) + column(exact(fit.cost.ns_per_byte) + " ns", 14) +
                column(percent(fit.mean_error), 12) + column(percent(fit.largest_error), 10) +
                std::to_string(fit.outliers) + "\n";
    }
    text += "  " + column("combine", 36) + exact(link.costs.touch_ns_per_byte) + " ns\n";
    for (std::size_t kind = 0; kind < 3; ++kind) {
        text += "\n  " + column(std::string(names[kind]), 12) + column("measured", 14) + column("model", 14) +
                "difference\n";
        for (const rc::cost_sample& one : link.samples.of[kind]) {
            const double model = link.fits[kind].cost.at(static_cast<double>(one.bytes));
            text += "  " + column(size_text(one.bytes), 12) + column(time_text(one.ns), 14) +
                    column(time_text(model), 14) + percent(model / one.ns - 1) + "\n";
        }
    }
    return text + "\n";
}

std::vector<std::string> doubts_of(const std::vector<fitted_link>& links) {
    std::vector<std::string> doubts;
    for (const fitted_link& link : links) {
        for (std::size_t kind = 0; kind < 3; ++kind) {
            if (link.fits[kind].mean_error <= 0.25) continue;
            doubts.push_back(link.samples.transport + ", " + std::string(names[kind]) +
                             ": the model is off by " + percent(link.fits[kind].mean_error) +
                             " in the mean; measure again on an idle machine, with more --rounds");
        }
    }
    return doubts;
}

std::string text_of(const std::vector<choice>& choices, unsigned hosts) {
    std::string text = "choice for ranks on " + std::to_string(hosts) + (hosts == 1 ? " host" : " hosts") +
                       ", elements of 8 bytes\n  " + column("collective", 16) + column("ranks", 8) +
                       column("from", 10) + column("takes", 12) + "algorithm\n";
    for (const choice& one : choices) {
        if (one.by == nullptr) continue;
        text += "  " + column(std::string(rc::name_of(one.kind)), 16) + column(std::to_string(one.ranks), 8) +
                column(size_text(one.from), 10) + column(time_text(one.ns), 12) + name_of(*one.by) + "\n";
    }
    std::string substitutes;
    for (std::size_t at = 0; at < choices.size(); ++at) {
        const choice& one = choices[at];
        if (one.by == nullptr || !one.by->is_substitute()) continue;
        const bool ends =
            at + 1 < choices.size() && choices[at + 1].kind == one.kind && choices[at + 1].ranks == one.ranks;
        substitutes += "  " + std::string(rc::name_of(one.kind)) + " of " + std::to_string(one.ranks) +
                       " ranks, from " + size_text(one.from) +
                       (ends ? " to below " + size_text(choices[at + 1].from) : std::string(" on")) + ": " +
                       steps_of(*one.by);
        if (one.direct != nullptr)
            substitutes += " instead of " + std::string(one.direct->how.name) + ", " + time_text(one.ns) +
                           " instead of " + time_text(one.direct_ns);
        substitutes += "\n";
    }
    text += substitutes.empty() ? "no collective is faster as two others\n"
                                : "collectives that are faster as two others\n" + substitutes;
    return text;
}

std::string header_of(const std::vector<fitted_link>& links, const std::string& name) {
    const pingpong::machine_facts on = pingpong::describe_machine();
    const auto cost = [](const rc::linear_cost& of) {
        return "{" + exact(of.start_ns) + ", " + exact(of.extra_ns) + ", " + exact(of.ns_per_byte) + "}";
    };
    const auto line = [&](const char* what, const fitted_link& of) {
        return "    static constexpr rdmacoro::link_costs " + std::string(what) + "{" +
               cost(of.costs.message) + ", " + cost(of.costs.exchange) + ", " + cost(of.costs.next) + ", " +
               exact(of.costs.touch_ns_per_byte) + "};  // " + of.samples.transport + "\n";
    };
    std::string text =
        "// What messages cost, measured by tune on " + on.cpu + ", " + on.kernel + ", " + on.date +
        ".\n// At every rank: `g.use<" + name + "::collectives>()`.\n#pragma once\n\n" +
        "#include <rdmacoro/service/collectives_by_costs.hpp>\n\nnamespace " + name + " {\n\n" +
        "struct link {\n" + line("within", links.front()) + line("between", links.back()) + "};\n" +
        "using collectives = rdmacoro::collectives_by_costs<link>;\n\n}  // namespace " + name + "\n";
    return text;
}

std::string json_of(const std::vector<fitted_link>& links, const std::vector<choice>& choices,
                    unsigned hosts) {
    const pingpong::machine_facts on = pingpong::describe_machine();
    json all;
    all["machine"] = {{"cpu", on.cpu}, {"kernel", on.kernel}, {"date", on.date}, {"compiler", on.compiler}};
    all["links"] = json::array();
    for (const fitted_link& link : links) {
        json one{{"transport", link.samples.transport}, {"touch_ns_per_byte", link.costs.touch_ns_per_byte}};
        for (std::size_t kind = 0; kind < 3; ++kind) {
            const rc::cost_fit& fit = link.fits[kind];
            json cost{{"start_ns", fit.cost.start_ns},       {"extra_ns", fit.cost.extra_ns},
                      {"ns_per_byte", fit.cost.ns_per_byte}, {"mean_error", fit.mean_error},
                      {"largest_error", fit.largest_error},  {"outliers", fit.outliers}};
            cost["samples"] = json::array();
            for (const rc::cost_sample& sample : link.samples.of[kind]) {
                cost["samples"].push_back({{"bytes", sample.bytes},
                                           {"ns", sample.ns},
                                           {"model_ns", fit.cost.at(static_cast<double>(sample.bytes))}});
            }
            one[std::string(names[kind])] = std::move(cost);
        }
        all["links"].push_back(std::move(one));
    }
    all["hosts"] = hosts;
    all["choices"] = json::array();
    for (const choice& of : choices) {
        if (of.by == nullptr) continue;
        json one{{"collective", rc::name_of(of.kind)},
                 {"ranks", of.ranks},
                 {"from_bytes", of.from},
                 {"algorithm", of.by->how.name},
                 {"ns", rounded(of.ns)}};
        if (of.by->is_substitute()) {
            one["first"] = {{"collective", rc::name_of(of.by->first.kind)},
                            {"algorithm", of.by->first.algorithm}};
            one["second"] = {{"collective", rc::name_of(of.by->second.kind)},
                             {"algorithm", of.by->second.algorithm}};
            one["direct_ns"] = of.direct != nullptr ? json(rounded(of.direct_ns)) : json();
        }
        all["choices"].push_back(std::move(one));
    }
    return all.dump(2) + "\n";
}

std::vector<link_samples> samples_of(const std::string& path) {
    const std::string text = contents_of(path);
    std::vector<link_samples> found;
    try {
        const json all = json::parse(text);
        for (const json& link : all.at("links")) {
            link_samples one;
            one.transport = link.at("transport").get<std::string>();
            one.touch_ns_per_byte = cost_of("touch_ns_per_byte", link.at("touch_ns_per_byte"), 0);
            for (const char c : one.transport) {
                if (c < 'a' || c > 'z')
                    throw pingpong::usage_error(
                        "--from: a transport's name has other characters than letters");
            }
            for (std::size_t kind = 0; kind < 3; ++kind) {
                for (const json& sample : link.at(std::string(names[kind])).at("samples"))
                    one.of[kind].push_back(
                        {length_of(sample.at("bytes")), cost_of("ns", sample.at("ns"), 1e-9)});
            }
            found.push_back(std::move(one));
        }
    } catch (const json::exception& e) {
        throw pingpong::usage_error("--from: " + path + " is no result of tune: " + e.what());
    }
    if (found.empty() || found.size() > 2)
        throw pingpong::usage_error("--from: " + path + " has " + std::to_string(found.size()) +
                                    " links, not one or two");
    return found;
}

}  // namespace tune
